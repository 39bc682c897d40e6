"""Which transaction last changed what the scheduler's snapshot reads, so that it reads only what is new.

A late transaction has a small number, so a reader goes on from the oldest one that was still running when it last looked
(scheduler.changes). What only inserts and updates change carries the number in `changed_xid`; the rest, and rows that
are deleted, go on moving the inventory's version, after which everything is read anew.
"""

from django.db import migrations

NODE = (
    "hostname, site, room, rack, leaf, cpu_milli, host_memory_mib, interconnect, network, labels, supply, managers, "
    "simulated, state"
)
# table → columns whose change matters
STAMPED = {
    "allocation": "node_id, form, cpu_milli, host_memory_mib, period",
    "node": NODE,
    "nodezone": "node_id, zone_id, period",
    "cardseat": "card_id, node_id, slot, block_id, period",
}
STAMPS = """
CREATE FUNCTION ledger_stamp_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.changed_xid := pg_current_xact_id();
  RETURN NEW;
END $$;
""" + "".join(
    f"""ALTER TABLE ledger_{table} ADD COLUMN changed_xid xid8 NOT NULL DEFAULT '0';
ALTER TABLE ledger_{table} ALTER COLUMN changed_xid SET DEFAULT pg_current_xact_id();
CREATE INDEX {table}_by_change ON ledger_{table} (changed_xid);
CREATE TRIGGER stamp_change BEFORE UPDATE OF {columns} ON ledger_{table}
  FOR EACH ROW EXECUTE FUNCTION ledger_stamp_change();
"""
    for table, columns in STAMPED.items()
)
STAMPS_BACK = (
    "".join(
        f"DROP TRIGGER stamp_change ON ledger_{table}; ALTER TABLE ledger_{table} DROP COLUMN changed_xid;"
        for table in STAMPED
    )
    + "DROP FUNCTION ledger_stamp_change();"
)

# table → when its version moves, before and after this migration; blocks say nothing that seats don't say
BUMPS = {
    "node": (f"INSERT OR DELETE OR UPDATE OF {NODE}", "DELETE"),
    "nodezone": ("INSERT OR DELETE OR UPDATE", "DELETE"),
    "cardseat": ("INSERT OR DELETE OR UPDATE", "DELETE"),
    "card": ("INSERT OR DELETE OR UPDATE", "DELETE OR UPDATE"),
    "block": ("INSERT OR DELETE OR UPDATE", ""),
}


def _bumps(after: bool) -> str:
    return "".join(
        f"DROP TRIGGER IF EXISTS bump_inventory ON ledger_{table};"
        + (
            f"CREATE TRIGGER bump_inventory AFTER {events[after]} ON ledger_{table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_bump_inventory();"
            if events[after]
            else ""
        )
        for table, events in BUMPS.items()
    )


class Migration(migrations.Migration):
    dependencies = [("ledger", "0007_saved_values")]
    operations = [
        migrations.RunSQL(STAMPS, STAMPS_BACK),
        migrations.RunSQL(_bumps(after=True), _bumps(after=False)),
    ]
