"""How reading exporters of nodes and applications of jobs went."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0027_use"),
        ("scheduler", "0012_drills"),
    ]

    operations = [
        migrations.CreateModel(
            name="JobScrape",
            fields=[
                ("tried_at", models.DateTimeField()),
                ("ok_at", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("error", models.CharField(default="", max_length=300)),
                ("seen", models.JSONField(default=dict)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="scrape",
                        serialize=False,
                        to="ledger.job",
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="NodeScrape",
            fields=[
                ("tried_at", models.DateTimeField()),
                ("ok_at", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("error", models.CharField(default="", max_length=300)),
                ("seen", models.JSONField(default=dict)),
                (
                    "node",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="scrape",
                        serialize=False,
                        to="ledger.node",
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
    ]
