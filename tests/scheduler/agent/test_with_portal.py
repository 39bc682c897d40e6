"""The real agent on a fake NVML, over HTTP, into the real portal: what happens to a card that disappears, and to the one
beside it whose index moves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError

from ledger import inventory, samples
from ledger.models import (
    Allocation,
    AuditEvent,
    Card,
    CardSample,
    CardSeat,
    CardStatus,
    Fault,
    Hold,
    Job,
    Node,
    NodeBoot,
    NodeReport,
)
from ledger.people import create_node_token
from ledger.vocabulary import FaultKind, HoldKind, ProjectRole
from scheduler import placing, reconcile
from tests import factories
from tests.scheduler.agent.conftest import Machine, h100, until

pytestmark = pytest.mark.django_db(transaction=True)

GONE = "GPU-00000000-1111-2222-3333-444444444444"
STAYS = "GPU-00000001-1111-2222-3333-444444444444"
SPARE = "GPU-00000007-1111-2222-3333-444444444444"


def both(**changes: Any) -> tuple[dict[str, object], dict[str, object]]:
    return h100(0, processes="", **changes), h100(1, processes="", temperature=55)


def at_index(index: int, card: dict[str, object]) -> dict[str, object]:
    """The same card under another index, as the driver counts when one before it is gone."""
    return {f"{index}.{key.partition('.')[2]}": value for key, value in card.items()}


class Site:
    """A portal that listens, one registered node, and its agent."""

    def __init__(self, url: str, machine: Machine) -> None:
        factories.constant_rows()
        self.url = url
        self.machine = machine
        self.node = factories.node("n001", cards=0, simulated=False, driver="local")
        machine.token_file.write_text(create_node_token(node=self.node, actor=None, via="test") + "\n")
        self.agent: Any = None

    def start(self) -> None:
        self.agent = self.machine.start(self.url)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.machine.stop(self.agent, how)

    def hear(self) -> None:
        """Two more whole reports, then one run of the inventory task and of the one that keeps the history."""
        count = self._sequence()
        until(lambda: self._sequence() > count + 1, "reports of the agent")
        samples.copy_batches()
        reconcile._nodes["at"] = None
        reconcile.sync_inventory()

    def _sequence(self) -> int:
        return NodeReport.objects.filter(node=self.node).values_list("sequence", flat=True).first() or 0

    def seats(self) -> dict[int, str]:
        here = CardSeat.objects.filter(node=self.node, period__upper_inf=True)
        return dict(here.values_list("slot", "card__uuid"))


@pytest.fixture
def site(live_server: Any, machine: Machine) -> Iterator[Site]:
    site = Site(live_server.url, machine)
    machine.set(*both())
    site.start()
    site.hear()  # its cards get to be known
    site.hear()  # and their samples kept
    yield site
    machine.stop_all()


def job_on(uuid: str) -> Job:
    """A job that really holds this card: the other one is held back while it is placed."""
    factories.project("vision", researcher=ProjectRole.MEMBER)
    others = [
        inventory.place_hold(kind=HoldKind.MAINTENANCE, reason="test", actor=None, via="test", card=card)
        for card in Card.objects.exclude(uuid=uuid)
    ]
    job = factories.job(simulated=False, command=["sleep", "600"])
    placing.place_queued()
    for hold in others:
        inventory.end_hold(hold_id=hold.pk, reason="placed", actor=None, via="test")
    return job


def open_holds(uuid: str) -> list[str]:
    return list(Hold.objects.filter(card__uuid=uuid, period__upper_inf=True).values_list("kind", flat=True))


def lost_faults() -> list[tuple[str, int]]:
    found = Fault.objects.filter(kind=FaultKind.LOST, cleared_at=None, card__isnull=False)
    return list(found.values_list("card__uuid", "count"))


def owner_of(uuid: str) -> tuple[int, int, int]:
    """Seat, allocation and project of a card in use."""
    share = Allocation.objects.filter(shares__card__uuid=uuid, period__upper_inf=True).get()
    seat = CardSeat.objects.get(card__uuid=uuid, period__upper_inf=True)
    return seat.pk, share.pk, share.project_id


def temperatures(uuid: str) -> set[int]:
    """All that its history tells; a lost card tells nothing."""
    told = CardSample.objects.filter(card__uuid=uuid, temperature_c__isnull=False)
    return set(told.values_list("temperature_c", flat=True))


def test_two_cards_one_disappears_the_index_shifts_and_the_agent_restarts(site: Site) -> None:
    assert site.seats() == {0: GONE, 1: STAYS}
    job_on(STAYS)
    owner, first_boot = owner_of(STAYS), NodeBoot.objects.get()
    assert (temperatures(GONE), temperatures(STAYS)) == ({41}, {55})

    _, survivor = both()
    site.machine.set(at_index(0, survivor | {"1.temperature": 56}))
    site.hear()
    missing_and_untouched(site, owner)
    assert temperatures(STAYS) == {55, 56}  # one history, whatever its index was
    assert temperatures(GONE) == {41}  # and the lost card got nothing of it

    for how in (signal.SIGTERM, signal.SIGKILL):
        site.stop(how)
        site.start()
        site.hear()
        missing_and_untouched(site, owner)
    assert NodeBoot.objects.get() == first_boot
    sequences = list(
        CardSample.objects.filter(card__uuid=STAYS).order_by("sequence").values_list("sequence", flat=True)
    )
    assert len(sequences) == len(set(sequences))

    site.machine.set(*both())
    site.hear()
    assert HoldKind.LOST not in open_holds(GONE)  # it is there again; what health makes of its fault is another matter
    assert (site.seats(), owner_of(STAYS)) == ({0: GONE, 1: STAYS}, owner)


def missing_and_untouched(site: Site, owner: tuple[int, int, int]) -> None:
    assert lost_faults() == [(GONE, 1)]
    assert HoldKind.LOST in open_holds(GONE)
    assert CardStatus.objects.get(card__uuid=GONE).lost
    assert not CardStatus.objects.get(card__uuid=STAYS).lost
    assert open_holds(STAYS) == []
    assert site.seats() == {0: GONE, 1: STAYS}
    assert owner_of(STAYS) == owner
    assert CardSeat.objects.filter(card__uuid=STAYS).count() == 1


def test_a_card_that_needs_a_reset_is_a_state_of_that_card_and_no_loss(site: Site) -> None:
    site.machine.set(*both(open="!16"))
    site.hear()
    assert lost_faults() == []
    state = Fault.objects.get(kind=FaultKind.RESET_REQUIRED, cleared_at=None)
    assert state.card is not None
    assert state.card.uuid == GONE
    site.machine.set(*both())
    site.hear()
    assert not Fault.objects.filter(kind=FaultKind.RESET_REQUIRED, cleared_at=None).exists()


def test_a_card_that_is_replaced_gives_its_place_to_the_new_one(site: Site) -> None:
    job_on(STAYS)
    owner = owner_of(STAYS)
    _, survivor = both()
    new = {key.replace("7.", "1.", 1): value for key, value in h100(7, processes="").items()}
    site.machine.set(at_index(0, survivor), new)  # the driver counts the new one last
    site.hear()
    site.hear()
    assert site.seats() == {0: SPARE, 1: STAYS}
    assert owner_of(STAYS) == owner
    assert open_holds(SPARE) == []
    (event,) = AuditEvent.objects.filter(verb="card.replaced")
    assert (event.target_id, event.after) == (str(Card.objects.get(uuid=GONE).pk), {"by": SPARE})
    assert temperatures(SPARE) == {48}


def test_a_card_that_moves_to_another_node_takes_its_history_along(site: Site) -> None:
    site.machine.set(both()[0])
    site.hear()
    told = CardSample.objects.filter(card__uuid=STAYS, temperature_c__isnull=False)
    before = told.count()
    other = factories.node("n002", cards=0, simulated=False, driver="local")
    inventory.sync_node(inventory.SeenNode("n002", [inventory.SeenCard(STAYS, 0, "NVIDIA H100 80GB HBM3", 81_559)]))
    site.hear()  # its old node goes on calling it lost
    seats = CardSeat.objects.filter(card__uuid=STAYS).order_by("pk")
    assert [seat.node.hostname for seat in seats] == ["n001", "n002"]
    assert open_holds(STAYS) == []
    assert told.count() == before > 0
    verbs = AuditEvent.objects.filter(target_type="card", target_id=str(Card.objects.get(uuid=STAYS).pk))
    assert [event.verb for event in verbs.order_by("pk")][-2:] == ["card.left", "card.moved"]
    assert Node.objects.get(pk=other.pk).seats.filter(period__upper_inf=True).count() == 1


def test_samples_of_an_outage_fill_the_history(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr("portal.api.agents.telemetry.ingest", away)
    site.machine.set(*both(temperature=77))
    until(lambda: site.machine.looks() > 5, "looks that the portal does not hear of")
    monkeypatch.undo()
    site.machine.set(*both(temperature=44))
    until(lambda: site.machine.looks() > 1, "a look after it")
    site.hear()
    assert {41, 77, 44} <= temperatures(GONE)


def test_the_portal_understands_all_that_the_agent_says(site: Site) -> None:
    card = h100(0, slowdown=1 << 6, nvlink_errors=3, tensor=5, recovery=1, processes="1:1048576")
    site.machine.set(card, both()[1])
    site.hear()
    site.hear()
    status = CardStatus.objects.get(card__uuid=GONE)
    assert (status.slowdown, status.nvlink_errors, status.memory_busy_pct, status.tensor_pct) == (["thermal"], 3, 31, 0)
    assert status.ecc["volatile_corrected"] == 5
    (process,) = status.processes
    assert (process["pid"], process["memory_mib"], process["member"]) == (1, 1, None)
    states = set(Fault.objects.filter(card__uuid=GONE, cleared_at=None).values_list("kind", flat=True))
    assert {FaultKind.THERMAL, FaultKind.RESET_REQUIRED} <= states
