"""Saving what stands in the submit form under a name, and removing it again. What was typed is never lost by either."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from ledger import saved_values
from ledger.errors import Refused
from ledger.models import SavedValues
from portal.forms import SubmitForm
from portal.views.gate import request_id, signed_in, viewer
from portal.views.job_form import SaveForm, open_form, saved_of, typed_values
from portal.views.jobs import form_page


@require_POST
@signed_in
def add(request: HttpRequest) -> HttpResponseBase:
    """Save the form as it was sent, whole or half, right or wrong; then it is open again with the same values."""
    saving, typed = SaveForm(request.POST), typed_values(request.POST)
    if saving.is_valid():
        name = saving.cleaned_data["save_as"]
        try:
            saved, replaced = saved_values.save(
                user=viewer(request), name=name, values=typed, via="page", request_id=request_id(request)
            )
        except Refused as refused:
            saving.add_error("save_as", _sentence(refused))
        else:
            text = _("The values saved as “%(name)s” are replaced by these.") if replaced else _saved_text()
            messages.success(request, text % {"name": saved.name})
            return redirect(f"{reverse('submit')}?saved={saved.pk}")
    saving.fields["save_as"].widget.attrs["autofocus"] = True  # it is at the end of a long page
    form, gone = open_form(viewer(request), typed, request.POST.get("client_key", ""))
    return form_page(request, form, gone=gone, saving=saving, status=422)


def _saved_text() -> str:
    return _("The values are saved as “%(name)s”; nothing was submitted. Find them under “Start from”.")


def _sentence(refused: Refused) -> str:
    """With the label of the field that it is about, which stands elsewhere on the page."""
    field = SubmitForm.base_fields.get(refused.field.removeprefix("values.")) if "." in refused.field else None
    return f"{field.label}: {refused}" if field else str(refused)


@require_POST
@signed_in
def remove(request: HttpRequest, pk: int) -> HttpResponseBase:
    """With htmx only the list is answered, so that a half typed form stays as it is."""
    user = viewer(request)
    saved = SavedValues.objects.filter(user=user, pk=pk).select_related("user").first()
    if saved is None or not saved_values.remove(saved=saved, actor=user, via="page", request_id=request_id(request)):
        raise Http404(_("You have no such saved values."))
    text = _("The saved values “%(name)s” are removed.") % {"name": saved.name}
    if request.headers.get("HX-Request") != "true":
        messages.success(request, text)
        return redirect("submit")
    response = render(request, "jobs/saved.html", {"saved": saved_of(user), "news": text})
    shown = parse_qs(urlsplit(request.headers.get("HX-Current-URL", "")).query).get("saved", [])
    if str(pk) in shown:
        response["HX-Replace-Url"] = reverse("submit")  # else the page could not be loaded again
    return response
