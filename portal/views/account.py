"""Sign-in, and what a person chooses for themself: language, theme, time zone."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST
from django.views.i18n import set_language

from ledger.models import User
from portal.forms import AccountForm
from portal.views.gate import signed_in, viewer

THEMES = ("auto", "light", "dark")


class SignIn(LoginView):
    template_name = "account/sign_in.html"
    redirect_authenticated_user = True


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
    form = AccountForm(request.POST or None, instance=request.user)
    if request.method != "POST" or not form.is_valid():
        return render(request, "account/account.html", {"form": form})
    form.instance.save(update_fields=list(form.cleaned_data))
    translation.activate(form.cleaned_data["locale"])
    messages.success(request, _("Your settings are kept."))
    response: HttpResponse = redirect("account")
    response.set_cookie(settings.LANGUAGE_COOKIE_NAME, form.cleaned_data["locale"], samesite="Lax")
    return response
