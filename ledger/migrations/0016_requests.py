"""What people ask each other for. A verdict carries the author of its request by foreign key, so that nobody decides
their own, and what has been decided or answered stays so."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import ledger.vocabulary

GUARDS = """
ALTER TABLE ledger_requestverdict ADD CONSTRAINT verdict_knows_who_asked FOREIGN KEY (request_id, asked_by_id)
  REFERENCES ledger_projectrequest (id, by_id) ON UPDATE RESTRICT ON DELETE RESTRICT;
CREATE FUNCTION ledger_stays_decided() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% % is % and stays so', TG_ARGV[0], OLD.id, OLD.state
    USING ERRCODE = 'check_violation', CONSTRAINT = TG_ARGV[0] || '_stays_decided';
END $$;
CREATE TRIGGER stays_decided BEFORE UPDATE OF state ON ledger_projectrequest FOR EACH ROW
  WHEN (OLD.state <> 'open' AND OLD.state <> NEW.state) EXECUTE FUNCTION ledger_stays_decided('request');
CREATE TRIGGER stays_decided BEFORE UPDATE OF state ON ledger_invitation FOR EACH ROW
  WHEN (OLD.state <> 'open' AND OLD.state <> NEW.state) EXECUTE FUNCTION ledger_stays_decided('invitation');
"""
GUARDS_BACK = """
DROP TRIGGER stays_decided ON ledger_invitation;
DROP TRIGGER stays_decided ON ledger_projectrequest;
DROP FUNCTION ledger_stays_decided();
ALTER TABLE ledger_requestverdict DROP CONSTRAINT verdict_knows_who_asked;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0015_quota"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProjectRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.RequestKind["QUOTA"], ledger.vocabulary.RequestKind["QUOTA"]),
                            (ledger.vocabulary.RequestKind["EXTENSION"], ledger.vocabulary.RequestKind["EXTENSION"]),
                            (
                                ledger.vocabulary.RequestKind["NEW_PROJECT"],
                                ledger.vocabulary.RequestKind["NEW_PROJECT"],
                            ),
                            (ledger.vocabulary.RequestKind["JOIN"], ledger.vocabulary.RequestKind["JOIN"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("details", models.JSONField()),
                ("reason", models.CharField(max_length=500)),
                ("needs", models.PositiveSmallIntegerField(default=1)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.RequestState["OPEN"], ledger.vocabulary.RequestState["OPEN"]),
                            (ledger.vocabulary.RequestState["APPROVED"], ledger.vocabulary.RequestState["APPROVED"]),
                            (ledger.vocabulary.RequestState["REFUSED"], ledger.vocabulary.RequestState["REFUSED"]),
                            (ledger.vocabulary.RequestState["WITHDRAWN"], ledger.vocabulary.RequestState["WITHDRAWN"]),
                            (ledger.vocabulary.RequestState["EXPIRED"], ledger.vocabulary.RequestState["EXPIRED"]),
                        ],
                        default=ledger.vocabulary.RequestState["OPEN"],
                        max_length=16,
                    ),
                ),
                ("made_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("before", models.JSONField(null=True)),
                (
                    "by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="requests",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="requests",
                        to="ledger.project",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RequestComment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.CharField(max_length=2000)),
                ("at", models.DateTimeField()),
                (
                    "by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="comments", to="ledger.projectrequest"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RequestVerdict",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("approves", models.BooleanField()),
                ("reason", models.CharField(default="", max_length=500)),
                ("at", models.DateTimeField()),
                (
                    "asked_by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="verdicts",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="verdicts",
                        to="ledger.projectrequest",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.ProjectRole["OWNER"], ledger.vocabulary.ProjectRole["OWNER"]),
                            (ledger.vocabulary.ProjectRole["MANAGER"], ledger.vocabulary.ProjectRole["MANAGER"]),
                            (ledger.vocabulary.ProjectRole["MEMBER"], ledger.vocabulary.ProjectRole["MEMBER"]),
                            (ledger.vocabulary.ProjectRole["VIEWER"], ledger.vocabulary.ProjectRole["VIEWER"]),
                        ],
                        max_length=16,
                    ),
                ),
                ("reason", models.CharField(default="", max_length=500)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            (ledger.vocabulary.InvitationState["OPEN"], ledger.vocabulary.InvitationState["OPEN"]),
                            (
                                ledger.vocabulary.InvitationState["ACCEPTED"],
                                ledger.vocabulary.InvitationState["ACCEPTED"],
                            ),
                            (
                                ledger.vocabulary.InvitationState["DECLINED"],
                                ledger.vocabulary.InvitationState["DECLINED"],
                            ),
                            (
                                ledger.vocabulary.InvitationState["WITHDRAWN"],
                                ledger.vocabulary.InvitationState["WITHDRAWN"],
                            ),
                        ],
                        default=ledger.vocabulary.InvitationState["OPEN"],
                        max_length=16,
                    ),
                ),
                ("made_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("answered_at", models.DateTimeField(null=True)),
                (
                    "by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="invitations", to="ledger.project"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invitations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", ledger.vocabulary.InvitationState["OPEN"])),
                        fields=("project", "user"),
                        name="one_open_invitation",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    ledger.vocabulary.InvitationState["OPEN"],
                                    ledger.vocabulary.InvitationState["ACCEPTED"],
                                    ledger.vocabulary.InvitationState["DECLINED"],
                                    ledger.vocabulary.InvitationState["WITHDRAWN"],
                                ],
                            )
                        ),
                        name="invitation_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "role__in",
                                [
                                    ledger.vocabulary.ProjectRole["MANAGER"],
                                    ledger.vocabulary.ProjectRole["MEMBER"],
                                    ledger.vocabulary.ProjectRole["VIEWER"],
                                ],
                            )
                        ),
                        name="invitation_not_as_owner",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("answered_at__isnull", True), ("state", ledger.vocabulary.InvitationState["OPEN"])
                            ),
                            models.Q(
                                models.Q(("state", ledger.vocabulary.InvitationState["OPEN"]), _negated=True),
                                ("answered_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="invitation_answered_at",
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="projectrequest",
            index=models.Index(
                condition=models.Q(("state", ledger.vocabulary.RequestState["OPEN"])),
                fields=["-id"],
                name="request_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            ledger.vocabulary.RequestKind["QUOTA"],
                            ledger.vocabulary.RequestKind["EXTENSION"],
                            ledger.vocabulary.RequestKind["NEW_PROJECT"],
                            ledger.vocabulary.RequestKind["JOIN"],
                        ],
                    )
                ),
                name="request_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            ledger.vocabulary.RequestState["OPEN"],
                            ledger.vocabulary.RequestState["APPROVED"],
                            ledger.vocabulary.RequestState["REFUSED"],
                            ledger.vocabulary.RequestState["WITHDRAWN"],
                            ledger.vocabulary.RequestState["EXPIRED"],
                        ],
                    )
                ),
                name="request_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("needs__gte", 1), ("needs__lte", 2)), name="request_needs_one_or_two"
            ),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind", ledger.vocabulary.RequestKind["NEW_PROJECT"]), ("project__isnull", False), _connector="OR"
                ),
                name="request_about_a_project",
            ),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("decided_at__isnull", True), ("state", ledger.vocabulary.RequestState["OPEN"])),
                    models.Q(
                        models.Q(("state", ledger.vocabulary.RequestState["OPEN"]), _negated=True),
                        ("decided_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="request_decided_at",
            ),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.UniqueConstraint(fields=("id", "by"), name="request_with_its_author"),
        ),
        migrations.AddConstraint(
            model_name="projectrequest",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("kind", ledger.vocabulary.RequestKind["JOIN"]), ("state", ledger.vocabulary.RequestState["OPEN"])
                ),
                fields=("project", "by"),
                name="one_open_request_to_join",
            ),
        ),
        migrations.AddConstraint(
            model_name="requestcomment",
            constraint=models.CheckConstraint(
                condition=models.Q(("text", ""), _negated=True), name="comment_says_something"
            ),
        ),
        migrations.AddConstraint(
            model_name="requestverdict",
            constraint=models.UniqueConstraint(fields=("request", "by"), name="one_verdict_a_person"),
        ),
        migrations.AddConstraint(
            model_name="requestverdict",
            constraint=models.CheckConstraint(
                condition=models.Q(("by", models.F("asked_by")), _negated=True), name="nobody_approves_their_own"
            ),
        ),
        migrations.RunSQL(GUARDS, GUARDS_BACK),
    ]
