"""My API tokens: the list, a new one (its secret is shown in this one answer and never again), revoking."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from ledger.errors import Refused
from ledger.models import ApiToken
from ledger.people import TokenState, create_own_token, revoke_token, token_state
from portal.labels import look
from portal.sudo import needs_sudo
from portal.tables import Column, Table
from portal.views.account_forms import TokenForm
from portal.views.gate import request_id, signed_in, viewer


@dataclass(frozen=True)
class Row:
    token: ApiToken
    state: TokenState

    @property
    def live(self) -> bool:
        return self.state == TokenState.LIVE


COLUMNS = (
    Column(
        "label",
        gettext_lazy("Label"),
        lambda row: row.token.label,
        cell="account/cell_label.html",
        sort=("label",),
        always=True,
    ),
    Column(
        "state",
        gettext_lazy("State"),
        lambda row: str(look("token", row.state).label),
        cell="account/cell_token.html",
        always=True,
    ),
    Column("made", gettext_lazy("Made at"), lambda row: row.token.created_at, sort=("created_at",)),
    Column("used", gettext_lazy("Last used"), lambda row: row.token.last_used_at, sort=("last_used_at",)),
    Column("expires", gettext_lazy("Expires at"), lambda row: row.token.expires_at, sort=("expires_at",)),
)


def _rows(tokens: list[ApiToken]) -> list[Row]:
    now = timezone.now()
    return [Row(token, token_state(token, now)) for token in tokens]


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@needs_sudo
@sensitive_variables("secret")
def tokens(request: HttpRequest) -> HttpResponseBase:
    form = TokenForm(request.POST if request.method == "POST" else None)
    secret = ""
    if form.is_valid():
        try:
            secret = create_own_token(
                user=viewer(request),
                label=form.cleaned_data["label"],
                days=form.cleaned_data["days"],
                via="page",
                request_id=request_id(request),
            )
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
    table = Table(request, "tokens", COLUMNS, ApiToken.objects.filter(user=viewer(request)), decorate=_rows)
    if request.method != "POST" and (file := table.export()) is not None:  # the answer of a POST has the secret
        return file
    context = {"form": TokenForm() if secret else form, "secret": secret, "t": table.context()}
    return render(request, "account/tokens.html", context, status=422 if form.errors else 200)


@require_POST
@signed_in
def token_revoke(request: HttpRequest, pk: int) -> HttpResponseBase:
    token = ApiToken.objects.filter(user=viewer(request), pk=min(pk, 2**63 - 1)).select_related("user").first()
    if token is None:
        raise Http404(_("You have no such token."))
    if revoke_token(token=token, actor=viewer(request), via="page", request_id=request_id(request)):
        messages.success(request, _("The token is revoked: it is refused from now on."))
    else:
        messages.info(request, _("This token was revoked before."))
    return redirect("tokens")
