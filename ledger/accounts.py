"""Who may sign in and with which site role: the only writer of both. By site admins; each act leaves one audit row.

Who leaves loses access at the next request; their work goes on, their use stays in the books, and what still stands in
their name is listed by ledger.leavers.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from ledger import audit
from ledger.acts import Act
from ledger.clock import database_now
from ledger.errors import Conflict, Forbidden, Refused
from ledger.models import ApiToken, User, UserSession
from ledger.people import live_tokens
from ledger.reasons import check_reason
from ledger.roles import is_admin
from ledger.vocabulary import SiteRole

PASSWORD_BYTES: Final = 12  # of the first password, which is shown once
LONGEST_NAME: Final = 150
NOT_NAMES: Final = frozenset({"new", ".", ".."})  # their pages could not be reached


def create_account(*, username: str, email: str, site_role: SiteRole, act: Act) -> tuple[User, str]:
    """A person who may sign in, and their first password, which is stored nowhere."""
    _require_admin(act)
    _check_username(username)
    _check_email(email)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    try:
        with transaction.atomic(durable=True):
            user = User(username=username, email=email, site_role=site_role)
            user.set_password(password)
            user.save(force_insert=True)
            _record(user, "user.created", act, after={"username": username, "email": email, "site_role": site_role})
    except IntegrityError as error:
        text = _("There is somebody of the name %(name)s already.") % {"name": username}
        raise Conflict(text, field="username", code="taken") from error
    return user, password


def set_site_role(*, user: User, site_role: SiteRole, act: Act) -> User:
    """Another role from the next request on. Not one's own, and never that of the last admin."""
    _require_admin(act)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        found = _locked(user, act)
        if found.site_role == site_role:
            return found
        _keep_an_admin(found)
        before, found.site_role = found.site_role, site_role
        found.save(update_fields=["site_role"])
        _record(found, "user.site_role", act, before={"site_role": before}, after={"site_role": site_role})
    return found


def deactivate(*, user: User, act: Act) -> User:
    """The person has left: sessions and tokens end, no right is left. Nothing that runs is stopped."""
    _require_admin(act)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        found = _locked(user, act)
        if not found.is_active:
            raise Conflict(_("%(user)s has left already.") % {"user": found.username}, code="inactive")
        _keep_an_admin(found)
        found.is_active = False
        found.save(update_fields=["is_active"])
        sessions, _rows = UserSession.objects.filter(user=found).delete()
        now = database_now()
        ids = list(live_tokens(found, now).values_list("pk", flat=True))
        ApiToken.objects.filter(pk__in=ids).update(revoked_at=now)
        after = {"is_active": False, "sessions_ended": sessions, "tokens_revoked": len(ids)}
        _record(found, "user.deactivated", act, before={"is_active": True}, after=after)
    return found


def reactivate(*, user: User, act: Act) -> User:
    """The person is back, with the roles that they had; old sessions and tokens stay ended."""
    _require_admin(act)
    check_reason(act.reason)
    with transaction.atomic(durable=True):
        found = _locked(user, act)
        if found.is_active:
            raise Conflict(_("%(user)s is here.") % {"user": found.username}, code="active")
        found.is_active = True
        found.save(update_fields=["is_active"])
        _record(found, "user.reactivated", act, before={"is_active": False}, after={"is_active": True})
    return found


def _require_admin(act: Act) -> None:
    if not is_admin(act.actor):
        raise Forbidden(_("Only site admins decide who signs in and with which role."), code="role")


def _locked(user: User, act: Act) -> User:
    """The person under their lock; all admins are locked before, in order, so that two can't go at the same moment."""
    if act.actor is not None and act.actor.pk == user.pk:
        raise Forbidden(_("Nobody changes their own account in this way; ask another admin."), code="self")
    list(User.objects.filter(site_role=SiteRole.ADMIN).order_by("pk").select_for_update(no_key=True))
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _keep_an_admin(user: User) -> None:
    others = User.objects.filter(site_role=SiteRole.ADMIN, is_active=True).exclude(pk=user.pk)
    if user.site_role == SiteRole.ADMIN and user.is_active and not others.exists():
        raise Conflict(_("This is the last admin. Make somebody else one first."), code="last_admin")


def _check_username(username: str) -> None:
    try:
        UnicodeUsernameValidator()(username)
        fine = 0 < len(username) <= LONGEST_NAME and username.lower() not in NOT_NAMES
    except ValidationError:
        fine = False
    if not fine:
        text = _("Use 1 to %(n)d letters, digits and @ . + - _, but not “new” or dots alone.") % {"n": LONGEST_NAME}
        raise Refused(text, field="username", code="invalid")


def _check_email(email: str) -> None:
    try:
        if email:
            validate_email(email)
    except ValidationError:
        raise Refused(_("This is no e-mail address."), field="email", code="invalid") from None


def _record(user: User, verb: str, act: Act, **states: Any) -> None:
    audit.record(verb=verb, target=user, **states, **act.said())
