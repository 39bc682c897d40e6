"""The reason that an act of a person carries into the audit trail: said, and short enough to be kept whole."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext as _

from ledger.errors import Refused

LONGEST_REASON: Final = 500  # characters, of AuditEvent.reason and of every column that keeps one


def check_reason(reason: str, field: str = "reason") -> None:
    """Refused, naming `field`, unless it has 1 to LONGEST_REASON characters that are not all spaces."""
    if not reason.strip() or len(reason) > LONGEST_REASON:
        text = _("Give a reason of 1 to %(n)d characters.") % {"n": LONGEST_REASON}
        raise Refused(text, field=field, code="reason")
