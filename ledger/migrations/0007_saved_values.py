"""Values of the submit form that people keep under a name."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_audit_indexes")]
    operations = [
        migrations.CreateModel(
            name="SavedValues",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("values", models.JSONField()),
                ("saved_at", models.DateTimeField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_values",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["user", "name"], name="one_saved_values_a_name"),
                    models.CheckConstraint(condition=~Q(name=""), name="saved_values_named"),
                ],
            },
        ),
    ]
