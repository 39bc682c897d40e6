"""Two of every worker at once, and a person who aborts meanwhile: one hold, one case, one verdict."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError, close_old_connections, connection

from ledger.errors import Conflict
from ledger.models import AgentOrder, AuditEvent, Card, Case, Hold
from scheduler import drills, service, snapshot
from scheduler.drill_rows import Drill
from tests import factories
from tests.scheduler import flow, out

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def world(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SIMULATED_SERVICE_S = 0
    out.without_alerts(monkeypatch)
    factories.constant_rows()
    snapshot.forget()
    flow.world(cards=3)


def at_once(*works: Any) -> list[Exception]:
    troubles: list[Exception] = []
    gate = threading.Barrier(len(works))

    def run(work: Any) -> None:
        try:
            gate.wait(10)
            for _ in range(6):
                work()
        except (Conflict, OperationalError):
            pass  # told to the person; a lock that was not to be had
        except Exception as error:
            troubles.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    close_old_connections()
    return troubles


@pytest.mark.parametrize("aborted", [False, True])
def test_two_of_each_worker_and_a_person(aborted: bool) -> None:
    act = out.operator("drill")
    made = [drills.plan_drill(card=card, act=act) for card in Card.objects.order_by("pk")]

    def abort() -> None:
        drills.abort_drill(drill_id=made[0].pk, act=act)

    people = [abort, abort] if aborted else []
    assert at_once(drills.advance_all, drills.advance_all, service.advance_all, service.advance_all, *people) == []
    for _ in range(6):
        drills.advance_all()
        service.advance_all()
    assert [drill.state for drill in Drill.objects.all()] == ["ended"] * 3
    verdicts = [drill.verdict for drill in Drill.objects.order_by("pk")]
    assert verdicts == [verdicts[0], "partly", "partly"]
    assert verdicts[0] in ({"aborted", "partly"} if aborted else {"partly"})
    assert not Hold.objects.filter(period__upper_inf=True).exists()
    assert not Case.objects.filter(ended_at=None).exists()
    assert not AgentOrder.objects.filter(ended_at=None).exists()
    for drill in made:
        assert Hold.objects.filter(rule=f"drill/{drill.pk}").count() <= 1
        ends = AuditEvent.objects.filter(target_type="drill", target_id=str(drill.pk))
        assert ends.filter(verb__in=("drill.ended", "drill.aborted")).count() == 1
