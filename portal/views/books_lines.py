"""The ledger lines behind a number of the books, with the proof that they add up to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.http import require_safe

from ledger import reports
from ledger.balance import OTHERS
from ledger.clock import database_now
from ledger.lines import LedgerLine, LineSet, one_moment
from ledger.vocabulary import Account
from portal import exports, labels, stacks
from portal.books_form import LinesForm
from portal.tables import MOST_EXPORTED, Column, Table
from portal.views.books import complaints
from portal.views.books_files import about
from portal.views.books_rows import KEPT
from portal.views.gate import signed_in, viewer

MILLI: Final = Decimal("0.001")


def _word(table: str, word: str) -> str:
    return str(labels.look(table, word).label) if word else ""


def _project(line: LedgerLine) -> str:
    return stacks.member_name("project", line.project)


COLUMNS: Final = (
    Column("account", pgettext_lazy("ledger", "Account"), lambda line: _word("account", line.account),
           cell="books/cells/account.html", sort=("account",)),
    Column("job", gettext_lazy("Job"), lambda line: line.job_id, cell="books/cells/job.html"),
    Column("name", gettext_lazy("Name"), lambda line: line.job, cell="books/cells/name.html"),
    Column("project", gettext_lazy("Project"), _project, sort=("project",)),
    Column("hold", pgettext_lazy("ledger", "Hold"), lambda line: _word("hold", line.hold),
           cell="books/cells/hold.html"),
    Column("reason", gettext_lazy("Reason"), lambda line: line.reason, cell="books/cells/reason.html"),
    Column("zone", gettext_lazy("Zone"), lambda line: stacks.member_name("zone", line.zone), sort=("zone",)),
    Column("node", gettext_lazy("Node"), lambda line: line.node, cell="books/cells/node.html", sort=("node",)),
    Column("card", gettext_lazy("Card"), lambda line: line.card, cell="books/cells/card.html", sort=("card",)),
    Column("cards", gettext_lazy("Cards"), lambda line: line.cards, number=True),
    Column("model", gettext_lazy("Card model"), lambda line: line.model, sort=("model",)),
    Column("form", gettext_lazy("Form"), lambda line: _word("form", line.form), sort=("form",)),
    Column("mib", gettext_lazy("Memory (MiB)"), lambda line: line.mib, number=True, sort=("mib",),
           cell="books/cells/mib.html"),
    Column("size", gettext_lazy("of card (MiB)"), lambda line: line.size, number=True),
    Column("since", gettext_lazy("From"), lambda line: line.since, sort=("lo",), cell="books/cells/since.html"),
    Column("until", gettext_lazy("To"), lambda line: line.until, sort=("hi",), cell="books/cells/until.html"),
    Column("amount", gettext_lazy("MiB-seconds"), lambda line: line.amount, number=True, always=True, sort=("amount",),
           cell="books/cells/amount.html"),
    Column("card_seconds", gettext_lazy("card-seconds"), lambda line: line.card_seconds.quantize(MILLI), number=True,
           sort=("card_seconds",), cell="books/cells/card_seconds.html"),
)  # fmt: skip


SUMS: Final = ("amount", "card_seconds")
OF_SHARES: Final = ("job", "name", "project", "node", "card", "form", "mib", "since", "until", *SUMS)
OF_CELLS: Final = ("zone", "model", "size", *SUMS)
# what is shown of each account unless the reader chooses
SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("account", "job", "project", "zone", "model", "node", "card", "mib", "since", "until", *SUMS),
    Account.USED: OF_SHARES,
    Account.CLEANING: OF_SHARES,
    Account.HELD: ("hold", "reason", "zone", "model", "cards", "since", "until", *SUMS),
    Account.HEADROOM: OF_CELLS,
    Account.STRANDED: OF_CELLS,
    Account.FREE: OF_CELLS,
}


def _columns(account: str) -> list[Column]:
    return [replace(column, shown=column.name in SHOWN[account]) for column in COLUMNS]


@dataclass
class LinesTable(Table):
    """A table whose rows are ledger lines; files are read from one query, so they are of one moment."""

    def _about(self) -> list[tuple[str, str]]:
        lines: LineSet = self.records  # type: ignore[assignment]
        facts = [*about(self.form), (_("Sorted by"), self.sorting)]  # type: ignore[arg-type]
        facts += [(_("Lines"), str(lines.count())), (_("Total (MiB-seconds)"), str(lines.amount))]
        if lines.count() > MOST_EXPORTED:
            facts.append((_("Not complete"), _("only the first %(n)d lines are here") % {"n": MOST_EXPORTED}))
        return facts

    def _lines(self) -> Iterable[list[exports.Cell]]:
        for line in self.ordered.iterator(MOST_EXPORTED):
            yield [column.value(line) for column in self.shown]


@require_safe
@signed_in
def lines(request: HttpRequest) -> HttpResponseBase:
    form = LinesForm(request.GET, viewer(request), database_now())
    found: Any = LineSet(form.lines, viewer(request))  # as good as the queryset that a table expects
    columns = _columns(form.lines.account or "")
    table = LinesTable(request, "ledger-lines", columns, found, form=form, default_sort="-since", order=())
    with one_moment():
        if (file := table.export()) is not None:
            return file
        context = _told(form, table)
    return render(request, "books/lines.html", context)


def _told(form: LinesForm, table: LinesTable) -> dict[str, Any]:
    context = table.context()
    shown: LineSet = context["page"].paginator.object_list
    cut = replace(form.lines.cut, project=None)
    booked = form.lines.amount(reports.cells(form.since, form.until, cut, form.viewer))
    table.complaints[:0] = [text for text in complaints(form) if text not in table.complaints]
    return {
        "form": form,
        "t": context,
        "total": shown.amount,
        "card_seconds": shown.card_seconds,
        "booked": booked,
        "agrees": booked == shown.amount,
        "left_out": [stacks.member_name(form.lines.split or "", name) for name in form.lines.but],
        "books_url": _books_url(form),
        "zone_name": timezone.get_current_timezone_name(),
    }


def _books_url(form: LinesForm) -> str:
    """The balance of the same window and cut."""
    query = {name: text for name, text in form.data.items() if name in KEPT and text}
    if query.get("project") == OTHERS:
        del query["project"]
    return f"{reverse('books')}?{urlencode(query)}"
