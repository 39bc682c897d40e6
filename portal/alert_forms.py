"""Forms of the pages of alerts. What may be said is judged by scheduler.alert_changes."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from portal import alert_looks
from portal.forms import HARDWARE, FilterForm, ReasonForm, StyledForm
from scheduler import alert_words
from scheduler.alert_changes import LONGEST_NAME, LONGEST_SUMMARY, RuleTerms
from scheduler.alert_matchers import parse, told
from scheduler.alert_metrics import METRICS
from scheduler.alert_rows import LONGEST_S, AlertRule, AlertRung, Comparison

ANY: Final = ("", _("all"))
LONGEST_MATCHERS: Final = 5_000
OPEN: Final = "open"


def _matchers_field(*, required: bool) -> forms.CharField:
    return forms.CharField(
        label=_("Labels"),
        required=required,
        max_length=LONGEST_MATCHERS,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "mono"}),
        help_text=_("One a line, all must hold: zone=train|infer, kind!=drill, priority>=50."),
    )


class AlertFilter(FilterForm):
    q = forms.CharField(label=_("Subject"), required=False, max_length=200)
    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=lambda: [ANY, (OPEN, _("not over")), *((s, look.label) for s, look in alert_looks.STATES.items())],
    )
    severity = forms.ChoiceField(
        label=_("Severity"),
        required=False,
        choices=lambda: [ANY, *((s, look.label) for s, look in alert_looks.SEVERITIES.items())],
    )
    rule = forms.ChoiceField(label=_("Rule"), required=False)
    hardware = forms.ChoiceField(label=_("Hardware"), required=False, choices=[ANY, *HARDWARE])


class SilenceForm(ReasonForm):
    matchers = _matchers_field(required=True)
    until = forms.DateTimeField(
        label=_("Until"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=_("In your time zone; at most 90 days."),
    )
    field_order = ("matchers", "until", "reason")

    @staticmethod
    def starting(matchers: list[list[Any]]) -> dict[str, Any]:
        """Of these labels, for two hours."""
        until = timezone.localtime() + dt.timedelta(hours=2)
        return {"matchers": "\n".join(told(matchers)), "until": until.replace(second=0, microsecond=0)}


class RuleForm(StyledForm):
    version = forms.IntegerField(widget=forms.HiddenInput, required=False, min_value=0, max_value=2**31 - 1)
    name = forms.CharField(
        label=_("Name"),
        required=False,
        max_length=LONGEST_NAME,
        help_text=_("Empty: the portal’s own name, in the language of the reader."),
    )
    metric = forms.ChoiceField(
        label=_("What it looks at"), choices=lambda: [(m, alert_words.metric(m)) for m in METRICS]
    )
    comparison = forms.ChoiceField(
        label=_("Bad is"), choices=[(Comparison.ABOVE, _("above")), (Comparison.BELOW, _("below"))]
    )
    threshold = forms.FloatField(label=_("Threshold"))
    for_s = forms.IntegerField(
        label=_("Fires after (s)"),
        min_value=0,
        max_value=LONGEST_S,
        help_text=_("So long it has to be bad; 0: at once."),
    )
    keep_s = forms.IntegerField(
        label=_("Over after (s)"), min_value=0, max_value=LONGEST_S, help_text=_("So long it has to be good again.")
    )
    severity = forms.ChoiceField(
        label=_("Severity"), choices=lambda: [(s, look.label) for s, look in alert_looks.SEVERITIES.items()]
    )
    selector = _matchers_field(required=False)
    summary = forms.CharField(
        label=_("What it says"),
        required=False,
        max_length=LONGEST_SUMMARY,
        help_text=_("May name {subject}, {value} and {threshold}. Empty: the portal’s own words."),
    )
    enabled = forms.BooleanField(label=_("On"), required=False, initial=True)

    @staticmethod
    def starting(rule: AlertRule | None) -> dict[str, Any]:
        if rule is None:
            return {"for_s": 60, "keep_s": 60, "severity": "warn", "comparison": Comparison.ABOVE}
        names = (
            "version",
            "name",
            "metric",
            "comparison",
            "threshold",
            "for_s",
            "keep_s",
            "severity",
            "summary",
            "enabled",
        )
        return {name: getattr(rule, name) for name in names} | {"selector": "\n".join(told(rule.selector))}

    @property
    def terms(self) -> RuleTerms:
        """Refused (field `selector`) when its labels can't be read."""
        data = self.cleaned_data
        selector = parse(data["selector"], "selector")
        names = ("name", "metric", "comparison", "threshold", "for_s", "keep_s", "severity", "summary", "enabled")
        return RuleTerms(selector=selector, **{name: data[name] for name in names})


class RungForm(ReasonForm):
    version = forms.IntegerField(widget=forms.HiddenInput, min_value=0, max_value=2**31 - 1)
    matchers = _matchers_field(required=False)
    channels = forms.MultipleChoiceField(
        label=_("Channels"),
        required=False,
        choices=lambda: [(c, look.label) for c, look in alert_looks.CHANNELS.items()],
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None: these alerts stay on the pages."),
    )
    enabled = forms.BooleanField(label=_("On"), required=False)
    field_order = ("matchers", "channels", "enabled", "reason")

    @staticmethod
    def starting(rung: AlertRung) -> dict[str, Any]:
        matchers = "\n".join(told(rung.matchers))
        return {"version": rung.version, "matchers": matchers, "channels": rung.channels, "enabled": rung.enabled}
