"""The outbox's states move only along the table of legal moves."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0001_initial"), ("ledger", "0002_guards")]
    operations = [
        migrations.RunSQL(
            "CREATE TRIGGER legal_transition BEFORE UPDATE OF state ON scheduler_command "
            "FOR EACH ROW EXECUTE FUNCTION ledger_check_transition('command');",
            "DROP TRIGGER legal_transition ON scheduler_command;",
        )
    ]
