"""States move only along the table of legal moves, and that table is the vocabulary's."""

from __future__ import annotations

from enum import StrEnum
from itertools import permutations

import pytest

from ledger.models import StateTransition
from ledger.vocabulary import (
    TRANSITIONS,
    AllocationState,
    AttemptState,
    CommandState,
    JobState,
    ProjectState,
)
from tests import factories
from tests.ledger.raw import Sql, allocation, attempt, insert, job, refused, run, undone

pytestmark = [pytest.mark.django_db, pytest.mark.breaks_books]
STATES: dict[str, type[StrEnum]] = {
    "job": JobState,
    "attempt": AttemptState,
    "allocation": AllocationState,
    "command": CommandState,
    "project": ProjectState,
}
TABLES = {name: f"ledger_{name}" for name in STATES} | {"command": "scheduler_command"}
# set along with the state, so that only the transition itself can be at fault
FITTING = {
    "attempt": ", outcome = 'lost', ended_at = clock_timestamp()",
    "allocation": (
        ", closing_at = CASE WHEN {new} IN ('closing', 'closed') THEN clock_timestamp() END"
        ", period = tstzrange(lower(period), CASE {new} WHEN 'closed' THEN clock_timestamp() END)"
    ),
}


def test_the_table_is_the_vocabulary() -> None:
    rows = set(StateTransition.objects.values_list("entity", "old", "new"))
    assert rows == {(entity, str(old), str(new)) for entity, moves in TRANSITIONS.items() for old, new in moves}


def test_every_entity_with_a_state_is_tried() -> None:
    assert set(STATES) == set(TRANSITIONS)


@pytest.fixture
def rows() -> dict[str, int]:
    """One row of each entity."""
    project, node, empty = factories.project(), factories.node(cards=0), factories.project("empty")
    job_id = job(project.pk, project.owner_id)
    attempt_id = attempt(job_id)
    allocation_id = allocation(attempt_id, node.pk)
    now = Sql("clock_timestamp()")
    command = insert(
        "scheduler_command", allocation_id=allocation_id, attempt_id=attempt_id, driver="simulated", verb="start",
        grace_s=1, state="pending", tries=0, due_at=now, created_at=now, last_error="",
    )  # fmt: skip
    run("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks still to come can't be altered
    return {
        "job": job_id, "attempt": attempt_id, "allocation": allocation_id, "command": command, "project": empty.pk
    }  # fmt: skip


def _move(entity: str, row: int, new: str) -> None:
    fitting = FITTING.get(entity, "").format(new=f"'{new}'")
    run(f"UPDATE {TABLES[entity]} SET state = '{new}'{fitting} WHERE id = %s", row)


@pytest.mark.parametrize("entity", STATES)
def test_legal_moves_are_taken_and_all_others_refused(rows: dict[str, int], entity: str) -> None:
    pairs = list(permutations(STATES[entity], 2))
    legal = {(str(old), str(new)) for old, new in TRANSITIONS[entity]}
    assert legal < {(str(old), str(new)) for old, new in pairs}
    for old, new in pairs:
        with undone():
            run(f"ALTER TABLE {TABLES[entity]} DISABLE TRIGGER legal_transition")
            _move(entity, rows[entity], old)
            run(f"ALTER TABLE {TABLES[entity]} ENABLE TRIGGER legal_transition")
            if (old, new) in legal:
                _move(entity, rows[entity], new)
                continue
            with refused("legal_transition"):
                _move(entity, rows[entity], new)


@pytest.mark.parametrize("entity", STATES)
def test_staying_in_a_state_is_no_move(rows: dict[str, int], entity: str) -> None:
    run(f"UPDATE {TABLES[entity]} SET state = state WHERE id = %s", rows[entity])
