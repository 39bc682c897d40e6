"""Which labels a rule, a rung of the ladder or a silence is about: `[label, op, [value]]`, all of which must hold.

`=` and `!=` compare with one of the values, `>=` and `<=` with a number. A label that is not there is "". No regular
expressions: nobody's pattern may keep a worker busy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.utils.translation import gettext as _

from ledger.errors import Refused

OPS: Final = ("!=", ">=", "<=", "=")
NUMERIC: Final = (">=", "<=")
MOST: Final = 20  # matchers, and values of one
LONGEST: Final = 200  # characters of a value
LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
Matcher = list[Any]


def meets(labels: Mapping[str, str], matchers: Iterable[Sequence[Any]]) -> bool:
    return all(_holds(labels.get(name, ""), op, values) for name, op, values in matchers)


def _holds(value: str, op: str, values: Sequence[str]) -> bool:
    if op == "=":
        return value in values
    if op == "!=":
        return value not in values
    try:
        number, bound = float(value), float(values[0])
    except ValueError:
        return False
    return number >= bound if op == ">=" else number <= bound


def parse(text: str, field: str = "matchers") -> list[Matcher]:
    """One matcher a line, such as `zone=train|infer` or `priority>=50`. Refused when a line is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return check([_line(line, field) for line in lines], field)


def _line(line: str, field: str) -> Matcher:
    found = re.fullmatch(r"([^=!<>\s]+)\s*(!=|>=|<=|=)\s*(.*)", line)
    if found is None:
        raise _refused(_("“%(line)s” is not label=value; write one a line.") % {"line": line[:80]}, field)
    name, op, values = found.groups()
    return [name, op, [value.strip().strip('"') for value in values.split("|")]]


def check(matchers: Sequence[Any], field: str = "matchers") -> list[Matcher]:
    """The same, refused when one can't hold or could be read in two ways."""
    if len(matchers) > MOST:
        raise _refused(_("Give at most %(n)d.") % {"n": MOST}, field)
    return [_checked(matcher, field) for matcher in matchers]


def _checked(matcher: Any, field: str) -> Matcher:
    if not isinstance(matcher, list | tuple) or len(matcher) != 3:
        raise _refused(_("A matcher is a label, one of %(ops)s, and values.") % {"ops": ", ".join(OPS)}, field)
    name, op, values = matcher
    if not isinstance(name, str) or not LABEL.fullmatch(name):
        raise _refused(_("The name of a label has Latin letters, digits and “_”."), field)
    if op not in OPS or not isinstance(values, list | tuple) or not 1 <= len(values) <= MOST:
        raise _refused(_("A matcher is a label, one of %(ops)s, and values.") % {"ops": ", ".join(OPS)}, field)
    if not all(isinstance(value, str) and len(value) <= LONGEST and value.isprintable() for value in values):
        raise _refused(_("A value has at most %(n)d characters on one line.") % {"n": LONGEST}, field)
    if op in NUMERIC and not (len(values) == 1 and re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,6})?", values[0])):
        raise _refused(_("“%(op)s” takes one number.") % {"op": op}, field)
    return [name, op, list(values)]


def told(matchers: Iterable[Sequence[Any]]) -> list[str]:
    """As `parse` reads them."""
    return [f"{name}{op}{'|'.join(values)}" for name, op, values in matchers]


def _refused(text: str, field: str) -> Refused:
    return Refused(text, field=field, code="invalid")
