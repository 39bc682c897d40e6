"""A new password: the old one is asked for and counted as at sign-in, and every other session ends."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from ledger.people import change_password
from portal.signin import seconds_locked, too_many
from portal.sudo import note_proof
from portal.views.account_forms import PasswordForm
from portal.views.gate import request_id, signed_in, viewer

TEMPLATE = "account/password.html"


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def password(request: HttpRequest) -> HttpResponseBase:
    form = PasswordForm(request, viewer(request), request.POST if request.method == "POST" else None)
    if not form.is_valid():
        seconds = seconds_locked(request, viewer(request).get_username()) if "old_password" in form.errors else 0
        if seconds:
            return too_many(request, TEMPLATE, seconds, {"form": form})
        return render(request, TEMPLATE, {"form": form}, status=422 if form.is_bound else 200)
    change_password(
        user=viewer(request),
        password=form.cleaned_data["new_password1"],
        via="page",
        request_id=request_id(request),
    )
    update_session_auth_hash(request, viewer(request))
    note_proof(request)
    messages.success(request, _("Your password is changed. All your other sessions are ended; tokens go on."))
    return redirect("account")
