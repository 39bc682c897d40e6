"""Words of alerts: what metrics and the portal's own rules are called, and the sentence of one alert, in the language
of the moment. Mails, webhooks and pages use the same ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from scheduler.alert_rows import Alert, AlertRule, Comparison

Text = str | Promise
METRICS: Final[Mapping[str, tuple[Text, str]]] = {  # what it is, and its unit
    "temperature": (gettext_lazy("temperature of a card"), "°C"),
    "memory_share": (gettext_lazy("memory of a card in use"), "%"),
    "utilisation": (gettext_lazy("utilisation of a card"), "%"),
    "tensor_active": (gettext_lazy("tensor cores active"), "%"),
    "tensor_active_busy": (gettext_lazy("tensor cores active, of cards that are at least 80 % utilised"), "%"),
    "memory_bandwidth": (gettext_lazy("memory bandwidth in use"), "%"),
    "memory_bandwidth_busy": (gettext_lazy("memory bandwidth in use, of cards that are at least 80 % utilised"), "%"),
    "open_faults": (gettext_lazy("how often an open fault was counted"), ""),
    "taken_out": (gettext_lazy("taken out for a fault or a drill"), ""),
    "dwell": (gettext_lazy("hours out of the pool"), "h"),
    "agent_silence": (gettext_lazy("seconds since the agent’s last report"), "s"),
    "queue_wait": (gettext_lazy("longest wait in the queue"), "s"),
    "drift": (gettext_lazy("open differences between the book and what is reported"), ""),
    "p99_over_sla": (gettext_lazy("P99 latency as a multiple of its promise"), "×"),
    "tokens_per_s": (gettext_lazy("tokens per second of a job"), ""),
    "queue_length": (gettext_lazy("requests that wait in a job’s own queue"), ""),
    "overdue_drills": (gettext_lazy("days that a drill is overdue"), "d"),
}
RULES: Final[Mapping[str, Text]] = {
    "temperature-high": pgettext_lazy("alert", "Card is hot"),
    "temperature-critical": pgettext_lazy("alert", "Card is too hot"),
    "memory-nearly-full": pgettext_lazy("alert", "Card memory nearly full"),
    "fault-open": pgettext_lazy("alert", "Fault of a card or node"),
    "taken-out": pgettext_lazy("alert", "Taken out of the pool"),
    "tensor-low": pgettext_lazy("alert", "Busy card, idle tensor cores"),
    "bandwidth-low": pgettext_lazy("alert", "Busy card, idle memory"),
    "agent-silent": pgettext_lazy("alert", "Agent is silent"),
    "queue-wait-inference": pgettext_lazy("alert", "Inference waits in the queue"),
    "queue-wait": pgettext_lazy("alert", "Long wait in the queue"),
    "drift": pgettext_lazy("alert", "Book and machines differ"),
    "dwell": pgettext_lazy("alert", "Out of the pool for long"),
    "sla-missed": pgettext_lazy("alert", "P99 above its promise"),
    "sla-missed-twofold": pgettext_lazy("alert", "P99 at twice its promise"),
    "drill-overdue": pgettext_lazy("alert", "Drill is overdue"),
}


def metric(name: str) -> Text:
    return METRICS.get(name, (name, ""))[0]


def unit(name: str) -> str:
    return METRICS.get(name, ("", ""))[1]


def name(rule: AlertRule) -> str:
    return rule.name or str(RULES.get(rule.key, rule.key))


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def amount(value: float, of: str) -> str:
    """With its unit."""
    return f"{number(value)} {unit(of)}".strip()


def condition(rule: AlertRule) -> str:
    """What the rule calls bad."""
    about = {"metric": metric(rule.metric), "threshold": amount(rule.threshold, rule.metric)}
    if rule.comparison == Comparison.ABOVE:
        return _("%(metric)s above %(threshold)s") % about
    return _("%(metric)s below %(threshold)s") % about


def sentence(alert: Alert) -> str:
    """What is bad, of what. A rule's own summary may name {subject}, {value} and {threshold}."""
    rule = alert.rule
    about = {
        "subject": alert.subject,
        "value": amount(alert.value, rule.metric),
        "threshold": amount(alert.threshold, rule.metric),
        "metric": str(metric(rule.metric)),
    }
    if rule.summary:
        return re.sub(r"\{(subject|value|threshold)\}", lambda found: about[found[1]], rule.summary)
    if rule.metric == "taken_out":
        return _taken_out(alert)
    if rule.metric == "open_faults":
        return _fault(alert)
    if rule.comparison == Comparison.ABOVE:
        return _("%(subject)s: %(metric)s is %(value)s, above %(threshold)s.") % about
    return _("%(subject)s: %(metric)s is %(value)s, below %(threshold)s.") % about


def _taken_out(alert: Alert) -> str:
    about = {"subject": alert.subject, "kind": alert.labels.get("kind", "")}
    return _("%(subject)s is taken out of the pool (%(kind)s).") % about


def _fault(alert: Alert) -> str:
    kind = " ".join(filter(None, (alert.labels.get("kind"), alert.labels.get("code"))))
    about = {"subject": alert.subject, "kind": kind, "n": number(alert.value)}
    return _("%(subject)s: fault %(kind)s, counted %(n)s times.") % about
