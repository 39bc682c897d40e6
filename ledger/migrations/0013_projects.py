"""What a project says of itself, what of a grant is the project's own, and a guard: a project has exactly one owner,
who is among its members. It is looked at when a transaction ends, so that a project and its owner, or a hand-over, may
take several statements."""

from django.db import migrations, models
from django.db.models import F, Q

OWNER = """
CREATE FUNCTION ledger_check_owner() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE p bigint;
BEGIN
  IF TG_TABLE_NAME = 'ledger_project' THEN p := NEW.id;
  ELSIF TG_OP = 'INSERT' THEN p := NEW.project_id;
  ELSE p := OLD.project_id;
  END IF;
  IF EXISTS (SELECT 1 FROM ledger_project x WHERE x.id = p AND NOT EXISTS (SELECT 1 FROM ledger_membership m
      WHERE m.project_id = x.id AND m.user_id = x.owner_id AND m.role = 'owner')) THEN
    RAISE EXCEPTION 'the owner of project % is not among its members as its owner', p
      USING ERRCODE = 'check_violation', CONSTRAINT = 'project_has_its_owner';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER project_has_its_owner AFTER INSERT OR UPDATE OF owner_id ON ledger_project
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_check_owner();
CREATE CONSTRAINT TRIGGER project_has_its_owner AFTER INSERT OR UPDATE OR DELETE ON ledger_membership
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_check_owner();
"""
OWNER_BACK = """
DROP TRIGGER project_has_its_owner ON ledger_membership;
DROP TRIGGER project_has_its_owner ON ledger_project;
DROP FUNCTION ledger_check_owner();
"""
# Projects from before: their owner becomes a member, and who else was called owner a manager.
MEND = """
UPDATE ledger_membership m SET role = 'manager' FROM ledger_project p
  WHERE p.id = m.project_id AND m.role = 'owner' AND m.user_id <> p.owner_id;
INSERT INTO ledger_membership (project_id, user_id, role) SELECT id, owner_id, 'owner' FROM ledger_project
  ON CONFLICT (project_id, user_id) DO UPDATE SET role = 'owner';
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0012_fewer_indexes")]
    operations = [
        migrations.AddField("project", "purpose", models.TextField(blank=True, default="")),
        migrations.AddField("project", "cost_centre", models.CharField(blank=True, default="", max_length=64)),
        migrations.AddField("quotagrant", "guaranteed", models.BigIntegerField(default=0)),
        migrations.AddField("quotagrant", "weight", models.PositiveSmallIntegerField(default=1)),
        migrations.AddConstraint(
            "quotagrant",
            models.CheckConstraint(
                condition=Q(guaranteed__gte=0, guaranteed__lte=F("amount")), name="guarantee_within_grant"
            ),
        ),
        migrations.AddConstraint(
            "quotagrant",
            models.CheckConstraint(condition=Q(weight__gte=1, weight__lte=1000), name="grant_weight_1_to_1000"),
        ),
        migrations.RunSQL(MEND, migrations.RunSQL.noop),
        migrations.AddConstraint(
            "membership",
            models.UniqueConstraint(condition=Q(role="owner"), fields=["project"], name="one_owner_a_project"),
        ),
        migrations.RunSQL(OWNER, OWNER_BACK),
    ]
