"""Tables of the pages: filter, search, sort, choice of columns, pages, and CSV or XLSX of exactly the filtered rows.

All of it lives in the query string, so an address is a saved view. The database sorts, filters and counts. A value
that is not right is told above the table and its default stands. Nothing here decides who sees a row: the caller
hands in a queryset that visible_to has cut.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _

from portal import exports
from portal.forms import FilterForm
from portal.labels import Text
from portal.typed import page_number

ROWS: Final = 50
LONGEST_NAME: Final = 40  # of a column in the query string; what is longer is cut in the message
MOST_EXPORTED: Final = 100_000
PORTION: Final = 2_000  # rows of an export that are read at once
OWN: Final = ("sort", "columns", "page", "export")  # names of the query string that are not filters


@dataclass(frozen=True)
class Column:
    """One column. `value` gives what is exported and, without `cell`, shown; `cell` is a template that gets `row`."""

    name: str
    title: Text
    value: Callable[[Any], exports.Cell]
    cell: str = ""
    sort: tuple[str, ...] = ()  # fields to order by; () = not sortable
    number: bool = False
    shown: bool = True  # unless the reader chooses
    always: bool = False  # the reader can't take it away


@dataclass(frozen=True)
class Action:
    """Something to do to many rows at once: POSTs the chosen keys to `url`, whose page shows a preview first."""

    url: str
    title: Text


@dataclass
class Table:
    """A table as one request asks for it. `decorate` turns a page of records into rows (default: themselves)."""

    request: HttpRequest
    name: str  # of exported files
    columns: Sequence[Column]
    records: QuerySet[Any]
    form: FilterForm | None = None
    decorate: Callable[[list[Any]], Sequence[Any]] = list
    default_sort: str = ""  # a column's name, "-" before it for downwards
    order: tuple[str, ...] = ("-pk",)  # when no column is asked for, and to make ties stand still
    key: Callable[[Any], str] | None = None  # with `actions`: what a row's box sends
    actions: Sequence[Action] = ()
    age: dt.datetime | None = None  # when the data was last heard of; None = it is of this moment
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = {column.name: column for column in self.columns}
        self.sorting = self._sorting(known)
        self.shown = self._shown(known)

    # -- what the query string asks for --------------------------------------------------------------------------------

    def _sorting(self, known: Mapping[str, Column]) -> str:
        asked = self.request.GET.get("sort", "")
        if not asked:
            return self.default_sort
        column = known.get(asked.removeprefix("-"))
        if column is None or not column.sort:
            self.complaints.append(_("The table can't be sorted by “%(name)s”.") % {"name": asked[:LONGEST_NAME]})
            return self.default_sort
        return asked

    def _shown(self, known: Mapping[str, Column]) -> list[Column]:
        asked = [name for name in self.request.GET.get("columns", "").split(",") if name]
        unknown = [name for name in asked if name not in known]
        if unknown:
            names = ", ".join(name[:LONGEST_NAME] for name in unknown[:3])
            self.complaints.append(_("There is no column “%(name)s”.") % {"name": names})
        chosen = {name for name in asked if name in known}
        if not chosen:
            return [column for column in self.columns if column.shown]
        return [column for column in self.columns if column.always or column.name in chosen]

    def _number(self) -> int:
        number = page_number(self.request)
        if number is not None:
            return number
        text = self.request.GET.get("page", "")
        self.complaints.append(_("“%(text)s” is not a page number; this is page 1.") % {"text": text[:LONGEST_NAME]})
        return 1

    # -- what comes out ------------------------------------------------------------------------------------------------

    @property
    def ordered(self) -> QuerySet[Any]:
        down = self.sorting.startswith("-")
        fields = next((c.sort for c in self.columns if c.name == self.sorting.removeprefix("-")), ())
        turned = [_turned(name) if down else name for name in fields]
        return self.records.order_by(*turned, *self.order)

    @property
    def filtered(self) -> bool:
        return bool(self.form and self.form.chosen)

    def page(self) -> Page[Any]:
        """The page asked for; beyond the end is the last. Its `object_list` are rows."""
        page = Paginator(self.ordered, ROWS).get_page(self._number())
        rows = page.object_list
        if isinstance(rows, QuerySet):  # sorted by their keys alone; only the rows of the page are read whole
            rows = self.ordered.filter(pk__in=rows.values("pk"))
        page.object_list = list(self.decorate(list(rows)))
        return page

    def context(self) -> dict[str, Any]:
        """What templates/partials/table.html needs, under one name."""
        page = self.page()
        return {
            "table": self,
            "page": page,
            "heads": [self._head(column) for column in self.shown],
            "rows": [(self.key(row) if self.key else "", row) for row in page.object_list],
            "choices": [(column, column in self.shown) for column in self.columns if not column.always],
            "kept": self._kept(),
        }

    def _head(self, column: Column) -> dict[str, Any]:
        up, down = column.name, f"-{column.name}"
        state = {up: "ascending", down: "descending"}.get(self.sorting, "")
        return {"column": column, "sorted": state, "next": down if self.sorting == up else up}

    def _kept(self) -> list[tuple[str, str]]:
        """The filters, to be sent along with a new choice of columns."""
        return [(name, text) for name, text in self.request.GET.items() if name not in ("columns", "page", "export")]

    # -- export --------------------------------------------------------------------------------------------------------

    def export(self) -> HttpResponseBase | None:
        """The file that `?export=csv` or `xlsx` asks for, of all filtered rows and the columns shown; else None."""
        kind = self.request.GET.get("export", "")
        write = exports.WRITERS.get(kind)
        if write is None:
            if kind:
                self.complaints.append(_("“%(text)s” is not a kind of file; csv and xlsx are.") % {"text": kind[:9]})
            return None
        titles = [str(column.title) for column in self.shown]
        return write(self.name, self._about(), titles, self._lines())

    def _about(self) -> list[tuple[str, str]]:
        chosen = self.form.chosen if self.form else {}
        filters = ", ".join(f"{name}={value}" for name, value in sorted(chosen.items())) or _("none")
        return [
            (_("Made at"), timezone.localtime().isoformat(timespec="seconds")),
            (_("Time zone"), timezone.get_current_timezone_name()),
            (_("Filters"), filters),
            (_("Sorted by"), self.sorting or "—"),
        ]

    def _lines(self) -> Iterable[list[exports.Cell]]:
        records = self.ordered[:MOST_EXPORTED]
        for start in range(0, MOST_EXPORTED, PORTION):
            part = list(self.decorate(list(records[start : start + PORTION])))
            if not part:
                return
            for row in part:
                yield [column.value(row) for column in self.shown]


def _turned(name: str) -> str:
    return name.removeprefix("-") if name.startswith("-") else f"-{name}"
