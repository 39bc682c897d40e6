"""Readings of cards for tests and benchmarks: written as rows, as if agents had told them. The values are made up."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django.db import connection

from ledger.clock import database_now
from ledger.models import Card, CardHour, CardSample, CardStatus, Node, NodeBoot

# Waves that differ from card to card: readings of a whole fleet, some of which tell nothing of some values.
FILL: Final = """
INSERT INTO ledger_nodeboot (node_id, boot_id, first_seen, taken)
  SELECT n.id, 'made-up', %(now)s - interval '9 days', '{}' FROM ledger_node n
  WHERE NOT EXISTS (SELECT FROM ledger_nodeboot b WHERE b.node_id = n.id);
CREATE TEMP TABLE told AS SELECT s.card_id, c.memory_mib, b.id AS boot_id, s.card_id %% 97 / 97.0 AS w,
    s.card_id %% 11 = 0 AS mute
  FROM ledger_cardseat s JOIN ledger_card c ON c.id = s.card_id
    JOIN (SELECT node_id, max(id) AS id FROM ledger_nodeboot GROUP BY 1) b ON b.node_id = s.node_id
  WHERE upper_inf(s.period);
INSERT INTO ledger_cardstatus (card_id, boot_id, sequence, received_at, temperature_c, utilisation_pct, power_mw,
    memory_used_mib, tensor_pct, memory_busy_pct, ecc, lost)
  SELECT card_id, boot_id, 1, %(now)s - w * interval '9 seconds', 38 + w * 45, CASE WHEN NOT mute THEN w * 100 END,
    90000 + w * 500000, memory_mib * w, CASE WHEN NOT mute THEN w * 70 END, CASE WHEN NOT mute THEN w * 50 END, '{}', false
  FROM told ON CONFLICT (card_id) DO NOTHING;
INSERT INTO ledger_cardhour (card_id, hour, samples, temperature_c, utilisation_pct, memory_used_mib)
  SELECT card_id, h, 360, ARRAY[35 + w * 40, 38 + w * 45, 42 + w * 47],
    CASE WHEN NOT mute THEN ARRAY[0, w * 60, w * 100] END, ARRAY[0, memory_mib * w * 0.8, memory_mib * w]
  FROM told, generate_series(date_trunc('hour', %(now)s::timestamptz) - %(hours)s * interval '1 hour',
    date_trunc('hour', %(now)s::timestamptz) - interval '1 hour', interval '1 hour') AS h ON CONFLICT DO NOTHING;
SELECT ledger_sample_days((%(now)s - interval '1 day')::date, (%(now)s + interval '1 day')::date);
INSERT INTO ledger_cardsample (card_id, boot_id, sequence, at, temperature_c, utilisation_pct, tensor_pct,
    memory_busy_pct, power_mw, memory_used_mib)
  SELECT card_id, boot_id, extract(epoch FROM a)::bigint, a, 50 + 15 * sin(extract(epoch FROM a) / 1800 + w * 6) + 3 * random(),
    CASE WHEN NOT mute THEN greatest(0, 55 + 40 * sin(extract(epoch FROM a) / 2400 + w * 6)) END,
    CASE WHEN NOT mute THEN greatest(0, 35 + 30 * sin(extract(epoch FROM a) / 2400 + w * 6)) END,
    CASE WHEN NOT mute THEN 30 + 20 * sin(extract(epoch FROM a) / 900) END, 200000 + 100000 * w,
    memory_mib * (0.4 + 0.3 * sin(extract(epoch FROM a) / 3600))
  FROM (SELECT * FROM told ORDER BY card_id LIMIT %(cards)s) t,
    generate_series(%(now)s - interval '5 hours', %(now)s::timestamptz, interval '10 seconds') AS a
  WHERE a NOT BETWEEN %(now)s - interval '3 hours' AND %(now)s - interval '150 minutes' ON CONFLICT DO NOTHING;
DROP TABLE told
"""


def fill(*, hours: int = 48, cards: int = 16) -> None:
    """Newest values and hours of all cards that sit somewhere, and samples of the first few, with a gap in them."""
    values = {"now": database_now(), "hours": hours, "cards": cards}
    with connection.cursor() as cursor:
        for statement in FILL.split(";\n"):
            cursor.execute(statement, values)


def boot(node: Node) -> NodeBoot:
    made, _ = NodeBoot.objects.get_or_create(node=node, boot_id="made-up", defaults={"first_seen": database_now()})
    return made


def _boot_of(card: Card) -> NodeBoot:
    return boot(card.seats.get(period__upper_inf=True).node)


def status(card: Card, **values: Any) -> CardStatus:
    """The newest values of a card, heard of now."""
    about = {"boot": _boot_of(card), "sequence": 1, "received_at": database_now()} | values
    return CardStatus.objects.update_or_create(card=card, defaults=about)[0]


def sample(card: Card, at: dt.datetime, **values: Any) -> None:
    with connection.cursor() as cursor:
        day = at.astimezone(dt.UTC).date()
        cursor.execute("SELECT ledger_sample_days(%s, %s)", [day, day])
    count = CardSample.objects.filter(card=card).count()
    CardSample.objects.create(card=card, boot=_boot_of(card), sequence=count + 1, at=at, **values)


def hour(card: Card, at: dt.datetime, samples: int = 360, **values: Any) -> None:
    """An hour that is summed up; values as [least, mean, most]."""
    CardHour.objects.create(card=card, hour=at, samples=samples, **values)
