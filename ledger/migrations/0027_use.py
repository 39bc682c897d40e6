"""How much of a share its processes hold, what belongs to no allocation, what applications tell of themselves and where."""

import django.db.models.deletion
from django.db import migrations, models

import ledger.models.use


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0026_health_policy"),
    ]

    operations = [
        migrations.CreateModel(
            name="CardWatch",
            fields=[
                (
                    "card",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="watch",
                        serialize=False,
                        to="ledger.card",
                    ),
                ),
                ("sequence", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("strays", models.JSONField(default=list)),
                ("seen", models.PositiveSmallIntegerField(default=0)),
                ("without", models.PositiveSmallIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="JobMetric",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "source",
                    models.CharField(
                        choices=[
                            (ledger.models.use.MetricSource["PUSHED"], ledger.models.use.MetricSource["PUSHED"]),
                            (ledger.models.use.MetricSource["SCRAPED"], ledger.models.use.MetricSource["SCRAPED"]),
                        ],
                        max_length=8,
                    ),
                ),
                ("p99_ms", models.FloatField(null=True)),
                ("sla_ms", models.FloatField(null=True)),
                ("tokens_per_s", models.FloatField(null=True)),
                ("queue_length", models.BigIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ShareUse",
            fields=[
                (
                    "share",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="use",
                        serialize=False,
                        to="ledger.cardshare",
                    ),
                ),
                ("used_mib", models.IntegerField(null=True)),
                ("over", models.PositiveSmallIntegerField(default=0)),
                ("sequence", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("over_at", models.DateTimeField(null=True)),
                ("warned_at", models.DateTimeField(null=True)),
                ("stopped_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name="job",
            name="metrics_path",
            field=models.CharField(db_default="", default="", max_length=200),
        ),
        migrations.AddField(
            model_name="job",
            name="metrics_port",
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="dcgm_url",
            field=models.CharField(db_default="", default="", max_length=300),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("metrics_path", ""), ("metrics_port__isnull", True)),
                    models.Q(
                        ("metrics_path__startswith", "/"),
                        ("metrics_port__gte", 1024),
                        ("metrics_port__isnull", False),
                        ("metrics_port__lt", 65536),
                    ),
                    _connector="OR",
                ),
                name="job_metrics_at_an_address",
            ),
        ),
        migrations.AddField(
            model_name="cardwatch",
            name="boot",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="ledger.nodeboot",
            ),
        ),
        migrations.AddField(
            model_name="jobmetric",
            name="job",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="metrics", to="ledger.job"
            ),
        ),
        migrations.AddField(
            model_name="shareuse",
            name="boot",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="ledger.nodeboot",
            ),
        ),
        migrations.AddIndex(
            model_name="cardwatch",
            index=models.Index(condition=models.Q(("seen__gt", 0)), fields=["card"], name="cards_with_strays"),
        ),
        migrations.AddIndex(
            model_name="jobmetric",
            index=models.Index(fields=["at"], name="metric_by_time"),
        ),
        migrations.AddConstraint(
            model_name="jobmetric",
            constraint=models.UniqueConstraint(fields=("job", "at", "source"), name="one_metric_a_moment"),
        ),
        migrations.AddConstraint(
            model_name="jobmetric",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "source__in",
                        [ledger.models.use.MetricSource["PUSHED"], ledger.models.use.MetricSource["SCRAPED"]],
                    )
                ),
                name="metric_source_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="jobmetric",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("p99_ms__isnull", True),
                        models.Q(("p99_ms__gte", 0), ("p99_ms__lt", float("inf"))),
                        _connector="OR",
                    ),
                    models.Q(
                        ("sla_ms__isnull", True),
                        models.Q(("sla_ms__gt", 0), ("sla_ms__lt", float("inf"))),
                        _connector="OR",
                    ),
                    models.Q(
                        ("tokens_per_s__isnull", True),
                        models.Q(("tokens_per_s__gte", 0), ("tokens_per_s__lt", float("inf"))),
                        _connector="OR",
                    ),
                    models.Q(("queue_length__isnull", True), ("queue_length__gte", 0), _connector="OR"),
                ),
                name="metric_not_negative",
            ),
        ),
        migrations.AddIndex(
            model_name="shareuse",
            index=models.Index(condition=models.Q(("over__gte", 2)), fields=["over"], name="shares_over"),
        ),
    ]
