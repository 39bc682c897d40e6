"""What each placement was like, so that two runs can be told to be comparable, and nodes preferred for their caches."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0006_reservation")]

    operations = [
        migrations.AddField(
            model_name="decision", name="fingerprint", field=models.CharField(db_default="", default="", max_length=16)
        ),
        migrations.AddField(model_name="decision", name="fingerprint_parts", field=models.JSONField(null=True)),
        migrations.AddField(model_name="decision", name="warm", field=models.JSONField(null=True)),
    ]
