"""Help by role in both languages: whole pages of prose, so they are files of their own, not catalogue entries."""

from __future__ import annotations

from typing import Final

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.labels import Text
from portal.views.gate import signed_in

TOPICS: Final[dict[str, Text]] = {
    "keys": gettext_lazy("Keys"),
    "researcher": gettext_lazy("For researchers"),
    "projects": gettext_lazy("Projects, quota and requests"),
    "admin": gettext_lazy("For administrators and operators"),
    "manager": gettext_lazy("For managers and auditors"),
    "api": gettext_lazy("The API"),
}


@require_safe
@signed_in
def help_page(request: HttpRequest, topic: str = "researcher") -> HttpResponseBase:
    if topic not in TOPICS:
        raise Http404(_("There is no help of this name."))
    folder = "zh_Hans" if (get_language() or "en").startswith("zh") else "en"
    context = {"topic": topic, "topics": TOPICS.items(), "body": f"help/{folder}/{topic}.html"}
    return render(request, "help/help.html", context)
