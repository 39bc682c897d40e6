"""Sign-in, and what a person chooses for themself: language, theme, time zone. The account page shows all of it."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone, translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST
from django.views.i18n import set_language

from ledger.models import User
from ledger.people import live_tokens, record_sign_in
from ledger.sessions import ADDRESS, BROWSER, STARTED
from portal import odd_grant_rows, origin
from portal.forms import AccountForm
from portal.sessions import take_kept_form
from portal.views.account_sessions import live_sessions, told
from portal.views.gate import request_id, signed_in, viewer

THEMES = ("auto", "light", "dark")
SHOWN = 5  # sessions and tokens on the account page; their own pages have all of them


class SignIn(LoginView):
    template_name = "account/sign_in.html"
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_valid(form)
        session, person = self.request.session, form.get_user()
        session.pop(STARTED, None)  # somebody may have been signed in before
        session[BROWSER], session[ADDRESS] = origin.browser(self.request), origin.client_address(self.request)
        session.save()
        record_sign_in(
            user=person,
            digest=session.digest,  # type: ignore[attr-defined]
            address=session[ADDRESS],
            browser=session[BROWSER],
            request_id=request_id(self.request),
        )
        target = self.get_success_url()
        kept = take_kept_form(self.request, target)
        if kept is not None:
            return render(self.request, "account/kept.html", {"kept": kept, "target": target})
        return answer


@require_POST
def language(request: HttpRequest) -> HttpResponseBase:
    """Keep the choice in a cookie, and with the account when there is one."""
    code = request.POST.get("language", "")
    if request.user.is_authenticated and code in dict(settings.LANGUAGES):
        User.objects.filter(pk=viewer(request).pk).update(locale=code)
    return set_language(request)


@require_POST
@signed_in
def theme(request: HttpRequest) -> HttpResponseBase:
    choice = request.POST.get("theme", "")
    if choice in THEMES:
        User.objects.filter(pk=viewer(request).pk).update(theme=choice)
    target = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return redirect(target if safe else "home")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def account(request: HttpRequest) -> HttpResponseBase:
    data = request.POST if request.method == "POST" else None
    form = AccountForm(data, instance=User.objects.get(pk=viewer(request).pk))  # the menu shows what is kept, not typed
    if request.method != "POST" or not form.is_valid():
        return render(request, "account/account.html", _facts(request, form), status=422 if form.is_bound else 200)
    form.instance.save(update_fields=list(form.cleaned_data))
    translation.activate(form.cleaned_data["locale"])
    messages.success(request, _("Your settings are kept."))
    response: HttpResponse = redirect("account")
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME, form.cleaned_data["locale"], samesite="Lax", secure=settings.HTTPS
    )
    return response


def _facts(request: HttpRequest, form: AccountForm) -> dict[str, object]:
    sessions = live_sessions(viewer(request)).order_by("-seen_at")
    tokens = live_tokens(viewer(request), timezone.now()).order_by("-pk")
    return {
        "form": form,
        "sessions": told(request, list(sessions[:SHOWN])),
        "session_count": sessions.count(),
        "tokens": tokens[:SHOWN],
        "token_count": tokens.count(),
        "odd": odd_grant_rows.own(viewer(request)),
    }
