"""Browser sessions with whose they are; sessions of the table before are not carried over: people sign in again."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0004_job_held")]
    operations = [
        migrations.CreateModel(
            name="UserSession",
            fields=[
                ("session_data", models.TextField(verbose_name="session data")),
                ("expire_date", models.DateTimeField(db_index=True, verbose_name="expire date")),
                ("session_key", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("browser", models.CharField(default="", max_length=200)),
                ("address", models.GenericIPAddressField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"verbose_name": "session", "verbose_name_plural": "sessions", "abstract": False},
        ),
    ]
