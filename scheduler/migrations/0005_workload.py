"""What jobs asked for so far, by version, and which version a decision was made with."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0004_promise")]

    operations = [
        migrations.CreateModel(
            name="Workload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("learnt_at", models.DateTimeField()),
                ("jobs", models.PositiveIntegerField()),
                ("demand", models.JSONField()),
            ],
        ),
        migrations.AddField(
            model_name="decision",
            name="workload",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="scheduler.workload",
            ),
        ),
    ]
