"""Budgets that renew: with `renews` a budget counts from the start of the present calendar month, quarter or year of
UTC, by the clock at each look; no row changes at the boundary and nothing has to run then.

What runs over a boundary counts on each side for the time that falls there. A job sets its whole walltime aside in the
period in which it starts; from the boundary on, what is left of it is set aside in the new period. That was within the
old amount, so a period never begins above the same amount. A bound that a row keeps stays good over the boundary: the
use only falls there.

The functions that count `since` are patched where they say it, whatever else is in them.
"""

from django.db import migrations, models
from django.db.models import Q

CHOICES = [("", ""), ("month", "month"), ("quarter", "quarter"), ("year", "year")]
SINCE = """
CREATE FUNCTION ledger_counted_since(counted_from timestamptz, during tstzrange, renews text) RETURNS timestamptz
  LANGUAGE sql AS $$
  SELECT greatest(coalesce(counted_from, lower(during)),
    CASE WHEN renews <> '' THEN date_trunc(renews, clock_timestamp(), 'UTC') END)
$$;
"""
SINCE_BACK = "DROP FUNCTION ledger_counted_since(timestamptz, tstzrange, text);"
COUNTING = ("ledger_take_quota", "ledger_take_ceilings", "ledger_check_move")
PLAIN = (r"coalesce\((\w*\.?)counted_from, lower\(\1period\)\)", r"coalesce(\1counted_from, lower(\1period))")
RENEWED = (
    r"ledger_counted_since\((\w*\.?)counted_from, \1period, \1renews\)",
    r"ledger_counted_since(\1counted_from, \1period, \1renews)",
)
# of an allocation, the seconds that count since an instant; while it is open, at least to the end of its walltime
WHOLE = (
    "greatest(ledger_seconds(coalesce(a.closing_at, clock_timestamp()) - lower(a.period)), j.walltime_s)",
    "ledger_seconds(a.closing_at - lower(a.period))",
)
SINCE_THEN = (
    "greatest(0, ledger_seconds(greatest(coalesce(a.closing_at, clock_timestamp()), lower(a.period) + j.walltime_s"
    " * interval '1 second') - greatest(lower(a.period), since)))",
    "greatest(0, ledger_seconds(a.closing_at - greatest(lower(a.period), since)))",
)
FORGET = "project_id, resource, model, period, counted_from", "department_id, resource, period, counted_from"


# the way back: what counted one period counts all of them again
UNKNOWN = "".join(
    f"UPDATE ledger_{table} SET used_at_most = NULL, bound_until = NULL WHERE renews <> '';"
    for table in ("quotagrant", "departmentceiling")
)


def _patch(names: tuple[str, ...], change: str) -> str:
    """Of each of these functions, put the changed text in place of its own; an error where that is the same."""
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"""
DO $patch$ DECLARE f record; said text; BEGIN
  FOR f IN SELECT oid, proname FROM pg_proc WHERE proname IN ({quoted}) LOOP
    said := pg_get_functiondef(f.oid);
    IF {change} = said THEN RAISE EXCEPTION '% does not say what is to be changed', f.proname; END IF;
    EXECUTE {change};
  END LOOP;
END $patch$;
"""


def _counting(old: tuple[str, str], new: tuple[str, str]) -> str:
    return _patch(COUNTING, f"regexp_replace(said, E'{_escaped(old[0])}', E'{_escaped(new[1])}', 'g')")


def _clipped(old: tuple[str, str], new: tuple[str, str]) -> str:
    inner = f"replace(said, $t${old[0]}$t$, $t${new[0]}$t$)"
    return _patch(("ledger_projects_use",), f"replace({inner}, $t${old[1]}$t$, $t${new[1]}$t$)")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\")


def _forgetting(more: str) -> str:
    grants, ceilings = (f"{columns}{more}" for columns in FORGET)
    return f"""
DROP TRIGGER forget_quota_bound ON ledger_quotagrant; DROP TRIGGER forget_ceiling_bound ON ledger_departmentceiling;
CREATE TRIGGER forget_quota_bound BEFORE UPDATE OF {grants}
  ON ledger_quotagrant FOR EACH ROW EXECUTE FUNCTION ledger_forget_bound();
CREATE TRIGGER forget_ceiling_bound BEFORE UPDATE OF {ceilings}
  ON ledger_departmentceiling FOR EACH ROW EXECUTE FUNCTION ledger_forget_bound();
"""


def _renews() -> "models.CharField[str, str]":
    return models.CharField(blank=True, choices=CHOICES, default="", max_length=8)


def _only_budgets(name: str) -> models.CheckConstraint:
    known = Q(renews__in=["month", "quarter", "year"], resource="card_milli_s")
    return models.CheckConstraint(name=name, condition=Q(renews="") | known)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0021_job_zones")]
    operations = [
        migrations.AddField("quotagrant", "renews", _renews()),
        migrations.AddField("departmentceiling", "renews", _renews()),
        migrations.AddConstraint("quotagrant", _only_budgets("grant_that_renews_is_a_budget")),
        migrations.AddConstraint("departmentceiling", _only_budgets("ceiling_that_renews_is_a_budget")),
        migrations.RunSQL(SINCE, SINCE_BACK),
        migrations.RunSQL(_counting(PLAIN, RENEWED), _counting(RENEWED, PLAIN)),
        migrations.RunSQL(_clipped(WHOLE, SINCE_THEN), _clipped(SINCE_THEN, WHOLE)),
        migrations.RunSQL(_forgetting(", renews"), _forgetting("")),
        migrations.RunSQL(migrations.RunSQL.noop, UNKNOWN),
    ]
