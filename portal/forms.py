"""Forms of the pages. They parse what people type and leave judging a job to portal.api.serializers.JobInput.

Filter forms never fail a page: a value that is not right is named beside its field and not applied.
"""

from __future__ import annotations

import shlex
import zoneinfo
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, cast

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from ledger.models import Card, Project, User, Zone
from ledger.reasons import LONGEST_REASON
from portal import labels
from scheduler import slices

BIG: Final = 2**31 - 1
# JobInput's field -> the field of the page, where the names differ
PAGE_FIELDS: Final[Mapping[str, str]] = {"cpu_milli": "cpu_cores", "walltime_s": "walltime_min"}
SAME_FIELDS: Final = (
    "project",
    "name",
    "command",
    "kind",
    "image",
    "environment",
    "interconnect",
    "distance",
    "host_memory_mib",
    "reproducible",
    "like_job",
    "checkpoint",
    "metrics_port",
    "metrics_path",
    "preemptible",
    "simulated",
)
ADVANCED: Final = (
    "kind",
    "image",
    "environment",
    "data_paths",
    "interconnect",
    "distance",
    "reproducible",
    "like_job",
    "priority",
    "checkpoint",
    "metrics_port",
    "metrics_path",
    "preemptible",
    "simulated",
)


def choices_of(form: forms.BaseForm, name: str) -> forms.ChoiceField:
    """A field of a form that is known to be a select."""
    return cast(forms.ChoiceField, form.fields[name])


def style(form: forms.BaseForm) -> None:
    """Tabler's classes by kind of widget."""
    for field in form.fields.values():
        kind = "form-control"
        if isinstance(field.widget, forms.Select):
            kind = "form-select"
        elif isinstance(field.widget, forms.CheckboxInput):
            kind = "form-check-input"
        field.widget.attrs["class"] = f"{kind} {field.widget.attrs.get('class', '')}".strip()


class SubmitForm(forms.Form):
    """What a researcher types; `spec()` is the body that POST /api/v1/jobs/ would take."""

    client_key = forms.CharField(widget=forms.HiddenInput, max_length=64)
    project = forms.ChoiceField(label=_("Project"))
    name = forms.CharField(label=_("Name"), max_length=200)
    command = forms.CharField(
        label=_("Command"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "mono"}),
        help_text=_("Split into words as a shell does, but nothing is expanded. For pipes write: bash -c '…'"),
    )
    form = forms.ChoiceField(
        label=_("Form"), choices=lambda: labels.choices("ask_form"), help_text=_("Automatic: whichever is ready first.")
    )
    nodes = forms.IntegerField(label=pgettext_lazy("number", "Nodes"), initial=1, min_value=1, max_value=BIG)
    cards_per_node = forms.IntegerField(
        label=_("Cards per node"), initial=1, min_value=0, max_value=BIG, help_text=_("0: no card, CPU only.")
    )
    memory_mib = forms.IntegerField(
        label=_("Memory of each card (MiB)"), initial=0, min_value=0, max_value=BIG, help_text=_("0: the whole card.")
    )
    model = forms.ChoiceField(label=_("Card model"), required=False)
    profile = forms.ChoiceField(
        label=_("A slice as large as a MIG profile"),
        required=False,
        help_text=_(
            "Of a container, instead of the memory. Reserved as a share of this size; the card is not switched to MIG "
            "mode by any driver yet."
        ),
    )
    then_form = forms.ChoiceField(
        label=_("If it waits, also accept"),
        required=False,
        choices=lambda: [("", pgettext_lazy("fallback", "nothing else")), *labels.choices("ask_form")],
        help_text=_("The same cards in another form."),
    )
    then_after_min = forms.IntegerField(
        label=_("… after waiting (minutes)"), initial=10, min_value=0, max_value=BIG // 60
    )
    cpu_cores = forms.DecimalField(
        label=_("CPU cores per node"), initial=1, min_value=0, decimal_places=3, max_digits=9
    )
    host_memory_mib = forms.IntegerField(
        label=_("Host memory per node (MiB)"), initial=1024, min_value=0, max_value=BIG
    )
    walltime_min = forms.IntegerField(
        label=_("Time limit (minutes)"),
        required=False,
        min_value=1,
        max_value=BIG // 60,
        help_text=_("It is stopped then. Empty: as policies say, or 24 hours."),
    )
    kind = forms.ChoiceField(label=_("Kind of work"), choices=lambda: labels.choices("kind"), initial="other")
    image = forms.CharField(label=_("Container image"), required=False, max_length=300)
    environment = forms.CharField(
        label=_("Environment variables"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "mono"}),
        help_text=_("One NAME=value a line."),
    )
    data_paths = forms.CharField(
        label=_("Data paths"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "mono"}),
        help_text=_("One absolute path a line."),
    )
    interconnect = forms.ChoiceField(label=_("Links between cards"), choices=lambda: labels.choices("interconnect"))
    distance = forms.ChoiceField(label=_("Distance of nodes"), choices=lambda: labels.choices("distance"))
    reproducible = forms.BooleanField(
        label=_("Reproducible: whole machines of one kind, nobody else on them"),
        required=False,
        help_text=_("For runs that are to be compared. The form must be the whole machine."),
    )
    like_job = forms.IntegerField(
        label=_("Placed like job no."),
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        help_text=_("The same hardware, as many nodes, as near to each other."),
    )
    priority = forms.IntegerField(
        label=_("Priority"),
        required=False,
        min_value=-100,
        max_value=100,
        help_text=_("Empty: as policies say, or 0."),
    )
    checkpoint = forms.ChoiceField(
        label=_("Signal before a stop"),
        required=False,
        choices=[("", "SIGTERM"), ("SIGINT", "SIGINT"), ("SIGUSR1", "SIGUSR1"), ("SIGUSR2", "SIGUSR2")],
        help_text=_("So that it can save its state."),
    )
    metrics_port = forms.IntegerField(
        label=_("Port of its metrics"),
        required=False,
        min_value=1024,
        max_value=65_535,
        help_text=_("Where the portal reads P99, tokens a second and queue length while it runs. Empty: nowhere."),
    )
    metrics_path = forms.CharField(
        label=_("Path of its metrics"), required=False, max_length=200, help_text=_("Empty: /metrics.")
    )
    preemptible = forms.BooleanField(label=_("May be stopped for more urgent work"), required=False)
    simulated = forms.BooleanField(label=_("Simulated: run on make-believe hardware only"), required=False)

    def __init__(self, *args: Any, projects: Iterable[Project], cards: slices.Sizes, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.projects = list(projects)
        choices_of(self, "project").choices = [(p.slug, f"{p.title} ({p.slug})") for p in self.projects]
        choices_of(self, "model").choices = [("", _("any")), *((m, m) for m in cards)]
        choices_of(self, "profile").choices = [("", pgettext_lazy("slice", "none")), *slice_choices(cards)]
        style(self)

    def clean_command(self) -> list[str]:
        try:
            return shlex.split(self.cleaned_data["command"])
        except ValueError as error:
            raise ValidationError(_("This can't be split into words: %(why)s."), params={"why": error}) from None

    def clean_environment(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        for number, line in enumerate(self.cleaned_data["environment"].splitlines(), 1):
            name, equals, value = line.partition("=")
            if not line.strip():
                continue
            if not equals or not name.strip():
                raise ValidationError(_("Line %(n)d is not NAME=value."), params={"n": number})
            if name.strip() in variables:
                raise ValidationError(_("Line %(n)d sets a variable that is set above."), params={"n": number})
            variables[name.strip()] = value
        return variables

    def spec(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {
            **{name: data[name] for name in SAME_FIELDS},
            "asks": self._asks(),
            "data_paths": [line.strip() for line in data["data_paths"].splitlines() if line.strip()],
            "cpu_milli": int(data["cpu_cores"] * 1000),
            **self._not_left_open(),
        }

    def _not_left_open(self) -> dict[str, int]:
        minutes, priority = self.cleaned_data["walltime_min"], self.cleaned_data["priority"]
        found = {} if minutes is None else {"walltime_s": minutes * 60}
        return found if priority is None else found | {"priority": priority}

    def _asks(self) -> list[dict[str, Any]]:
        data = self.cleaned_data
        wish = {name: data[name] for name in ("nodes", "cards_per_node", "memory_mib", "model")}
        asks: list[dict[str, Any]] = [{"form": data["form"], **wish}]
        if data["profile"]:
            asks[0]["profile"] = data["profile"]
        if data["then_form"]:
            asks.append({"form": data["then_form"], **wish, "after_s": data["then_after_min"] * 60})
        return asks

    def take_errors(self, errors: Mapping[str, Any]) -> None:
        """Put JobInput's errors beside the fields of the page."""
        for path, message in _leaves(errors, ()):
            self.add_error(self._field(path), message)

    def _field(self, path: tuple[str, ...]) -> str | None:
        if path[:1] == ("asks",) and path[1:2] == ("1",):
            return "then_after_min" if path[-1] == "after_s" else "then_form"
        name = PAGE_FIELDS.get(path[-1], path[-1]) if path[:1] == ("asks",) else PAGE_FIELDS.get(path[0], path[0])
        return name if name in self.fields else None

    @property
    def advanced(self) -> list[forms.BoundField]:
        return [self[name] for name in ADVANCED]

    @property
    def advanced_open(self) -> bool:
        return any(name in self.errors for name in ADVANCED)


def _leaves(errors: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """DRF's nested errors as (path, message) pairs."""
    if isinstance(errors, Mapping):
        return [leaf for name, value in errors.items() for leaf in _leaves(value, (*path, str(name)))]
    if isinstance(errors, list):
        nested = [
            leaf
            for i, item in enumerate(errors)
            if isinstance(item, Mapping)
            for leaf in _leaves(item, (*path, str(i)))
        ]
        return nested + [(path or ("",), str(item)) for item in errors if not isinstance(item, Mapping)]
    return [(path or ("",), str(errors))]


class StyledForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        style(self)


class ReasonForm(StyledForm):
    """Why somebody acts; the words are kept in the audit trail."""

    reason = forms.CharField(label=_("Reason"), max_length=LONGEST_REASON)


class FilterForm(forms.Form):
    """A form over the query string; `chosen` holds the values that are right. `known` gives choices by field."""

    def __init__(self, data: QueryDict, *, known: Mapping[str, Iterable[tuple[str, Any]]]) -> None:
        super().__init__(data)
        for name, pairs in known.items():
            choices_of(self, name).choices = [("", _("all")), *pairs]
        style(self)
        self.is_valid()

    @property
    def chosen(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "", False)}

    @property
    def simulated(self) -> bool:
        return self.chosen.get("hardware") == "simulated"


HARDWARE: Final = [("real", _("real")), ("simulated", _("simulated"))]


class JobFilter(FilterForm):
    q = forms.CharField(label=_("Name or number"), required=False, max_length=200)
    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=lambda: [("", _("all")), ("live", _("not ended")), *labels.choices("job")],
    )
    project = forms.ChoiceField(label=_("Project"), required=False)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=[("", _("all")), *HARDWARE])
    mine = forms.BooleanField(label=_("Only mine"), required=False)


class NodeFilter(FilterForm):
    q = forms.CharField(label=_("Host name or rack"), required=False, max_length=200)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=HARDWARE)
    zone = forms.ChoiceField(label=_("Zone"), required=False)
    form = forms.ChoiceField(
        label=_("Form in use"),
        required=False,
        choices=lambda: [("", _("all")), ("none", pgettext_lazy("form", "not in use")), *labels.choices("form")],
    )
    state = forms.ChoiceField(
        label=_("State"), required=False, choices=lambda: [("", _("all")), *labels.choices("node"), ("held", _("held"))]
    )
    model = forms.ChoiceField(label=_("Card model"), required=False)
    free = forms.IntegerField(label=_("Free cards, at least"), required=False, min_value=0, max_value=1000)


@cache
def _time_zones() -> list[str]:
    """Hundreds of files are looked at for them."""
    return sorted(zoneinfo.available_timezones())


class AccountForm(forms.ModelForm):  # type: ignore[type-arg]
    locale = forms.ChoiceField(label=_("Language"), choices=settings.LANGUAGES)
    theme = forms.ChoiceField(
        label=_("Theme"), choices=[("auto", _("As the system")), ("light", _("Light")), ("dark", _("Dark"))]
    )
    time_zone = forms.ChoiceField(label=_("Time zone"), choices=lambda: [(name, name) for name in _time_zones()])

    class Meta:
        model = User
        fields = ("locale", "theme", "time_zone")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        style(self)


def slice_choices(cards: slices.Sizes) -> list[tuple[str, str]]:
    """The MIG profiles that cards know, each with what it is on them."""
    return [(profile, f"{profile}: {_slice_words(cuts)}") for profile, cuts in slices.cuts(cards).items()]


def _slice_words(cuts: Iterable[slices.Cut]) -> str:
    models: dict[tuple[int, int], list[str]] = {}
    for cut in cuts:
        models.setdefault((cut.memory_mib, cut.compute_milli), []).append(cut.model)
    return pgettext("separator", "; ").join(
        gettext("%(mib)d MiB and %(milli)d/1000 of the compute (%(models)s)")
        % {"mib": mib, "milli": milli, "models": ", ".join(names)}
        for (mib, milli), names in models.items()
    )


def card_models(*, simulated: bool | None = None) -> list[str]:
    """The card models that are in a seat now, for select fields."""
    cards = Card.objects.filter(seats__period__upper_inf=True)
    if simulated is not None:
        cards = cards.filter(seats__node__simulated=simulated)
    return list(cards.order_by("model").values_list("model", flat=True).distinct())


def zone_choices() -> list[tuple[str, str]]:
    return [(zone.slug, zone.title) for zone in Zone.objects.order_by("slug")]
