"""The simulated driver against the conformance suite, and what it alone promises: the same seed, the same world."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import pytest

from ledger.clock import database_now
from ledger.models import Node
from ledger.vocabulary import NodeState
from scheduler.drivers.base import Driver, DriverError, EndReason, Phase, ReplyLost
from scheduler.drivers.batch import StopOrder
from scheduler.drivers.simulated import SimulatedDriver, World
from scheduler.models import SimulatedFault, SimulatedMember
from tests import factories
from tests.scheduler.drivers.conformance import DriverConformance
from tests.scheduler.test_races import at_once

QUICK = World(start_delay_s=(0.0, 0.01))


class SimulatedCase(DriverConformance):
    """Hooks of the conformance suite for make-believe members."""

    node = "n1"
    ends_by_signal = keeps_output = hears_stops = bounds_memory = False
    reports_start_failures = checks_environment = False
    concurrent = False  # threads see nothing of a test's own transaction; the class below races for real
    one: ClassVar[Sequence[str]] = ("simulate", "--seconds", "3600")

    @pytest.fixture(autouse=True)
    def _node(self) -> None:
        factories.node("n1")

    def make_driver(self) -> SimulatedDriver:
        return SimulatedDriver(QUICK)

    def command(self, *, seconds: float = 0.0, exit_code: int = 0) -> Sequence[str]:
        return ["simulate", "--seconds", str(seconds), "--exit-code", str(exit_code)]

    def runs(self, driver: Driver, key: str) -> int:
        return SimulatedMember.objects.filter(key=key, runs_at__lte=database_now()).count()

    def lose_next_reply(self, driver: Driver) -> None:
        assert isinstance(driver, SimulatedDriver)
        driver.world = dataclasses.replace(driver.world, lost_reply_rate=1.0)


@pytest.mark.django_db
class TestSimulated(SimulatedCase):
    @pytest.mark.parametrize(
        "words",
        [
            ["--seconds", "-1"],
            ["--seconds", "nan"],
            ["--seconds", "inf"],
            ["--seconds", "1e12"],
            ["--seconds", "soon"],
            ["--exit-code", "x"],
            ["--exit-code", str(2**40)],
        ],
    )
    def test_odd_orders_are_refused(self, driver: Driver, words: list[str]) -> None:
        spec = self.spec(["simulate", *words])
        with pytest.raises(DriverError):
            driver.start(spec)
        assert self.see(driver, spec.key).phase == Phase.ABSENT

    def test_any_other_command_runs_for_a_time_drawn_from_seed_and_key(self) -> None:
        spec = self.spec(["python", "train.py"])
        ends = set()
        for seed in (5, 5, 6):
            SimulatedDriver(World(seed=seed)).start(spec)
            member = SimulatedMember.objects.get(key=spec.key)
            ends.add(round((member.ends_at - member.runs_at).total_seconds(), 5))
            member.delete()
        assert len(ends) == 2
        assert all(1.0 <= end <= 10.0 for end in ends)

    def test_failures_are_drawn_at_their_rate(self) -> None:
        driver = SimulatedDriver(World(fail_rate=0.5, start_fail_rate=0.3, start_delay_s=(0, 0)))
        answers = driver.start_many([self.spec() for _ in range(200)])
        refused = sum(isinstance(answer, DriverError) for answer in answers.values())
        assert 30 < refused < 90
        assert 50 < SimulatedMember.objects.filter(exit_code=1).count() < 120

    def test_a_batch_is_as_good_as_single_calls(self, driver: SimulatedDriver) -> None:
        good, bad, late = self.spec(self.one), self.spec(["simulate", "--seconds", "x"]), self.spec(self.one)
        self.stop(driver, late)
        answers = driver.start_many([good, bad, late])
        assert [type(answers[s.key]).__name__ for s in (good, bad, late)] == [
            "Observation",
            "DriverError",
            "StartRefused",
        ]
        orders = [StopOrder(s.key, s.job_id, s.fence, 0, self.node, False) for s in (good, bad)]
        assert driver.stop_many(orders) == {good.key: True, bad.key: True}
        assert driver.stop_many(orders) == {good.key: True, bad.key: True}
        assert self.see(driver, good.key).end_reason == EndReason.STOPPED
        assert driver.list_members() == []

    def test_a_lost_reply_of_a_stop_has_stopped(self, driver: SimulatedDriver) -> None:
        spec = self.spec(self.one)
        driver.start(spec)
        self.lose_next_reply(driver)
        with pytest.raises(ReplyLost):
            self.stop(driver, spec)
        assert self.see(self.restart_driver(driver), spec.key).end_reason == EndReason.STOPPED

    def test_faults_take_nodes_and_cards_out_of_the_inventory(self, driver: Driver) -> None:
        factories.node("n2")
        factories.node("real", simulated=False)
        SimulatedFault.objects.create(hostname="n1", card_uuid="n1-card-2")
        SimulatedFault.objects.create(hostname="n2")
        facts = {node.hostname: node for node in driver.inventory()}
        assert set(facts) == {"n1", "n2"}
        assert [c.uuid for c in facts["n1"].cards] == ["n1-card-0", "n1-card-1", "n1-card-3"]
        assert (facts["n1"].online, facts["n2"].online) == (True, False)
        Node.objects.filter(hostname="n2").update(state=NodeState.RETIRED)
        assert [node.hostname for node in driver.inventory()] == ["n1"]

    def test_logs_are_labelled_as_a_simulation(self, driver: Driver) -> None:
        spec = self.spec()
        driver.start(spec)
        self.wait_for(driver, spec.key, Phase.EXITED)
        assert all(line.startswith(b"[simulated]") for line in self.whole_log(driver, spec.key, limit=7).splitlines())


@pytest.mark.django_db(transaction=True)
def test_starts_and_stops_of_one_member_at_once_leave_one_end() -> None:
    factories.node("n1")
    case = SimulatedCase()
    for _ in range(5):
        spec = case.spec(SimulatedCase.one)
        works = [lambda s=spec: SimulatedDriver(QUICK).start(s)] * 4
        works += [lambda s=spec: SimulatedDriver(QUICK).stop(key=s.key, job_id=s.job_id, fence=s.fence, grace_s=0)] * 4
        answers = at_once(works)
        assert all(not isinstance(a, Exception) or isinstance(a, DriverError) for a in answers), answers
        assert case.see(SimulatedDriver(QUICK), spec.key).phase in (Phase.ABSENT, Phase.EXITED)
        assert SimulatedMember.objects.filter(key=spec.key).count() <= 1
