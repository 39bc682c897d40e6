"""What single people may do beyond their roles for a time, and what single people are told. An odd grant is never changed
but ended early, once."""

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

STAYS = """
CREATE FUNCTION ledger_odd_grant_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.withdrawn_at IS NULL AND NEW.withdrawn_at IS NOT NULL
     AND lower(NEW.period) = lower(OLD.period) AND upper(NEW.period) < upper(OLD.period)
     AND upper(OLD.period) > clock_timestamp()
     AND upper(NEW.period) >= clock_timestamp() - interval '1 minute'
     AND (NEW.id, NEW.user_id, NEW.kind, NEW.reason, NEW.by_id) = (OLD.id, OLD.user_id, OLD.kind, OLD.reason, OLD.by_id)
     AND NEW.zone_id IS NOT DISTINCT FROM OLD.zone_id AND NEW.department_id IS NOT DISTINCT FROM OLD.department_id THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'odd grant % stays as it is; it may be ended early, once', OLD.id
    USING ERRCODE = 'check_violation', CONSTRAINT = 'odd_grant_stays';
END $$;
CREATE TRIGGER odd_grant_stays BEFORE UPDATE ON ledger_oddgrant FOR EACH ROW
  EXECUTE FUNCTION ledger_odd_grant_stays();
"""
STAYS_BACK = "DROP TRIGGER odd_grant_stays ON ledger_oddgrant; DROP FUNCTION ledger_odd_grant_stays();"


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("ledger", "0023_ceilings_by_model"),
    ]

    operations = [
        migrations.CreateModel(
            name="DepartmentUserPermission",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Letter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("invited", "invited"),
                            ("to_decide", "to_decide"),
                            ("commented", "commented"),
                            ("approved", "approved"),
                            ("refused", "refused"),
                            ("expired", "expired"),
                            ("grant_given", "grant_given"),
                            ("grant_ends", "grant_ends"),
                            ("grant_over", "grant_over"),
                        ],
                        max_length=16,
                    ),
                ),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="OddGrant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (
                                "zone_operator",
                                "zone_operator",
                            ),
                            ("auditor", "auditor"),
                        ],
                        max_length=16,
                    ),
                ),
                ("period", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
                ("reason", models.CharField(max_length=500)),
                ("withdrawn_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ZoneUserPermission",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.AlterModelOptions(
            name="department",
            options={"permissions": [("audit_department", "Can read all that projects of this department do")]},
        ),
        migrations.AlterModelOptions(
            name="zone",
            options={"permissions": [("operate_zone", "Can hold and return machines of this zone")]},
        ),
        migrations.RemoveConstraint(
            model_name="delivery",
            name="one_delivery_a_channel_and_person",
        ),
        migrations.RemoveConstraint(
            model_name="delivery",
            name="delivery_state_known",
        ),
        migrations.AlterField(
            model_name="delivery",
            name="notice",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="deliveries",
                to="ledger.notice",
            ),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="state",
            field=models.CharField(
                choices=[
                    ("pending", "pending"),
                    ("sent", "sent"),
                    ("failed", "failed"),
                    ("dropped", "dropped"),
                    (
                        "not_configured",
                        "not_configured",
                    ),
                ],
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="departmentuserpermission",
            name="content_object",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="ledger.department"),
        ),
        migrations.AddField(
            model_name="departmentuserpermission",
            name="permission",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="auth.permission"),
        ),
        migrations.AddField(
            model_name="departmentuserpermission",
            name="user",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name="letter",
            name="comment",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="letters",
                to="ledger.requestcomment",
            ),
        ),
        migrations.AddField(
            model_name="letter",
            name="invitation",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="letters", to="ledger.invitation"
            ),
        ),
        migrations.AddField(
            model_name="letter",
            name="request",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="letters",
                to="ledger.projectrequest",
            ),
        ),
        migrations.AddField(
            model_name="letter",
            name="to",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="letters", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="letter",
            field=models.OneToOneField(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="delivery", to="ledger.letter"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                condition=models.Q(("notice__isnull", False)),
                fields=("notice", "channel", "to"),
                name="one_delivery_a_channel_and_person",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("letter__isnull", True), ("notice__isnull", False)),
                    models.Q(
                        ("channel", "mail"),
                        ("letter__isnull", False),
                        ("notice__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="delivery_of_a_notice_or_a_letter",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            "pending",
                            "sent",
                            "failed",
                            "dropped",
                            "not_configured",
                        ],
                    )
                ),
                name="delivery_state_known",
            ),
        ),
        migrations.AddField(
            model_name="oddgrant",
            name="by",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="oddgrant",
            name="department",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="odd_grants",
                to="ledger.department",
            ),
        ),
        migrations.AddField(
            model_name="oddgrant",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="odd_grants",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="oddgrant",
            name="withdrawn_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="oddgrant",
            name="zone",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="odd_grants", to="ledger.zone"
            ),
        ),
        migrations.AddField(
            model_name="letter",
            name="grant",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="letters", to="ledger.oddgrant"
            ),
        ),
        migrations.AddField(
            model_name="zoneuserpermission",
            name="content_object",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="ledger.zone"),
        ),
        migrations.AddField(
            model_name="zoneuserpermission",
            name="permission",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="auth.permission"),
        ),
        migrations.AddField(
            model_name="zoneuserpermission",
            name="user",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterUniqueTogether(
            name="departmentuserpermission",
            unique_together={("user", "permission", "content_object")},
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[("user", "="), ("zone", "="), ("period", "&&")], name="one_odd_grant_of_a_zone"
            ),
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[("user", "="), ("department", "="), ("period", "&&")], name="one_odd_grant_of_a_department"
            ),
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("department__isnull", True),
                        ("kind", "zone_operator"),
                        ("zone__isnull", False),
                    ),
                    models.Q(
                        ("department__isnull", False),
                        ("kind", "auditor"),
                        ("zone__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="odd_grant_of_one_place",
            ),
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("period__isempty", False), ("period__lower_inf", False), ("period__upper_inf", False)
                ),
                name="odd_grant_has_an_end",
            ),
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(("by", models.F("user")), _negated=True), name="nobody_grants_to_themselves"
            ),
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason", ""), _negated=True), name="odd_grant_says_why"
            ),
        ),
        migrations.AddConstraint(
            model_name="oddgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("withdrawn_at__isnull", True), ("withdrawn_by__isnull", True)),
                    models.Q(
                        ("period__endswith", models.F("withdrawn_at")),
                        ("withdrawn_at__isnull", False),
                        ("withdrawn_by__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="withdrawn_grant_has_ended",
            ),
        ),
        migrations.AddConstraint(
            model_name="letter",
            constraint=models.UniqueConstraint(
                fields=("to", "kind", "invitation", "request", "comment", "grant"),
                name="one_letter_of_a_thing",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="letter",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("comment__isnull", True),
                        ("grant__isnull", True),
                        ("invitation__isnull", False),
                        ("kind__in", ["invited"]),
                        ("request__isnull", True),
                    ),
                    models.Q(
                        ("comment__isnull", True),
                        ("grant__isnull", True),
                        ("invitation__isnull", True),
                        (
                            "kind__in",
                            [
                                "to_decide",
                                "approved",
                                "refused",
                                "expired",
                            ],
                        ),
                        ("request__isnull", False),
                    ),
                    models.Q(
                        ("comment__isnull", False),
                        ("grant__isnull", True),
                        ("invitation__isnull", True),
                        ("kind__in", ["commented"]),
                        ("request__isnull", True),
                    ),
                    models.Q(
                        ("comment__isnull", True),
                        ("grant__isnull", False),
                        ("invitation__isnull", True),
                        (
                            "kind__in",
                            [
                                "grant_given",
                                "grant_ends",
                                "grant_over",
                            ],
                        ),
                        ("request__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="letter_about_one_thing",
            ),
        ),
        migrations.AlterUniqueTogether(
            name="zoneuserpermission",
            unique_together={("user", "permission", "content_object")},
        ),
        migrations.RunSQL(migrations.RunSQL.noop, "DELETE FROM ledger_delivery WHERE notice_id IS NULL"),
        migrations.RunSQL(STAYS, STAYS_BACK),
    ]
