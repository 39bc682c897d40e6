"""The guards of allocations and shares look at all rows of a statement at once; they refuse what they refused before, in
the same order: by row, and of a row the first rule that it breaks.

The quota is worked out from an index of the open shares, once a statement and resource: of an allocation's own resources
when allocations come, of its cards' when shares come.
"""

from importlib import import_module

from django.db import migrations

before = import_module("ledger.migrations.0002_guards")

# the rows that come are few and the tables long: each is looked up, no table is read through
LOOK_UP = "SET enable_hashjoin = off SET enable_mergejoin = off"
# Of each job the first row that breaks a rule; of all rows the first is told, and in DETAIL, as {job: rule}, all jobs
# that would be refused as well if they came alone. Whether a node's CPU and memory suffice depends on the others.
FIRST = """, broken AS (SELECT DISTINCT ON (job_id) * FROM checked WHERE rule IS NOT NULL ORDER BY job_id, id)
  SELECT b.*, (SELECT jsonb_object_agg(job_id, rule) FROM broken WHERE job_id IS NOT NULL
      AND rule NOT IN ('node_cpu_not_oversold', 'node_memory_not_oversold')) AS alone
    INTO bad FROM broken b ORDER BY id LIMIT 1;"""
REFUSED = "ERRCODE = 'check_violation', CONSTRAINT = bad.rule, DETAIL = coalesce(bad.alone::text, '')"
TODAY = "(clock_timestamp() AT TIME ZONE 'UTC')::date"
ALLOCATIONS = f"""
CREATE FUNCTION ledger_guard_allocations() RETURNS trigger LANGUAGE plpgsql {LOOK_UP} AS $$
DECLARE bad record;
BEGIN
  PERFORM 1 FROM ledger_project WHERE id = ANY (ARRAY(SELECT project_id FROM added)) ORDER BY id FOR NO KEY UPDATE;
  PERFORM 1 FROM ledger_node WHERE id = ANY (ARRAY(SELECT node_id FROM added)) ORDER BY id FOR NO KEY UPDATE;
  WITH checked AS (
    SELECT x.id, x.attempt_id, x.form, n.hostname, n.state, p.slug, j.id AS job_id, CASE
      WHEN j.project_id <> x.project_id THEN 'allocation_of_its_project'
      WHEN t.state IN ('stopping', 'ended') THEN 'attempt_is_live'
      WHEN j.simulated <> n.simulated THEN 'real_and_simulated_apart'
      WHEN n.state <> 'up' THEN 'node_is_up'
      WHEN p.state <> 'active' OR p.starts_on > {TODAY} OR p.ends_on < {TODAY} THEN 'project_takes_work'
      WHEN NOT EXISTS (SELECT 1 FROM ledger_nodezone nz JOIN ledger_zone z ON z.id = nz.zone_id
        WHERE nz.node_id = x.node_id AND nz.period @> clock_timestamp() AND x.form = ANY (z.forms)
        AND z.id IS NOT DISTINCT FROM x.zone_then_id) THEN 'zone_takes_form'
      WHEN EXISTS (SELECT 1 FROM ledger_hold h WHERE h.node_id = x.node_id
        AND h.period && tstzrange(lower(x.period), clock_timestamp(), '[]')) THEN 'node_not_held'
      WHEN used.cpu_milli > n.cpu_milli THEN 'node_cpu_not_oversold'
      WHEN used.host_memory_mib > n.host_memory_mib THEN 'node_memory_not_oversold'
      END AS rule
    FROM added x LEFT JOIN ledger_node n ON n.id = x.node_id LEFT JOIN ledger_project p ON p.id = x.project_id
      LEFT JOIN ledger_attempt t ON t.id = x.attempt_id LEFT JOIN ledger_job j ON j.id = t.job_id
      CROSS JOIN LATERAL (SELECT sum(a.cpu_milli) AS cpu_milli, sum(a.host_memory_mib) AS host_memory_mib
        FROM ledger_allocation a WHERE a.node_id = x.node_id AND upper_inf(a.period)) AS used
  ){FIRST}
  IF FOUND THEN
    RAISE EXCEPTION USING {REFUSED}, MESSAGE = CASE bad.rule
      WHEN 'allocation_of_its_project' THEN 'the allocation names another project than its job'
      WHEN 'attempt_is_live' THEN format('attempt %s is over', bad.attempt_id)
      WHEN 'real_and_simulated_apart' THEN format('real work and simulated nodes never meet: node %s', bad.hostname)
      WHEN 'node_is_up' THEN format('node %s is %s', bad.hostname, bad.state)
      WHEN 'project_takes_work' THEN format('project %s takes no new work', bad.slug)
      WHEN 'zone_takes_form' THEN format('the zone of node %s does not take the form %s', bad.hostname, bad.form)
      WHEN 'node_not_held' THEN format('node %s is held', bad.hostname)
      WHEN 'node_cpu_not_oversold' THEN format('the CPU of node %s is taken', bad.hostname)
      ELSE format('the memory of node %s is taken', bad.hostname) END;
  END IF;
  RETURN NULL;
END $$;
DROP TRIGGER guard_allocation ON ledger_allocation;
CREATE TRIGGER guard_allocation AFTER INSERT ON ledger_allocation
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ledger_guard_allocations();
DROP FUNCTION ledger_guard_allocation();
"""
SHARES = f"""
CREATE FUNCTION ledger_guard_shares() RETURNS trigger LANGUAGE plpgsql {LOOK_UP} AS $$
DECLARE bad record;
BEGIN
  PERFORM 1 FROM ledger_node WHERE id = ANY (ARRAY(SELECT node_id FROM added)) ORDER BY id FOR NO KEY UPDATE;
  WITH checked AS (
    SELECT x.id, x.card_id, x.allocation_id, t.job_id, CASE
      WHEN (a.form = 'block' AND (s.block_id IS NULL OR x.block_id IS DISTINCT FROM s.block_id))
        OR (a.form <> 'block' AND x.block_id IS NOT NULL) THEN 'block_names_its_block'
      WHEN NOT upper_inf(x.period) THEN 'allocation_is_open'  -- its allocation's period, by foreign key
      WHEN EXISTS (SELECT 1 FROM ledger_hold h WHERE h.card_id = x.card_id
        AND h.period && tstzrange(lower(x.period), clock_timestamp(), '[]')) THEN 'card_not_held'
      WHEN EXISTS (SELECT 1 FROM ledger_hold h WHERE h.node_id = x.node_id
        AND h.period && tstzrange(lower(x.period), clock_timestamp(), '[]')) THEN 'card_not_held'
      WHEN upper_inf(s.period) IS NOT TRUE THEN 'seat_is_taken_now'
      END AS rule
    FROM added x LEFT JOIN ledger_allocation a ON a.id = x.allocation_id LEFT JOIN ledger_cardseat s ON s.id = x.seat_id
      LEFT JOIN ledger_attempt t ON t.id = a.attempt_id
  ){FIRST}
  IF FOUND THEN
    RAISE EXCEPTION USING {REFUSED}, MESSAGE = CASE bad.rule
      WHEN 'block_names_its_block' THEN
        'the shares of a block allocation, and no others, name the block of their seat'
      WHEN 'allocation_is_open' THEN format('allocation %s is closed', bad.allocation_id)
      WHEN 'card_not_held' THEN format('card %s is held', bad.card_id)
      ELSE format('card %s is not in that seat now', bad.card_id) END;
  END IF;
  RETURN NULL;
END $$;
DROP TRIGGER guard_share ON ledger_cardshare;
CREATE TRIGGER guard_share AFTER INSERT ON ledger_cardshare
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ledger_guard_shares();
DROP FUNCTION ledger_guard_share();
"""


def _between(text: str, first: str, last: str) -> str:
    """Statements of the migration that this one replaces."""
    return text[text.index(first) : text.index(last) + len(last)]


ALLOCATIONS_BACK = (
    "DROP TRIGGER guard_allocation ON ledger_allocation; DROP FUNCTION ledger_guard_allocations();"
    + _between(
        before.GUARDS, "CREATE FUNCTION ledger_guard_allocation()", "EXECUTE FUNCTION ledger_guard_allocation();"
    )
)
SHARES_BACK = "DROP TRIGGER guard_share ON ledger_cardshare; DROP FUNCTION ledger_guard_shares();" + _between(
    before.GUARDS, "CREATE FUNCTION ledger_guard_share()", "EXECUTE FUNCTION ledger_guard_share();"
)

# A share within its card that is as large as the card is all of it, by share_memory_on_card and share_memory_is_its_sum.
# Compared as numbers and text, or the planner looks every full card of the fleet up in the exclusion constraints' indexes.
FULL = "x.memory_mib = c.memory_mib AND x.compute::text = '{[0,1000)}'"
COVER = f"""
CREATE OR REPLACE FUNCTION ledger_check_cover() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE missing integer; f text; open_since timestamptz;
BEGIN
  SELECT form, lower(period) INTO f, open_since FROM ledger_allocation WHERE id = NEW.id;
  SELECT count(*) INTO missing FROM ledger_cardseat s JOIN ledger_card c ON c.id = s.card_id
    WHERE s.node_id = NEW.node_id AND s.period @> open_since
      AND (f = 'whole' OR s.block_id IN (SELECT block_id FROM ledger_cardshare WHERE allocation_id = NEW.id))
      AND NOT EXISTS (SELECT 1 FROM ledger_cardshare x WHERE x.allocation_id = NEW.id AND x.seat_id = s.id
        AND (f = 'whole' OR x.block_id = s.block_id) AND {FULL});
  IF f <> 'whole' THEN
    missing := missing + (SELECT count(*) FROM ledger_cardshare WHERE allocation_id = NEW.id AND block_id IS NULL);
    IF NOT EXISTS (SELECT 1 FROM ledger_cardshare WHERE allocation_id = NEW.id) THEN missing := missing + 1; END IF;
  END IF;
  IF missing > 0 THEN
    RAISE EXCEPTION 'allocation % (%) leaves % cards uncovered', NEW.id, f, missing
      USING ERRCODE = 'check_violation', CONSTRAINT = 'form_covers_its_cards';
  END IF;
  RETURN NULL;
END $$;
"""
COVER_BACK = (
    _between(before.GUARDS, "CREATE FUNCTION ledger_check_cover()", "RETURN NULL;\nEND $$;\nCREATE CONSTRAINT")
    .removesuffix("CREATE CONSTRAINT")
    .replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
)

# Both indexes hold all that the sums need; the model of the first says only what it is by.
QUOTA = """
DROP INDEX allocation_live_by_project;
CREATE INDEX allocation_live_by_project ON ledger_allocation (project_id, id)
  INCLUDE (cpu_milli, host_memory_mib, form) WHERE upper_inf(period);
CREATE INDEX share_live_by_allocation ON ledger_cardshare (allocation_id) INCLUDE (memory_mib, card_memory_mib)
  WHERE upper_inf(period);
CREATE OR REPLACE FUNCTION ledger_quota_used(p bigint, r text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT CASE r
    WHEN 'card_milli' THEN (SELECT coalesce(sum(((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1)
        / s.card_memory_mib)::integer), 0) FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id
        WHERE a.project_id = p AND upper_inf(a.period) AND upper_inf(s.period))
    WHEN 'card_memory_mib' THEN (SELECT coalesce(sum(s.memory_mib), 0) FROM ledger_allocation a
        JOIN ledger_cardshare s ON s.allocation_id = a.id
        WHERE a.project_id = p AND upper_inf(a.period) AND upper_inf(s.period))
    WHEN 'whole_nodes' THEN (SELECT count(*) FROM ledger_allocation a
        WHERE a.project_id = p AND upper_inf(a.period) AND a.form = 'whole')
    WHEN 'cpu_milli' THEN (SELECT coalesce(sum(a.cpu_milli), 0)::bigint FROM ledger_allocation a
        WHERE a.project_id = p AND upper_inf(a.period))
    WHEN 'host_memory_mib' THEN (SELECT coalesce(sum(a.host_memory_mib), 0)::bigint FROM ledger_allocation a
        WHERE a.project_id = p AND upper_inf(a.period))
  END
$$;
CREATE OR REPLACE FUNCTION ledger_check_quota() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE g record; used bigint; projects bigint[];
BEGIN
  IF TG_TABLE_NAME = 'ledger_cardshare' THEN
    projects := ARRAY(SELECT DISTINCT (SELECT a.project_id FROM ledger_allocation a WHERE a.id = x.allocation_id)
      FROM added x);
  ELSE
    projects := ARRAY(SELECT DISTINCT x.project_id FROM added x);
  END IF;
  FOR g IN SELECT q.project_id, q.resource, q.amount FROM ledger_quotagrant q
      WHERE q.project_id = ANY (projects) AND q.resource = ANY (TG_ARGV) AND q.period @> clock_timestamp()
      ORDER BY q.project_id LOOP
    PERFORM 1 FROM ledger_project WHERE id = g.project_id FOR NO KEY UPDATE;
    used := ledger_quota_used(g.project_id, g.resource);
    IF used > g.amount THEN
      RAISE EXCEPTION 'quota of project %: % of % % would be used', g.project_id, used, g.amount, g.resource
        USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_never_exceeded';
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
DROP TRIGGER quota_never_exceeded ON ledger_allocation;
DROP TRIGGER quota_never_exceeded ON ledger_cardshare;
CREATE TRIGGER quota_never_exceeded AFTER INSERT ON ledger_allocation REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_check_quota('whole_nodes', 'cpu_milli', 'host_memory_mib');
CREATE TRIGGER quota_never_exceeded AFTER INSERT ON ledger_cardshare REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_check_quota('card_milli', 'card_memory_mib');
"""
QUOTA_BACK = (
    "DROP INDEX share_live_by_allocation; DROP INDEX allocation_live_by_project;"
    "CREATE INDEX allocation_live_by_project ON ledger_allocation (project_id) WHERE upper_inf(period);"
    + before.QUOTA_BACK
    + before.QUOTA
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0008_changes")]
    operations = [
        migrations.RunSQL(ALLOCATIONS, ALLOCATIONS_BACK),
        migrations.RunSQL(SHARES, SHARES_BACK),
        migrations.RunSQL(COVER, COVER_BACK),
        migrations.RunSQL(QUOTA, QUOTA_BACK),
    ]
