"""Saved values of the submit form: kept as typed, under a name of their owner's. Judges no value.

Who may do it is decided by the caller: people do this to what is their own. Audit rows name the set and hold none of
its values: an environment may carry secrets, and the trail can't forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.db import transaction
from django.utils.translation import gettext as _

from ledger import audit
from ledger.clock import database_now
from ledger.errors import Refused
from ledger.models import SavedValues, User

LONGEST_NAME: Final = 60
LONGEST_VALUE: Final = 20_000
LONGEST_IN_ALL: Final = 50_000
MOST_SAVED: Final = 30  # of one person


def save(
    *, user: User, name: str, values: Mapping[str, str], via: str, request_id: str = ""
) -> tuple[SavedValues, bool]:
    """Keep `values` (field → text). With True, they took the place of others of this name.

    Refused about a value names `values.<field>`, about the name `name`, about all together nothing.
    """
    name = _good_name(name)
    _check_size(values)
    with transaction.atomic(durable=True):
        User.objects.select_for_update().get(pk=user.pk)
        mine = SavedValues.objects.filter(user=user)
        known = mine.filter(name=name).exists()
        if not known and mine.count() >= MOST_SAVED:
            message = _(
                "You have %(n)d sets of saved values, the most there may be. Remove one, or use the name of one to "
                "replace it."
            )
            raise Refused(message % {"n": MOST_SAVED}, field="name", code="too_many")
        saved, created = SavedValues.objects.update_or_create(
            user=user, name=name, defaults={"values": dict(values), "saved_at": database_now()}
        )
        audit.record(
            actor=user,
            via=via,
            verb="values.saved" if created else "values.replaced",
            target=saved,
            after={"user": user.username, "name": name},
            request_id=request_id,
        )
    return saved, not created


def remove(*, saved: SavedValues, actor: User, via: str, request_id: str = "") -> bool:
    """False when they were removed before."""
    with transaction.atomic(durable=True):
        count, _rows = SavedValues.objects.filter(pk=saved.pk).delete()
        if count:
            before = {"user": saved.user.username, "name": saved.name}
            audit.record(
                actor=actor, via=via, verb="values.removed", target=saved, before=before, request_id=request_id
            )
    return bool(count)


def _good_name(name: str) -> str:
    name = " ".join(name.split())
    if not name:
        raise Refused(_("Give these values a name to save them under."), field="name", code="empty")
    if len(name) > LONGEST_NAME:
        message = _("The name has %(n)d characters; it may have %(most)d.")
        raise Refused(message % {"n": len(name), "most": LONGEST_NAME}, field="name", code="too_long")
    if not _storable(name):
        raise Refused(_("The name holds a character that can't be kept."), field="name", code="unprintable")
    return name


def _check_size(values: Mapping[str, str]) -> None:
    for name, text in values.items():
        field = f"values.{name}"
        if len(text) > LONGEST_VALUE:
            message = _("The value has %(n)d characters; %(most)d can be saved.")
            raise Refused(message % {"n": len(text), "most": LONGEST_VALUE}, field=field, code="too_long")
        if not _storable(text):
            raise Refused(_("The value holds a character that can't be kept."), field=field, code="unprintable")
    total = sum(len(name) + len(text) for name, text in values.items())
    if total > LONGEST_IN_ALL:
        message = _("The values have %(n)d characters together; %(most)d can be saved. Shorten the longest.")
        raise Refused(message % {"n": total, "most": LONGEST_IN_ALL}, field="", code="too_long")


def _storable(text: str) -> bool:
    """PostgreSQL keeps neither NUL nor half a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
