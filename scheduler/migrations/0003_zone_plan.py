"""Zone plans: nodes that go from zone to zone, with a reason, an observation window and their progress."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0002_guards"),
        ("scheduler", "0002_command_transitions"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ZonePlan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(choices=[("list", "list"), ("ratio", "ratio"), ("undo", "undo")], max_length=8),
                ),
                ("simulated", models.BooleanField()),
                ("model", models.CharField(default="", max_length=64)),
                ("targets", models.JSONField(default=dict)),
                ("reason", models.CharField(max_length=500)),
                ("override_reason", models.CharField(default="", max_length=500)),
                ("created_at", models.DateTimeField()),
                ("window_until", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "running"), ("done", "done"), ("cancelled", "cancelled")],
                        default="running",
                        max_length=10,
                    ),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                ("end_reason", models.CharField(default="", max_length=500)),
                (
                    "by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "undoes",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="undone_by",
                        to="scheduler.zoneplan",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ZoneMove",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("planned", "planned"),
                            ("draining", "draining"),
                            ("moved", "moved"),
                            ("dropped", "dropped"),
                        ],
                        default="planned",
                        max_length=8,
                    ),
                ),
                ("moved_at", models.DateTimeField(null=True)),
                ("note", models.CharField(default="", max_length=200)),
                (
                    "from_zone",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.zone"
                    ),
                ),
                (
                    "hold",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.hold"
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="zone_moves", to="ledger.node"
                    ),
                ),
                (
                    "to_zone",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="ledger.zone"),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="moves",
                        to="scheduler.zoneplan",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="zoneplan",
            index=models.Index(condition=models.Q(("state", "running")), fields=["id"], name="zone_plan_running"),
        ),
        migrations.AddIndex(
            model_name="zoneplan",
            index=models.Index(fields=["window_until"], name="zone_plan_window"),
        ),
        migrations.AddConstraint(
            model_name="zoneplan",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["running", "done", "cancelled"])), name="zone_plan_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="zoneplan",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="zone_plan_has_a_reason"
            ),
        ),
        migrations.AddConstraint(
            model_name="zoneplan",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("ended_at__isnull", True), ("state", "running")),
                    models.Q(models.Q(("state", "running"), _negated=True), ("ended_at__isnull", False)),
                    _connector="OR",
                ),
                name="zone_plan_ended_says_when",
            ),
        ),
        migrations.AddConstraint(
            model_name="zonemove",
            constraint=models.UniqueConstraint(fields=("plan", "node"), name="node_once_a_zone_plan"),
        ),
        migrations.AddConstraint(
            model_name="zonemove",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["draining", "planned"])),
                fields=("node",),
                name="one_open_zone_move_a_node",
            ),
        ),
        migrations.AddConstraint(
            model_name="zonemove",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["planned", "draining", "moved", "dropped"])),
                name="zone_move_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="zonemove",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("from_zone__isnull", True),
                    models.Q(("from_zone", models.F("to_zone")), _negated=True),
                    _connector="OR",
                ),
                name="zone_move_moves",
            ),
        ),
        migrations.AddConstraint(
            model_name="zonemove",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("moved_at__isnull", False), ("state", "moved")),
                    models.Q(models.Q(("state", "moved"), _negated=True), ("moved_at__isnull", True)),
                    _connector="OR",
                ),
                name="zone_move_moved_says_when",
            ),
        ),
    ]
