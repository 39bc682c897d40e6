"""What plain constraints can't say: composite foreign keys, transitions, guards, the quota, the audit's own columns."""

from django.db import migrations

COMPOSITE_KEYS = """
ALTER TABLE ledger_cardshare
  ADD CONSTRAINT share_follows_allocation FOREIGN KEY (allocation_id, node_id, period)
    REFERENCES ledger_allocation (id, node_id, period) ON UPDATE CASCADE ON DELETE RESTRICT,
  ADD CONSTRAINT share_on_its_seat FOREIGN KEY (seat_id, node_id, card_id)
    REFERENCES ledger_cardseat (id, node_id, card_id) ON UPDATE RESTRICT ON DELETE RESTRICT,
  ADD CONSTRAINT share_knows_card_memory FOREIGN KEY (card_id, card_memory_mib)
    REFERENCES ledger_card (id, memory_mib) ON UPDATE RESTRICT ON DELETE RESTRICT,
  ADD CONSTRAINT share_memory_on_card
    CHECK (NOT isempty(memory) AND memory <@ int4multirange(int4range(0, card_memory_mib))),
  ADD CONSTRAINT share_compute_on_card CHECK (compute <@ int4multirange(int4range(0, 1000)));
ALTER TABLE ledger_cardseat
  ADD CONSTRAINT seat_block_on_its_node FOREIGN KEY (block_id, node_id) REFERENCES ledger_block (id, node_id);
CREATE FUNCTION ledger_multirange_size(m int4multirange) RETURNS integer LANGUAGE sql IMMUTABLE STRICT AS
  $$ SELECT coalesce(sum(upper(r) - lower(r)), 0)::integer FROM unnest(m) AS r $$;
ALTER TABLE ledger_cardshare
  ADD CONSTRAINT share_memory_is_its_sum CHECK (memory_mib = ledger_multirange_size(memory));
"""
COMPOSITE_KEYS_BACK = """
ALTER TABLE ledger_cardshare DROP CONSTRAINT share_memory_is_its_sum, DROP CONSTRAINT share_compute_on_card,
  DROP CONSTRAINT share_memory_on_card, DROP CONSTRAINT share_knows_card_memory, DROP CONSTRAINT share_on_its_seat,
  DROP CONSTRAINT share_follows_allocation;
ALTER TABLE ledger_cardseat DROP CONSTRAINT seat_block_on_its_node;
DROP FUNCTION ledger_multirange_size(int4multirange);
"""

MOVES = {
    "job": "queued>starting queued>cancelled queued>failed starting>running starting>stopping running>stopping "
    "stopping>queued stopping>succeeded stopping>failed stopping>cancelled stopping>preempted",
    "attempt": "starting>running starting>unknown starting>stopping running>unknown running>stopping "
    "unknown>running unknown>starting unknown>stopping stopping>ended",
    "allocation": "opening>active opening>closing active>closing closing>closed",
    "command": "pending>done pending>refused",
    "project": "active>ending ending>active ending>ended active>ended",
}
ROWS = [(entity, *move.split(">")) for entity, moves in MOVES.items() for move in moves.split()]
TRANSITIONS = (
    "INSERT INTO ledger_statetransition (entity, old, new) VALUES "
    + ", ".join(f"('{e}', '{o}', '{n}')" for e, o, n in ROWS)
    + """;
CREATE FUNCTION ledger_check_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state IS DISTINCT FROM OLD.state AND NOT EXISTS (
      SELECT 1 FROM ledger_statetransition t WHERE t.entity = TG_ARGV[0] AND t.old = OLD.state AND t.new = NEW.state) THEN
    RAISE EXCEPTION '% % may not go from % to %', TG_ARGV[0], OLD.id, OLD.state, NEW.state
      USING ERRCODE = 'check_violation', CONSTRAINT = 'legal_transition';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER legal_transition BEFORE UPDATE OF state ON ledger_job
  FOR EACH ROW EXECUTE FUNCTION ledger_check_transition('job');
CREATE TRIGGER legal_transition BEFORE UPDATE OF state ON ledger_attempt
  FOR EACH ROW EXECUTE FUNCTION ledger_check_transition('attempt');
CREATE TRIGGER legal_transition BEFORE UPDATE OF state ON ledger_allocation
  FOR EACH ROW EXECUTE FUNCTION ledger_check_transition('allocation');
CREATE TRIGGER legal_transition BEFORE UPDATE OF state ON ledger_project
  FOR EACH ROW EXECUTE FUNCTION ledger_check_transition('project');
CREATE SEQUENCE ledger_fence;
"""
)
TRANSITIONS_BACK = """
DROP SEQUENCE ledger_fence;
DROP TRIGGER legal_transition ON ledger_project; DROP TRIGGER legal_transition ON ledger_allocation;
DROP TRIGGER legal_transition ON ledger_attempt; DROP TRIGGER legal_transition ON ledger_job;
DROP FUNCTION ledger_check_transition();
DELETE FROM ledger_statetransition;
"""

GUARDS = """
CREATE FUNCTION ledger_guard_allocation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n record; j record; p record;
BEGIN
  SELECT * INTO p FROM ledger_project WHERE id = NEW.project_id FOR NO KEY UPDATE;
  SELECT * INTO n FROM ledger_node WHERE id = NEW.node_id FOR NO KEY UPDATE;
  SELECT job.simulated, job.project_id, a.state INTO j FROM ledger_attempt a JOIN ledger_job job ON job.id = a.job_id
    WHERE a.id = NEW.attempt_id;
  IF j.project_id <> NEW.project_id THEN
    RAISE EXCEPTION 'the allocation names another project than its job'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'allocation_of_its_project';
  END IF;
  IF j.state IN ('stopping', 'ended') THEN
    RAISE EXCEPTION 'attempt % is over', NEW.attempt_id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'attempt_is_live';
  END IF;
  IF j.simulated <> n.simulated THEN
    RAISE EXCEPTION 'real work and simulated nodes never meet: node %', n.hostname
      USING ERRCODE = 'check_violation', CONSTRAINT = 'real_and_simulated_apart';
  END IF;
  IF n.state <> 'up' THEN
    RAISE EXCEPTION 'node % is %', n.hostname, n.state
      USING ERRCODE = 'check_violation', CONSTRAINT = 'node_is_up';
  END IF;
  IF p.state <> 'active' OR p.starts_on > (clock_timestamp() AT TIME ZONE 'UTC')::date
      OR p.ends_on < (clock_timestamp() AT TIME ZONE 'UTC')::date THEN
    RAISE EXCEPTION 'project % takes no new work', p.slug
      USING ERRCODE = 'check_violation', CONSTRAINT = 'project_takes_work';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM ledger_nodezone nz JOIN ledger_zone z ON z.id = nz.zone_id
      WHERE nz.node_id = NEW.node_id AND nz.period @> clock_timestamp() AND NEW.form = ANY (z.forms)
      AND z.id IS NOT DISTINCT FROM NEW.zone_then_id) THEN
    RAISE EXCEPTION 'the zone of node % does not take the form %', n.hostname, NEW.form
      USING ERRCODE = 'check_violation', CONSTRAINT = 'zone_takes_form';
  END IF;
  IF EXISTS (SELECT 1 FROM ledger_hold h WHERE h.node_id = NEW.node_id
      AND h.period && tstzrange(lower(NEW.period), clock_timestamp(), '[]')) THEN
    RAISE EXCEPTION 'node % is held', n.hostname USING ERRCODE = 'check_violation', CONSTRAINT = 'node_not_held';
  END IF;
  IF (SELECT sum(a.cpu_milli) FROM ledger_allocation a WHERE a.node_id = NEW.node_id AND upper_inf(a.period))
        > n.cpu_milli THEN
    RAISE EXCEPTION 'the CPU of node % is taken', n.hostname
      USING ERRCODE = 'check_violation', CONSTRAINT = 'node_cpu_not_oversold';
  END IF;
  IF (SELECT sum(a.host_memory_mib) FROM ledger_allocation a WHERE a.node_id = NEW.node_id AND upper_inf(a.period))
        > n.host_memory_mib THEN
    RAISE EXCEPTION 'the memory of node % is taken', n.hostname
      USING ERRCODE = 'check_violation', CONSTRAINT = 'node_memory_not_oversold';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_allocation AFTER INSERT ON ledger_allocation
  FOR EACH ROW EXECUTE FUNCTION ledger_guard_allocation();

CREATE FUNCTION ledger_guard_share() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE f text; b bigint;
BEGIN
  PERFORM 1 FROM ledger_node WHERE id = NEW.node_id FOR NO KEY UPDATE;
  SELECT a.form, s.block_id INTO f, b FROM ledger_allocation a, ledger_cardseat s
    WHERE a.id = NEW.allocation_id AND s.id = NEW.seat_id;
  IF (f = 'block' AND (b IS NULL OR NEW.block_id IS DISTINCT FROM b)) OR (f <> 'block' AND NEW.block_id IS NOT NULL) THEN
    RAISE EXCEPTION 'the shares of a block allocation, and no others, name the block of their seat'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'block_names_its_block';
  END IF;
  IF NOT upper_inf(NEW.period) THEN  -- its allocation's period, by foreign key
    RAISE EXCEPTION 'allocation % is closed', NEW.allocation_id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'allocation_is_open';
  END IF;
  IF EXISTS (SELECT 1 FROM ledger_hold h WHERE (h.card_id = NEW.card_id OR h.node_id = NEW.node_id)
      AND h.period && tstzrange(lower(NEW.period), clock_timestamp(), '[]')) THEN
    RAISE EXCEPTION 'card % is held', NEW.card_id USING ERRCODE = 'check_violation', CONSTRAINT = 'card_not_held';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM ledger_cardseat s WHERE s.id = NEW.seat_id AND upper_inf(s.period)) THEN
    RAISE EXCEPTION 'card % is not in that seat now', NEW.card_id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'seat_is_taken_now';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_share AFTER INSERT ON ledger_cardshare FOR EACH ROW EXECUTE FUNCTION ledger_guard_share();

CREATE FUNCTION ledger_guard_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM ledger_node WHERE id = coalesce(NEW.node_id,
    (SELECT s.node_id FROM ledger_cardseat s WHERE s.card_id = NEW.card_id AND upper_inf(s.period)))
    FOR NO KEY UPDATE;
  RETURN NULL;
END $$;
CREATE TRIGGER guard_hold AFTER INSERT ON ledger_hold FOR EACH ROW EXECUTE FUNCTION ledger_guard_hold();

CREATE FUNCTION ledger_check_cover() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE missing integer; f text; open_since timestamptz;
BEGIN
  SELECT form, lower(period) INTO f, open_since FROM ledger_allocation WHERE id = NEW.id;
  IF f = 'whole' THEN
    SELECT count(*) INTO missing FROM ledger_cardseat s JOIN ledger_card c ON c.id = s.card_id
      WHERE s.node_id = NEW.node_id AND s.period @> open_since AND NOT EXISTS (
        SELECT 1 FROM ledger_cardshare x WHERE x.allocation_id = NEW.id AND x.seat_id = s.id
          AND x.memory = int4multirange(int4range(0, c.memory_mib))
          AND x.compute = int4multirange(int4range(0, 1000)));
  ELSE
    SELECT count(*) INTO missing FROM ledger_cardseat s JOIN ledger_card c ON c.id = s.card_id
      WHERE s.node_id = NEW.node_id AND s.period @> open_since
        AND s.block_id IN (SELECT block_id FROM ledger_cardshare WHERE allocation_id = NEW.id)
        AND NOT EXISTS (SELECT 1 FROM ledger_cardshare x WHERE x.allocation_id = NEW.id AND x.seat_id = s.id
          AND x.block_id = s.block_id AND x.memory = int4multirange(int4range(0, c.memory_mib))
          AND x.compute = int4multirange(int4range(0, 1000)));
    missing := missing + (SELECT count(*) FROM ledger_cardshare WHERE allocation_id = NEW.id AND block_id IS NULL);
    IF NOT EXISTS (SELECT 1 FROM ledger_cardshare WHERE allocation_id = NEW.id) THEN missing := missing + 1; END IF;
  END IF;
  IF missing > 0 THEN
    RAISE EXCEPTION 'allocation % (%) leaves % cards uncovered', NEW.id, f, missing
      USING ERRCODE = 'check_violation', CONSTRAINT = 'form_covers_its_cards';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER form_covers_its_cards AFTER INSERT ON ledger_allocation
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.form IN ('whole', 'block'))
  EXECUTE FUNCTION ledger_check_cover();
"""
GUARDS_BACK = """
DROP TRIGGER form_covers_its_cards ON ledger_allocation; DROP FUNCTION ledger_check_cover();
DROP TRIGGER guard_hold ON ledger_hold; DROP FUNCTION ledger_guard_hold();
DROP TRIGGER guard_share ON ledger_cardshare; DROP FUNCTION ledger_guard_share();
DROP TRIGGER guard_allocation ON ledger_allocation; DROP FUNCTION ledger_guard_allocation();
"""

QUOTA = """
CREATE FUNCTION ledger_quota_used(p bigint, r text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT CASE r
    WHEN 'card_milli' THEN (SELECT coalesce(sum((s.memory_mib::bigint * 1000 + s.card_memory_mib - 1)
        / s.card_memory_mib), 0) FROM ledger_allocation a JOIN ledger_cardshare s ON s.allocation_id = a.id
        WHERE a.project_id = p AND upper_inf(a.period))
    WHEN 'card_memory_mib' THEN (SELECT coalesce(sum(s.memory_mib::bigint), 0) FROM ledger_allocation a
        JOIN ledger_cardshare s ON s.allocation_id = a.id WHERE a.project_id = p AND upper_inf(a.period))
    WHEN 'whole_nodes' THEN (SELECT count(*) FROM ledger_allocation a
        WHERE a.project_id = p AND upper_inf(a.period) AND a.form = 'whole')
    WHEN 'cpu_milli' THEN (SELECT coalesce(sum(a.cpu_milli), 0)::bigint FROM ledger_allocation a
        WHERE a.project_id = p AND upper_inf(a.period))
    WHEN 'host_memory_mib' THEN (SELECT coalesce(sum(a.host_memory_mib), 0)::bigint FROM ledger_allocation a
        WHERE a.project_id = p AND upper_inf(a.period))
  END
$$;
CREATE FUNCTION ledger_check_quota() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE g record; used bigint;
BEGIN
  FOR g IN SELECT q.project_id, q.resource, q.amount FROM ledger_quotagrant q WHERE q.period @> clock_timestamp()
      AND q.project_id IN (SELECT a.project_id FROM ledger_allocation a WHERE a.id IN
        (SELECT CASE WHEN TG_TABLE_NAME = 'ledger_cardshare' THEN (to_jsonb(n) ->> 'allocation_id')::bigint
                     ELSE (to_jsonb(n) ->> 'id')::bigint END FROM added n)) ORDER BY q.project_id LOOP
    PERFORM 1 FROM ledger_project WHERE id = g.project_id FOR NO KEY UPDATE;
    used := ledger_quota_used(g.project_id, g.resource);
    IF used > g.amount THEN
      RAISE EXCEPTION 'quota of project %: % of % % would be used', g.project_id, used, g.amount, g.resource
        USING ERRCODE = 'check_violation', CONSTRAINT = 'quota_never_exceeded';
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER quota_never_exceeded AFTER INSERT ON ledger_allocation
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ledger_check_quota();
CREATE TRIGGER quota_never_exceeded AFTER INSERT ON ledger_cardshare
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ledger_check_quota();
"""
QUOTA_BACK = """
DROP TRIGGER quota_never_exceeded ON ledger_cardshare; DROP TRIGGER quota_never_exceeded ON ledger_allocation;
DROP FUNCTION ledger_check_quota(); DROP FUNCTION ledger_quota_used(bigint, text);
"""

VERSION = """
INSERT INTO ledger_inventoryversion (id, version) VALUES (1, 1);
CREATE FUNCTION ledger_bump_inventory() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ledger_inventoryversion SET version = version + 1 WHERE id = 1;
  RETURN NULL;
END $$;
""" + "".join(
    f"""CREATE TRIGGER bump_inventory AFTER INSERT OR DELETE OR UPDATE {columns}ON ledger_{table}
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_bump_inventory();
"""
    for table, columns in (
        (
            "node",
            "OF hostname, site, room, rack, leaf, cpu_milli, host_memory_mib, interconnect, network, labels, supply, "
            "managers, simulated, state ",
        ),
        ("nodezone", ""),
        ("zone", ""),
        ("card", ""),
        ("cardseat", ""),
        ("block", ""),
        ("link", ""),
    )
)
VERSION_BACK = (
    "".join(
        f"DROP TRIGGER bump_inventory ON ledger_{table};"
        for table in ("node", "nodezone", "zone", "card", "cardseat", "block", "link")
    )
    + "DROP FUNCTION ledger_bump_inventory(); DELETE FROM ledger_inventoryversion;"
)

AUDIT = """
ALTER TABLE ledger_auditevent ADD COLUMN txid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX audit_by_txid ON ledger_auditevent (txid);
"""
AUDIT_BACK = "ALTER TABLE ledger_auditevent DROP COLUMN txid;"


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]
    operations = [
        migrations.RunSQL(COMPOSITE_KEYS, COMPOSITE_KEYS_BACK),
        migrations.RunSQL(TRANSITIONS, TRANSITIONS_BACK),
        migrations.RunSQL(GUARDS, GUARDS_BACK),
        migrations.RunSQL(QUOTA, QUOTA_BACK),
        migrations.RunSQL(VERSION, VERSION_BACK),
        migrations.RunSQL(AUDIT, AUDIT_BACK),
    ]
