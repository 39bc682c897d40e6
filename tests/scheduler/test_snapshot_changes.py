"""The kept snapshot reads what changed and nothing else, and loses no transaction, however late it commits."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection

from ledger import inventory
from ledger.models import Allocation, CardShare, Node, NodeZone
from ledger.vocabulary import DriverName, NodeState, Outcome, ProjectRole
from scheduler import changes, commit, ending, placing, snapshot
from scheduler.engine.plan import plan
from scheduler.engine.types import NodeView
from scheduler.nodes import changed_nodes
from tests import factories
from tests.ledger.raw import one, run
from tests.scheduler import flow, test_snapshot

pytestmark = pytest.mark.django_db(transaction=True)
LATER_S = 86_400  # rounds don't look at the jobs of late transactions yet
PATIENCE = 20.0


def _full() -> tuple[NodeView, ...]:
    """Everything read anew, past what is kept."""
    with patch.object(snapshot, "_kept", snapshot.Inventory()):
        return snapshot.node_views()


def _assert_kept_is_true() -> None:
    by_id = {view.id: view for view in snapshot.node_views()}
    assert by_id == {view.id: view for view in _full()}
    kept = {view.id: view for view in snapshot.fleet_of(tuple(by_id.values())).views}
    assert kept == by_id


class Late:
    """A writer whose transaction stays open, everything written, until it is told to end. The work is of a project and
    a node that nobody else locks."""

    def __init__(self) -> None:
        factories.project("late", researcher=ProjectRole.MEMBER)
        self.node = factories.node("late", cards=6, simulated=False, driver=DriverName.SIMULATED)
        self.thread: threading.Thread | None = None
        self.written, self.may_end, self.fails = threading.Event(), threading.Event(), False

    def place(self) -> None:
        """A job on one card."""
        ask = {"form": "container", "memory_mib": 0, "after_s": LATER_S}
        job = flow.long_job(project="late", simulated=False, asks=[ask])
        snap = snapshot.read([job])
        later = dataclasses.replace(snap, at=snap.at + LATER_S)
        self.begin(lambda: commit.commit_plan(later, plan(later)))

    def close(self) -> None:
        """The oldest job that runs is gone and clean."""
        open_ones = Allocation.objects.filter(node=self.node, period__upper_inf=True).order_by("pk")
        oldest = open_ones.first()
        if oldest is not None:
            ending.end_attempt(attempt_id=oldest.attempt_id, outcome=Outcome.SUCCEEDED)
            self.begin(lambda: ending.confirm_closed([oldest.pk]))

    def begin(self, act: Callable[[], Any]) -> None:
        """Run it up to its last step, which wakes others after the commit."""
        self.written.clear()
        self.may_end.clear()

        def pause(task: str) -> None:
            self.written.set()
            assert self.may_end.wait(PATIENCE)
            if self.fails:
                raise ConnectionError

        def go() -> None:
            try:
                act()
            except ConnectionError:
                assert self.fails
            finally:
                self.written.set()  # also when there was nothing to write
                connection.close()

        with patch.object(commit, "wake_after_commit", pause), patch.object(ending, "wake_after_commit", pause):
            self.thread = threading.Thread(target=go)
            self.thread.start()
            assert self.written.wait(PATIENCE)

    def end(self, *, fails: bool = False) -> None:
        self.fails = fails
        if self.thread is not None:
            self.may_end.set()
            self.thread.join()
            self.thread = None


@pytest.fixture
def late() -> Iterator[Late]:
    flow.world(nodes=2, block=2)
    writer = Late()
    yield writer
    writer.end()


@pytest.mark.parametrize("write", [Late.place, Late.close])
def test_a_transaction_that_commits_late_is_not_lost(late: Late, write: Callable[[Late], None]) -> None:
    late.place()
    late.end()
    before = snapshot.node_views()
    write(late)
    flow.long_job()
    placing.place_queued()  # began later, commits earlier
    newest = one("SELECT max(changed_xid::text::bigint) FROM ledger_allocation")
    assert snapshot.node_views() != before
    _assert_kept_is_true()
    late.end()
    its = one("SELECT max(changed_xid::text::bigint) FROM ledger_allocation WHERE node_id = %s", late.node.pk)
    assert its < newest  # who goes on after the newest number does not see it
    _assert_kept_is_true()


def test_what_is_rolled_back_was_never_there(late: Late) -> None:
    snapshot.node_views()
    late.place()
    _assert_kept_is_true()
    late.end(fails=True)
    _assert_kept_is_true()
    assert not Allocation.objects.exists()


def _end(draw: random.Random) -> None:
    """Work of the others ends."""
    open_ones = Allocation.objects.filter(period__upper_inf=True, node__simulated=True).order_by("pk")
    for allocation in open_ones[: draw.randint(1, 3)]:
        ending.end_attempt(attempt_id=allocation.attempt_id, outcome=Outcome.SUCCEEDED)
        ending.confirm_closed([allocation.pk])


def _retire(draw: random.Random) -> None:
    """A node leaves the fleet or comes back; at first one is added."""
    extra = Node.objects.filter(hostname="extra").first()
    if extra is None:
        with patch.object(snapshot, "forget"):
            factories.node("extra")
    else:
        extra.state = NodeState.UP if extra.state == NodeState.RETIRED else NodeState.RETIRED
        extra.save(update_fields=["state"])


STEPS: list[Callable[[random.Random], None]] = [
    test_snapshot._hold,
    test_snapshot._return,
    test_snapshot._place,
    test_snapshot._place,
    test_snapshot._add_card,
    test_snapshot._flip,
    _end,
    _retire,
]


@pytest.mark.parametrize("seed", [1, 2])
def test_after_any_history_the_kept_snapshot_is_the_true_one(late: Late, seed: int) -> None:
    draw = random.Random(seed)
    snapshot.node_views()
    written = 0
    for _ in range(24):
        if draw.random() < 0.5:
            draw.choice(STEPS)(draw)
        elif late.thread is None:
            draw.choice([late.place, late.place, late.close])()
            written += 1
        else:
            late.end(fails=draw.random() < 0.3)
        _assert_kept_is_true()
    assert written > 2


def test_a_round_reads_what_changed_and_nothing_else() -> None:
    flow.world(nodes=3)
    flow.long_job()
    snapshot.forget()
    assert placing.place_queued()["reloads"] == 2  # the start: nodes and work
    flow.long_job(asks=[{"form": "whole"}])
    with patch.object(snapshot, "read_nodes", wraps=snapshot.read_nodes) as read:
        assert placing.place_queued()["reloads"] == 0
        read.assert_not_called()
        offline = Node.objects.get(hostname="n2")
        Node.objects.filter(pk=offline.pk).update(state=NodeState.OFFLINE)
        assert [view.hostname for view in snapshot.node_views() if not view.up] == ["n2"]
        read.assert_called_once_with({offline.pk})


def test_only_nodes_that_changed_get_a_new_view() -> None:
    flow.world(nodes=3)
    before = {view.hostname: view for view in snapshot.node_views()}
    flow.long_job()
    placing.place_queued()
    after = {view.hostname: view for view in snapshot.node_views()}
    [taken] = Allocation.objects.values_list("node__hostname", flat=True)
    assert {name for name in after if after[name] is not before[name]} == {taken}


def test_being_seen_is_no_change_of_a_node() -> None:
    flow.world(nodes=2)
    snapshot.node_views()
    last = changes.stand("ledger_node")
    inventory.note_seen(dict.fromkeys(["n1", "n2"], NodeZone.objects.earliest("pk").period.lower))
    window = changes.between(last, changes.stand("ledger_node"))
    assert window is not None
    assert changed_nodes(window) == set()
    Node.objects.filter(hostname="n2").update(rack="other")
    assert changed_nodes((window[0], changes.stand("ledger_node").next)) == {Node.objects.get(rack="other").pk}


@pytest.mark.breaks_books
def test_another_table_of_the_same_name_is_read_wholly() -> None:
    """As after a restore into the database of a running portal."""
    flow.world()
    flow.long_job()
    placing.place_queued()
    before = snapshot.reloads()
    run("TRUNCATE ledger_allocation CASCADE")
    [view] = snapshot.node_views()
    assert (view.allocations, snapshot.reloads()) == (0, before + 1)
    assert not CardShare.objects.exists()
