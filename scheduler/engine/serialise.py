"""Snapshots and plans as JSON: bug reports, golden tests, replay. An exact round trip; bad input is refused with a
ValueError that names the field.

The shape of the JSON is the shape of types.py; nothing is decided here. Reading is driven by the types' own hints,
so that a new field needs no code, only, where its values are limited, a line in limits.py.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from scheduler.engine.limits import check_plan_values, check_snapshot_values
from scheduler.engine.types import Plan, Snapshot

SNAPSHOT_FORMAT: Final = "gpu-commons-snapshot/1"
PLAN_FORMAT: Final = "gpu-commons-plan/1"
LARGEST: Final = 2**63 - 1  # what the database and NumPy hold

T = TypeVar("T")
Reader = Callable[[Any, str], Any]  # value, where it stands


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Only dicts, lists, strings, numbers, true, false and null."""
    return {"format": SNAPSHOT_FORMAT, **_write(snapshot)}


def from_json(data: object) -> Snapshot:
    snapshot = _read(data, Snapshot, SNAPSHOT_FORMAT)
    check_snapshot_values(snapshot)
    return snapshot


def plan_to_json(plan: Plan) -> dict[str, Any]:
    return {"format": PLAN_FORMAT, **_write(plan)}


def plan_from_json(data: object) -> Plan:
    plan = _read(data, Plan, PLAN_FORMAT)
    check_plan_values(plan)
    return plan


def _write(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _write(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _write(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(_write(item) for item in value)
    if isinstance(value, tuple):
        return [_write(item) for item in value]
    return value


def _read(data: object, kind: type[T], expected: str) -> T:
    if not isinstance(data, dict):
        raise _wrong("the document", "an object", data)
    found = data.get("format")
    if found != expected:
        raise ValueError(f"format: expected {expected!r}, got {_shown(found)}")
    rest = {key: value for key, value in data.items() if key != "format"}
    return cast(T, _object_reader(kind)(rest, ""))


def _wrong(where: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{where or 'the document'}: expected {expected}, got {_shown(value)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@functools.cache
def _reader(hint: Any) -> Reader:
    """How to read a value of this type."""
    origin = typing.get_origin(hint)
    if origin is not None:
        return BY_ORIGIN[origin](typing.get_args(hint))
    if dataclasses.is_dataclass(hint):
        return _object_reader(cast(type, hint))
    return _enum_reader(hint) if issubclass(hint, StrEnum) else PLAIN[hint]


def _object_reader(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    needed = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        for name in value:
            if name not in hints:
                raise ValueError(f"{_inside(where, name)}: unknown field")
        for name in needed:
            if name not in value:
                raise ValueError(f"{_inside(where, name)}: missing")
        return kind(**{name: _reader(hints[name])(item, _inside(where, name)) for name, item in value.items()})

    return read


def _inside(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _items(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)
    return value


def _optional_reader(args: tuple[Any, ...]) -> Reader:
    hint = next(arg for arg in args if arg is not type(None))

    def read(value: Any, where: str) -> Any:
        return None if value is None else _reader(hint)(value, where)

    return read


def _tuple_reader(args: tuple[Any, ...]) -> Reader:
    return _list_reader(args[0]) if args[-1] is Ellipsis else _fixed_reader(args)


def _list_reader(hint: Any) -> Reader:
    def read(value: Any, where: str) -> Any:
        inner = _reader(hint)
        return tuple(inner(item, f"{where}[{n}]") for n, item in enumerate(_items(value, where)))

    return read


def _fixed_reader(hints: tuple[Any, ...]) -> Reader:
    def read(value: Any, where: str) -> Any:
        items = _items(value, where)
        if len(items) != len(hints):
            raise _wrong(where, f"a list of {len(hints)}", value)
        return tuple(
            _reader(hint)(item, f"{where}[{n}]") for n, (hint, item) in enumerate(zip(hints, items, strict=True))
        )

    return read


def _set_reader(args: tuple[Any, ...]) -> Reader:
    def read(value: Any, where: str) -> Any:
        inner = _reader(args[0])
        found = [inner(item, f"{where}[{n}]") for n, item in enumerate(_items(value, where))]
        if len(set(found)) != len(found):
            raise ValueError(f"{where}: the same value twice")
        return frozenset(found)

    return read


def _mapping_reader(args: tuple[Any, ...]) -> Reader:
    key_hint, value_hint = args

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        read_key, read_value = _reader(key_hint), _reader(value_hint)
        return {
            read_key(key, f"a key of {where}"): read_value(item, _inside(where, key)) for key, item in value.items()
        }

    return read


def _enum_reader(kind: type[StrEnum]) -> Reader:
    known = {member.value: member for member in kind}
    expected = "one of " + ", ".join(known)

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in known:
            raise _wrong(where, expected, value)
        return known[value]

    return read


def _read_str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a string", value)
    return value


def _read_bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _read_int(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(where, "an integer", value)
    number: int = value
    if abs(number) > LARGEST:
        raise _wrong(where, "an integer below 2**63", value)
    return number


def _read_float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong(where, "a finite number", value)
    return float(value)


PLAIN: Final[dict[type, Reader]] = {str: _read_str, bool: _read_bool, int: _read_int, float: _read_float}
BY_ORIGIN: Final[dict[Any, Callable[[tuple[Any, ...]], Reader]]] = {
    types.UnionType: _optional_reader,
    tuple: _tuple_reader,
    frozenset: _set_reader,
    Mapping: _mapping_reader,
}
