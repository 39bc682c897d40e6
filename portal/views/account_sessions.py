"""My sessions: where I am signed in, and ending one or all others. Nobody sees or ends the sessions of others here."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth import logout
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST, require_safe

from ledger.models import User, UserSession
from ledger.people import end_other_sessions, end_session
from portal.origin import browser_name
from portal.tables import Column, Table
from portal.views.gate import request_id, signed_in, viewer


@dataclass(frozen=True)
class Row:
    session: UserSession
    browser: str
    here: bool


COLUMNS = (
    Column(
        "browser",
        gettext_lazy("Browser"),
        lambda row: row.browser,
        cell="account/cell_browser.html",
        sort=("browser",),
        always=True,
    ),
    Column(
        "which",
        gettext_lazy("Session"),
        lambda row: _("this one") if row.here else _("another one"),
        cell="account/cell_session.html",
        always=True,
    ),
    Column("address", gettext_lazy("Address"), lambda row: row.session.address, sort=("address",)),
    Column("started", gettext_lazy("Signed in at"), lambda row: row.session.started_at, sort=("started_at",)),
    Column("seen", gettext_lazy("Last used"), lambda row: row.session.seen_at, sort=("seen_at",)),
    Column("ends", gettext_lazy("Ends by itself"), lambda row: row.session.expire_date, sort=("expire_date",)),
)


def live_sessions(user: User) -> QuerySet[UserSession]:
    return UserSession.objects.filter(user=user, expire_date__gt=timezone.now()).defer("session_data")


def told(request: HttpRequest, sessions: list[UserSession]) -> list[Row]:
    mine = _digest(request)
    return [Row(session, browser_name(session.browser), session.pk == mine) for session in sessions]


def _digest(request: HttpRequest) -> str:
    return str(request.session.digest)  # type: ignore[attr-defined]


@require_safe
@signed_in
def session_list(request: HttpRequest) -> HttpResponseBase:
    table = Table(
        request,
        "sessions",
        COLUMNS,
        live_sessions(viewer(request)),
        decorate=lambda rows: told(request, rows),
        default_sort="-seen",
        order=("pk",),
    )
    if (file := table.export()) is not None:
        return file
    return render(request, "account/sessions.html", {"t": table.context()})


@require_POST
@signed_in
def session_end(request: HttpRequest, digest: str) -> HttpResponseBase:
    session = live_sessions(viewer(request)).filter(pk=digest).first()
    if session is None:
        raise Http404(_("You have no such session; it may have ended."))
    if end_session(session=session, actor=viewer(request), via="page", request_id=request_id(request)):
        messages.success(request, _("The session is ended: that browser is signed out at its next request."))
    if session.pk == _digest(request):
        logout(request)
        return redirect("sign-in")
    return redirect("sessions")


@require_POST
@signed_in
def sessions_end_others(request: HttpRequest) -> HttpResponseBase:
    n = end_other_sessions(user=viewer(request), kept=_digest(request), via="page", request_id=request_id(request))
    if n:
        text = ngettext("%(n)d other session is ended.", "%(n)d other sessions are ended.", n)
        messages.success(request, text % {"n": n})
    else:
        messages.info(request, _("There was no other session."))
    return redirect("sessions")
