"""The end of a project: since when it ends, its notices and how they were delivered, its receipt; and a guard: a project
has ended only when nothing of it is open any more."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import ledger.vocabulary

# Projects from before that end without a last day: it was today at the latest.
MEND = """
UPDATE ledger_project SET ends_on = greatest(starts_on, (clock_timestamp() AT TIME ZONE 'UTC')::date)
  WHERE state <> 'active' AND ends_on IS NULL;
SET CONSTRAINTS ALL IMMEDIATE;
"""
EMPTY = """
CREATE FUNCTION ledger_check_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM ledger_allocation a WHERE a.project_id = NEW.id AND upper_inf(a.period)) THEN
    RAISE EXCEPTION 'project % still holds something', NEW.slug
      USING ERRCODE = 'check_violation', CONSTRAINT = 'project_ends_empty';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER project_ends_empty AFTER UPDATE OF state ON ledger_project
  FOR EACH ROW WHEN (NEW.state = 'ended' AND OLD.state <> 'ended') EXECUTE FUNCTION ledger_check_ended();
"""
EMPTY_BACK = """
DROP TRIGGER project_ends_empty ON ledger_project;
DROP FUNCTION ledger_check_ended();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0013_projects"),
    ]

    operations = [
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "channel",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.Channel["MAIL"], ledger.vocabulary.Channel["MAIL"]),
                            (ledger.vocabulary.Channel["WEBHOOK"], ledger.vocabulary.Channel["WEBHOOK"]),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.DeliveryState["PENDING"], ledger.vocabulary.DeliveryState["PENDING"]),
                            (ledger.vocabulary.DeliveryState["SENT"], ledger.vocabulary.DeliveryState["SENT"]),
                            (ledger.vocabulary.DeliveryState["FAILED"], ledger.vocabulary.DeliveryState["FAILED"]),
                            (
                                ledger.vocabulary.DeliveryState["NOT_CONFIGURED"],
                                ledger.vocabulary.DeliveryState["NOT_CONFIGURED"],
                            ),
                        ],
                        max_length=16,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("due_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                ("last_error", models.CharField(default="", max_length=500)),
            ],
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.NoticeKind["DAYS_14"], ledger.vocabulary.NoticeKind["DAYS_14"]),
                            (ledger.vocabulary.NoticeKind["DAYS_3"], ledger.vocabulary.NoticeKind["DAYS_3"]),
                            (ledger.vocabulary.NoticeKind["DAYS_1"], ledger.vocabulary.NoticeKind["DAYS_1"]),
                            (ledger.vocabulary.NoticeKind["OVER"], ledger.vocabulary.NoticeKind["OVER"]),
                            (ledger.vocabulary.NoticeKind["RECEIPT"], ledger.vocabulary.NoticeKind["RECEIPT"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("ends_on", models.DateField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Receipt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ends_on", models.DateField()),
                ("ending_since", models.DateTimeField()),
                ("grace_over_at", models.DateTimeField()),
                ("free_at", models.DateTimeField()),
                ("took_s", models.PositiveBigIntegerField()),
                ("jobs_stopped", models.PositiveIntegerField()),
                ("jobs_cancelled", models.PositiveIntegerField()),
                ("grants_ended", models.PositiveIntegerField()),
                ("not_enforced", models.PositiveIntegerField()),
                ("content", models.JSONField()),
            ],
        ),
        migrations.AddField(
            model_name="project",
            name="end_ordered_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="project",
            name="ending_since",
            field=models.DateTimeField(null=True),
        ),
        migrations.AlterField(
            model_name="attempt",
            name="outcome",
            field=models.CharField(
                blank=True,
                choices=[
                    (ledger.vocabulary.Outcome["SUCCEEDED"], ledger.vocabulary.Outcome["SUCCEEDED"]),
                    (ledger.vocabulary.Outcome["FAILED"], ledger.vocabulary.Outcome["FAILED"]),
                    (ledger.vocabulary.Outcome["OUT_OF_MEMORY"], ledger.vocabulary.Outcome["OUT_OF_MEMORY"]),
                    (ledger.vocabulary.Outcome["CANCELLED"], ledger.vocabulary.Outcome["CANCELLED"]),
                    (ledger.vocabulary.Outcome["OVER_WALLTIME"], ledger.vocabulary.Outcome["OVER_WALLTIME"]),
                    (ledger.vocabulary.Outcome["PREEMPTED"], ledger.vocabulary.Outcome["PREEMPTED"]),
                    (ledger.vocabulary.Outcome["START_FAILED"], ledger.vocabulary.Outcome["START_FAILED"]),
                    (ledger.vocabulary.Outcome["HARDWARE"], ledger.vocabulary.Outcome["HARDWARE"]),
                    (ledger.vocabulary.Outcome["LOST"], ledger.vocabulary.Outcome["LOST"]),
                    (ledger.vocabulary.Outcome["PROJECT_ENDED"], ledger.vocabulary.Outcome["PROJECT_ENDED"]),
                ],
                default="",
                max_length=16,
            ),
        ),
        migrations.RunSQL(MEND, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("end_ordered_at__isnull", True),
                        ("ending_since__isnull", True),
                        ("state", ledger.vocabulary.ProjectState["ACTIVE"]),
                    ),
                    models.Q(
                        ("ends_on__isnull", False),
                        (
                            "state__in",
                            [ledger.vocabulary.ProjectState["ENDING"], ledger.vocabulary.ProjectState["ENDED"]],
                        ),
                    ),
                    _connector="OR",
                ),
                name="project_that_ends_has_an_end",
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="to",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="project",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="notices", to="ledger.project"
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="notice",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="deliveries",
                to="ledger.notice",
            ),
        ),
        migrations.AddField(
            model_name="receipt",
            name="project",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, related_name="receipt", to="ledger.project"
            ),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.UniqueConstraint(fields=("project", "kind", "ends_on"), name="one_notice_of_an_end"),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            ledger.vocabulary.NoticeKind["DAYS_14"],
                            ledger.vocabulary.NoticeKind["DAYS_3"],
                            ledger.vocabulary.NoticeKind["DAYS_1"],
                            ledger.vocabulary.NoticeKind["OVER"],
                            ledger.vocabulary.NoticeKind["RECEIPT"],
                        ],
                    )
                ),
                name="notice_kind_known",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", ledger.vocabulary.DeliveryState["PENDING"])),
                fields=["due_at", "id"],
                name="delivery_pending",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                fields=("notice", "channel", "to"), name="one_delivery_a_channel_and_person", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("channel__in", [ledger.vocabulary.Channel["MAIL"], ledger.vocabulary.Channel["WEBHOOK"]])
                ),
                name="delivery_channel_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            ledger.vocabulary.DeliveryState["PENDING"],
                            ledger.vocabulary.DeliveryState["SENT"],
                            ledger.vocabulary.DeliveryState["FAILED"],
                            ledger.vocabulary.DeliveryState["NOT_CONFIGURED"],
                        ],
                    )
                ),
                name="delivery_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("channel", ledger.vocabulary.Channel["MAIL"]), ("to__isnull", False)),
                    models.Q(("channel", ledger.vocabulary.Channel["WEBHOOK"]), ("to__isnull", True)),
                    _connector="OR",
                ),
                name="mail_goes_to_a_person",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("sent_at__isnull", False), ("state", ledger.vocabulary.DeliveryState["SENT"])),
                    models.Q(
                        models.Q(("state", ledger.vocabulary.DeliveryState["SENT"]), _negated=True),
                        ("sent_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="sent_delivery_says_when",
            ),
        ),
        migrations.RunSQL(EMPTY, EMPTY_BACK),
    ]
