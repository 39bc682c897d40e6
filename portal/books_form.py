"""The filter forms of the books: a window in the reader's time zone, a cut of the pool, and how to split what was used.

A value that is not right is named beside its field and its default stands. Writes nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final

from django import forms
from django.db.models import F
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ledger.balance import NOWHERE, OTHERS, Cut
from ledger.clock import database_now
from ledger.lines import Chosen
from ledger.models import Card, Project, RollUp, User
from ledger.vocabulary import Account
from portal import labels, periods
from portal.forms import HARDWARE, FilterForm, zone_choices

LONGEST_WINDOW: Final = dt.timedelta(days=3 * 366)
EARLIEST: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
ONE_DAY: Final = dt.timedelta(days=1)
LENGTHS: Final = {"24h": dt.timedelta(hours=24), "7d": dt.timedelta(days=7), "30d": dt.timedelta(days=30)}
WINDOWS: Final = [
    ("24h", _("last 24 hours")),
    ("7d", _("last 7 days")),
    ("30d", _("last 30 days")),
    ("this_month", _("this month")),
    ("last_month", _("last month")),
    ("own", _("from … to")),
]
STACKS: Final = [
    ("account", pgettext_lazy("stack", "account")),
    ("zone", pgettext_lazy("stack", "zone")),
    ("form", pgettext_lazy("stack", "form")),
    ("project", pgettext_lazy("stack", "project")),
    ("model", pgettext_lazy("stack", "card model")),
]
LARGE_FLEET: Final = 2_000  # cards
FRESH: Final = dt.timedelta(minutes=40)
YOUNG: Final = dt.timedelta(hours=6)
MOST_NAMES: Final = 20  # members of a split that a link to the rest of them leaves out
LONGEST_NAME: Final = 100
LONGEST_LIST: Final = 4_000


class MomentInput(forms.DateTimeInput):
    """A time of the reader's wall clock; one with an offset, as links have it, is shown there too."""

    def __init__(self) -> None:
        super().__init__(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")

    def format_value(self, value: Any) -> str | None:
        try:
            moment = parse_datetime(value) if isinstance(value, str) and len(value) <= LONGEST_NAME else None
            if moment is not None and moment.tzinfo is not None:
                return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M:%S")
        except (ValueError, OverflowError):
            pass
        return super().format_value(value)


class BooksForm(FilterForm):
    """The window and the cut of the balance."""

    window = forms.ChoiceField(label=_("Window"), required=False, choices=WINDOWS)
    start = forms.DateTimeField(label=_("From"), required=False, widget=MomentInput())
    end = forms.DateTimeField(label=_("To"), required=False, widget=MomentInput())
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=HARDWARE)
    zone = forms.ChoiceField(label=_("Zone"), required=False)
    project = forms.ChoiceField(label=_("Project"), required=False)
    model = forms.ChoiceField(label=_("Card model"), required=False)
    stack = forms.ChoiceField(label=_("Stack by"), required=False, choices=STACKS)
    unit = forms.ChoiceField(
        label=_("Unit"),
        required=False,
        choices=[("card_hours", _("card-hours")), ("mib_seconds", _("MiB-seconds (exact)"))],
    )

    def __init__(self, data: QueryDict, viewer: User, now: dt.datetime | None = None) -> None:
        self.viewer = viewer
        self.now = _newest((now or database_now()).astimezone(dt.UTC).replace(microsecond=0))
        super().__init__(data, known={"zone": _zones(), "project": self._projects(), "model": _models()})
        self.since, self.until = self._span()

    def _projects(self) -> list[tuple[str, Any]]:
        return [(p.slug, p.title) for p in Project.objects.visible_to(self.viewer).order_by("slug")]

    # -- the window ----------------------------------------------------------------------------------------------------

    def clean(self) -> None:
        start, end = self.cleaned_data.get("start"), self.cleaned_data.get("end")
        if self.cleaned_data.get("window") != "own":
            return
        for name, moment in (("start", start), ("end", end)):
            if moment is not None and moment.replace(tzinfo=dt.UTC) < EARLIEST:
                self.add_error(name, _("Times before the year 2000 are not kept."))
        if start and end and start >= end:
            self.add_error("end", _("“To” must lie after “from”."))
            self.cleaned_data.pop("start", None)  # neither can be meant
        elif start and (end or self.now) - start > LONGEST_WINDOW:
            self.add_error("start", _("The window is longer than three years."))

    def _span(self) -> periods.Window:
        """Whole seconds of UTC, never later than now: the future has no books."""
        kind, now = self.chosen.get("window", "24h"), self.now
        if kind in LENGTHS:
            return now - LENGTHS[kind], now
        if kind == "last_month":
            return periods.month_of(now, -1), periods.month_of(now)
        if kind == "this_month":
            return min(periods.month_of(now), now - dt.timedelta(seconds=1)), now
        end = min(self.chosen.get("end") or now, now).astimezone(dt.UTC).replace(microsecond=0)
        start = (self.chosen.get("start") or end - ONE_DAY).astimezone(dt.UTC).replace(microsecond=0)
        if start >= end:
            self.add_error("start", _("“From” lies in the future, which has no books yet."))
            return now - ONE_DAY, now
        return start, end

    @cached_property
    def before(self) -> periods.Window:
        """The period that the window is compared with."""
        return periods.before(self.since, self.until, month_so_far=self.chosen.get("window") == "this_month")

    # -- the rest ------------------------------------------------------------------------------------------------------

    @property
    def cut(self) -> dict[str, Any]:
        """The arguments of ledger.reports.balance that this form chooses."""
        return {"simulated": self.simulated} | {name: self.chosen.get(name) for name in ("zone", "project", "model")}

    @property
    def stacked(self) -> str:
        return str(self.chosen.get("stack", "account"))

    @property
    def exact(self) -> bool:
        return self.chosen.get("unit") == "mib_seconds"

    @property
    def unknown(self) -> list[str]:
        """Names in the address that are no field of this form nor of a table."""
        known = {*self.fields, "sort", "columns", "page", "export", "part"}
        return [name[:LONGEST_NAME] for name in self.data if name not in known]


class LinesForm(BooksForm):
    """The cut of the balance and the number in it whose lines are asked for."""

    account = forms.ChoiceField(
        label=pgettext_lazy("ledger", "Account"),
        required=False,
        choices=lambda: [("", _("all")), *labels.choices("account")],
    )
    form = forms.ChoiceField(label=_("Form"), required=False, choices=lambda: [("", _("all")), *labels.choices("form")])
    split = forms.ChoiceField(required=False, choices=STACKS[1:], widget=forms.HiddenInput())
    but = forms.CharField(required=False, max_length=LONGEST_LIST, widget=forms.HiddenInput())

    def __init__(self, data: QueryDict, viewer: User, now: dt.datetime | None = None) -> None:
        if "account" not in data:  # all of them at once is a slow question, which only a link or a person asks
            data = data.copy()
            data["account"] = Account.USED
        super().__init__(data, viewer, now)
        for name in ("stack", "unit"):
            del self.fields[name]

    def _projects(self) -> list[tuple[str, Any]]:
        return [*super()._projects(), (OTHERS, _("other projects"))]

    def clean_but(self) -> list[str]:
        """The members of the split that are left out, as a JSON list of names."""
        text = self.cleaned_data["but"]
        try:
            names = json.loads(text) if text else []
        except (ValueError, RecursionError):
            names = None
        good = isinstance(names, list) and all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names)
        if not good or len(names) > MOST_NAMES or "\x00" in "".join(names):
            raise forms.ValidationError(_("This is not a list of names."))
        return names

    @cached_property
    def lines(self) -> Chosen:
        """What ledger.lines is asked for."""
        chosen = self.chosen
        return Chosen(
            self.since,
            self.until,
            Cut(**self.cut),
            account=chosen.get("account"),
            form=chosen.get("form"),
            split=chosen.get("split") if chosen.get("but") else None,
            but=tuple(chosen.get("but", ())),
        )


def _newest(now: dt.datetime) -> dt.datetime:
    """The end of the books: now, or in a large fleet the last quarter of an hour that is rolled up, while that is
    fresh; the time since then would have to be walked card by card. In its first hours a portal's books are short,
    and all that there is to see is in that last part."""
    if Card.objects.count() <= LARGE_FLEET:
        return now
    grown = RollUp.objects.filter(pk=1, until__gt=now - FRESH, until__lte=now, since__lte=F("until") - YOUNG)
    rolled = grown.values_list("until", flat=True).first()
    return now if rolled is None else rolled.astimezone(dt.UTC)


def _zones() -> list[tuple[str, Any]]:
    return [*zone_choices(), (NOWHERE, _("in no zone"))]


def _models() -> list[tuple[str, str]]:
    """Every card model that was ever registered: the books also know of those that are gone."""
    return [(model, model) for model in Card.objects.order_by("model").values_list("model", flat=True).distinct()]
