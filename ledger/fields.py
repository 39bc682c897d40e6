"""Column types that Django lacks, and the default of every `period` column. Owns no tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib.postgres.fields import DateTimeRangeField
from django.db import models
from psycopg.types.multirange import Int4Multirange, Int8Multirange, Multirange
from psycopg.types.range import Range

Interval = tuple[int, int]


if TYPE_CHECKING:
    _Field = models.Field[Any, Any]
else:
    _Field = models.Field


class Int4MultiRangeField(_Field):
    """Disjoint half-open integer intervals, in Python a tuple of (lo, hi) pairs; PostgreSQL's int4multirange."""

    made: type[Multirange[int]] = Int4Multirange

    def db_type(self, connection: Any) -> str:
        return "int4multirange"

    def from_db_value(
        self, value: Multirange[int] | None, expression: Any, connection: Any
    ) -> tuple[Interval, ...] | None:
        return None if value is None else as_intervals(value)

    def get_prep_value(self, value: Sequence[Interval] | Multirange[int] | None) -> Multirange[int] | None:
        if value is None or isinstance(value, Multirange):
            return value
        return self.made([Range(lo, hi) for lo, hi in value])

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return value if prepared else self.get_prep_value(value)

    def to_python(self, value: Any) -> tuple[Interval, ...] | None:
        if value is None or isinstance(value, tuple):
            return value
        return as_intervals(value) if isinstance(value, Multirange) else tuple((int(lo), int(hi)) for lo, hi in value)


class Int8MultiRangeField(Int4MultiRangeField):
    """The same of large integers; PostgreSQL's int8multirange."""

    made = Int8Multirange

    def db_type(self, connection: Any) -> str:
        return "int8multirange"


def as_intervals(value: Multirange[int]) -> tuple[Interval, ...]:
    return tuple((int(r.lower), int(r.upper)) for r in value if r.lower is not None and r.upper is not None)


def period_field() -> Any:
    """A half-open range of UTC instants; an open end means "still so"."""
    return DateTimeRangeField()


__all__ = ["Int4MultiRangeField", "Int8MultiRangeField", "Interval", "as_intervals", "period_field"]
