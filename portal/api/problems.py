"""Errors as application/problem+json (RFC 9457): {type, title, status, detail, errors: [{field, message, code}]}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, JsonResponse
from django.utils.translation import gettext as _
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler, set_rollback

from ledger.errors import Conflict, Forbidden, Refused
from portal.api.parsing import TooLarge
from portal.api.throttles import for_strangers
from portal.outlook_words import refusal_words

REFUSALS: Final[Mapping[type[Refused], int]] = {
    Conflict: status.HTTP_409_CONFLICT,
    Forbidden: status.HTTP_403_FORBIDDEN,
}
MOST_ERRORS = 50  # of one document; `detail` says how many there are


class Unavailable(exceptions.APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"
    wait = 2


class IdempotencyMismatch(exceptions.APIException):
    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_code = "idempotency_key_reused"
    field = "Idempotency-Key"


def handler(exc: Exception, context: dict[str, Any]) -> JsonResponse | None:
    if isinstance(exc, RequestDataTooBig):
        exc = TooLarge()
    elif isinstance(exc, SuspiciousOperation):  # such as more query parameters than Django reads
        exc = exceptions.ParseError(_("The request has too many or impossible parameters."))
    elif isinstance(exc, (OperationalError, InterfaceError)):  # the database restarts, or a lock was not to be had
        exc = Unavailable(_("The database does not answer just now. Try again; with an Idempotency-Key that is safe."))
    elif isinstance(exc, (exceptions.NotAuthenticated, exceptions.AuthenticationFailed)):
        exc = for_strangers(exc, context["request"])
    if isinstance(exc, Refused):
        set_rollback()
        code = next((code for kind, code in REFUSALS.items() if isinstance(exc, kind)), status.HTTP_400_BAD_REQUEST)
        message = refusal_words(exc)
        return _problem(code, exc.code, message, [{"field": exc.field, "message": message, "code": exc.code}])
    response = exception_handler(exc, context)
    if response is None:
        return None
    if isinstance(exc, exceptions.ValidationError):
        errors = _flat(exc.get_full_details())
        detail = _("%(n)d fields are not right.") % {"n": len(errors)} if len(errors) != 1 else errors[0]["message"]
        return _problem(response.status_code, "invalid", detail, errors[:MOST_ERRORS], response)
    if isinstance(exc, Http404):
        exc = exceptions.NotFound()
    elif isinstance(exc, PermissionDenied):
        exc = exceptions.PermissionDenied()
    code = getattr(exc, "default_code", "error")
    detail = str(getattr(exc, "detail", exc))
    field = getattr(exc, "field", None)
    errors = [{"field": field, "message": detail, "code": code}] if field else []
    return _problem(response.status_code, code, detail, errors, response)


def _problem(
    status_code: int, code: str, detail: str, errors: list[dict[str, str]], original: Response | None = None
) -> JsonResponse:
    """JSON whatever the view renders else: the schema is YAML, its viewer HTML."""
    body = {
        "type": f"urn:gpu-commons:problem:{code}",
        "title": _title(status_code),
        "status": status_code,
        "code": code,
        "detail": detail,
        "errors": errors,
    }
    response = JsonResponse(body, status=status_code, content_type="application/problem+json")
    for name in ("WWW-Authenticate", "Retry-After", "Allow"):
        if original is not None and name in original.headers:
            response[name] = original.headers[name]
    return response


def _title(status_code: int) -> str:
    return {
        400: _("The request is not right."),
        401: _("Sign in first."),
        403: _("You may not do this."),
        404: _("There is no such thing, or you may not see it."),
        405: _("This can't be done here."),
        409: _("This clashes with the present state."),
        413: _("The request is too large."),
        415: _("Send JSON."),
        503: _("Not available just now."),
        422: _("The request contradicts an earlier one."),
        429: _("Too many requests."),
    }.get(status_code, _("It did not work."))


def _flat(details: Any, prefix: str = "") -> list[dict[str, str]]:
    """DRF's nested details as a flat list: asks.0.nodes → message, code."""
    if isinstance(details, dict) and set(details) == {"message", "code"} and isinstance(details["message"], str):
        return [{"field": prefix, "message": str(details["message"]), "code": str(details["code"])}]
    found: list[dict[str, str]] = []
    if isinstance(details, dict):
        for key, value in details.items():
            name = prefix if key == "non_field_errors" else f"{prefix}.{key}".strip(".")
            found += _flat(value, name)
    elif isinstance(details, list):
        leaves = all(isinstance(d, dict) and set(d) == {"message", "code"} for d in details)
        for index, value in enumerate(details):
            found += _flat(value, prefix if leaves else f"{prefix}.{index}".strip("."))
    return found
