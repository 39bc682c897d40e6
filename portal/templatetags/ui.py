"""Template tags: states as glyph + word + tone, times with UTC in the tooltip, amounts with their unit.

The HTML itself is in templates/partials/. Nothing here reads the database.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import number_format
from django.utils.translation import get_language, pgettext
from django.utils.translation import gettext as _

from portal import labels
from portal.api.company import HIDDEN

register = template.Library()

GIB = 1024
FINE = 10  # GiB; below it two decimals are told
MINUTE, HOUR, DAY = 60, 3_600, 86_400
SHORT_ID = 16


@register.inclusion_tag("partials/look.html")
def look(table: str, word: str) -> dict[str, Any]:
    """`{% look "job" job.state %}`"""
    return {"look": labels.look(table, word)}


@register.simple_tag
def word(table: str, value: str) -> labels.Text:
    """The translated label alone: `{% word "form" allocation.form %}`"""
    return labels.look(table, value).label


@register.filter
def refusal(value: str) -> labels.Text:
    return labels.refusal(value)


@register.inclusion_tag("partials/when.html")
def when(moment: dt.datetime | str | None, form: str = "full") -> dict[str, Any]:
    """A time in the reader's zone, UTC in the title. `moment` may be the API's ISO text.

    `form`: full, or short (no seconds, no year when it is this one)."""
    parsed = parse_datetime(moment) if isinstance(moment, str) else moment
    if parsed is None:
        return {"moment": None}
    local = timezone.localtime(parsed)
    pattern = "%Y-%m-%d %H:%M:%S"
    if form == "short":
        pattern = "%m-%d %H:%M" if local.year == timezone.localtime().year else "%Y-%m-%d %H:%M"
    utc = parsed.astimezone(dt.UTC)
    return {"moment": parsed, "text": local.strftime(pattern), "utc": utc.strftime("%Y-%m-%d %H:%M:%S UTC")}


@register.filter
def mib(value: int | None) -> str:
    """MiB for people: 512 MiB, 2.75 GiB, 24 GiB, 79.6 GiB. Small shares are told apart by the second decimal."""
    if value is None:
        return "—"
    if abs(value) < GIB:
        return f"{value} MiB"
    if value % GIB == 0:
        return f"{number_format(value // GIB)} GiB"
    return f"{number_format(round(value / GIB, 2 if abs(value) < FINE * GIB else 1))} GiB"


@register.filter
def cores(milli: int | None) -> str:
    """Milli-cores as cores: 1500 is 1.5."""
    if milli is None:
        return "—"
    return f"{milli / 1000:g}"


@register.filter
def duration(seconds: float | None) -> str:
    """Two parts at most: 45 s, 3 min 20 s, 2 h 5 min, 4 d."""
    if seconds is None:
        return "—"
    whole = max(0, int(seconds))
    parts = [
        _("%(n)d d") % {"n": whole // DAY} if whole >= DAY else "",
        _("%(n)d h") % {"n": whole % DAY // HOUR} if whole % DAY >= HOUR else "",
        _("%(n)d min") % {"n": whole % HOUR // MINUTE} if whole % HOUR >= MINUTE and whole < DAY else "",
        _("%(n)d s") % {"n": whole % MINUTE} if whole % MINUTE and whole < HOUR else "",
    ]
    return " ".join(part for part in parts if part) or _("%(n)d s") % {"n": 0}


@register.filter
def grouped(value: float | None, decimals: int = 0) -> str:
    """A number with thin spaces between thousands, the same in both languages: 1 234 567."""
    return "—" if value is None else f"{value:,.{decimals}f}".replace(",", "\u202f")


@register.simple_tag
def gap() -> str:
    """The space after a colon or a full stop; full-width marks bring their own."""
    return "" if (get_language() or "").startswith("zh") else " "


@register.filter
def listed(names: Iterable[Any]) -> str:
    """Names side by side, with the comma of the language."""
    return pgettext("list", ", ").join(str(name) for name in names)


@register.filter
def project_names(names: Iterable[str] | None) -> str:
    """Those of portal.api.company: other people's projects have no name there."""
    return listed(_("another project") if name == HIDDEN else name for name in names or ()) or _("nobody")


@register.filter
def or_dash(value: Any) -> Any:
    """A dash for what is not known; 0 is known."""
    return "—" if value in (None, "") else value


@register.filter
def short_id(value: str) -> str:
    return value if len(value) <= SHORT_ID else f"{value[:SHORT_ID]}…"


@register.filter
def hours(card_seconds: int | None) -> str:
    """Card-seconds as card-hours with two decimals."""
    if card_seconds is None:
        return "—"
    return f"{card_seconds / HOUR:,.2f}".replace(",", "\u202f")


@register.filter
def milli_hours(card_milli_s: int | None) -> str:
    """Milli-card-seconds as card-hours with two decimals."""
    return hours(None if card_milli_s is None else card_milli_s // 1000)


@register.simple_tag
def cell(column: Any, row: Any) -> Any:
    """What a column of portal.tables shows when it has no template of its own."""
    value = column.value(row)
    if isinstance(value, dt.datetime):
        return render_to_string("partials/when.html", when(value, "short"))
    if column.number and isinstance(value, int):
        return grouped(value)
    return or_dash(value)
