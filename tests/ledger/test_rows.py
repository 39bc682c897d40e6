"""Many rows in one statement: whatever is in the values, they come out as they went in, in their order."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, transaction

from ledger import rows
from ledger.models import Card

pytestmark = pytest.mark.django_db
ODD = ["A100", 'with "quotes", {braces} and a \\', "显卡", "", "NULL"]


def _stored(keys: list[int]) -> list[tuple[Any, ...]]:
    found = Card.objects.in_bulk(keys)
    return [(found[key].uuid, found[key].model, found[key].memory_mib, found[key].virtual) for key in keys]


WANTED = [(f"card {n}", model, n + 1, True) for n, model in enumerate(ODD)]


def test_values_in_rows() -> None:
    listed = [{"uuid": uuid, "model": model, "memory_mib": mib} for uuid, model, mib, _ in WANTED]
    assert _stored(rows.insert(Card, listed, virtual=True)) == WANTED


def test_values_in_rows_written_out_ahead_and_in_columns() -> None:
    listed = [rows.joined(rows.text({"uuid": uuid}), rows.text({"memory_mib": mib})) for uuid, _, mib, _ in WANTED]
    keys = rows.insert(Card, listed, names=("uuid", "memory_mib"), columns={"model": ODD}, virtual=True)
    assert _stored(keys) == WANTED


def test_values_in_columns_alone() -> None:
    columns = {"uuid": [row[0] for row in WANTED], "model": ODD, "memory_mib": [row[2] for row in WANTED]}
    keys = rows.insert(Card, columns=columns, virtual=True)
    assert _stored(keys) == WANTED
    assert keys == sorted(keys)


@pytest.mark.parametrize("model", ["x" * 65, "显" * 65])
def test_what_is_too_long_is_refused_and_not_cut(model: str) -> None:
    assert len(model) > (Card._meta.get_field("model").max_length or 0)
    with pytest.raises(DataError), transaction.atomic():
        rows.insert(Card, columns={"uuid": ["a"], "model": [model], "memory_mib": [1]})
    with pytest.raises(DataError), transaction.atomic():
        rows.insert(Card, [{"uuid": "a", "model": model, "memory_mib": 1}])
    assert not Card.objects.exists()


@pytest.mark.parametrize("columns", [{}, {"model": [], "memory_mib": []}])
def test_no_rows(columns: dict[str, list[Any]]) -> None:
    assert rows.insert(Card, [], columns=columns) == []
    assert not Card.objects.exists()
