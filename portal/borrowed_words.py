"""Texts of Django whose Chinese our catalogue words anew: it says "you" as our pages do, and cuts a text with one mark.
Named here alone so that makemessages keeps them; nothing reads this module.
"""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy, pgettext_lazy

BORROWED: Final = (
    pgettext_lazy("String to return when truncating text", "%(truncated_text)s…"),
    _("Your old password was entered incorrectly. Please enter it again."),
    _("Your password can’t be too similar to your other personal information."),
    _("Your password can’t be a commonly used password."),
    _("Your password can’t be entirely numeric."),
    ngettext_lazy(
        "Your password must contain at least %(min_length)d character.",
        "Your password must contain at least %(min_length)d characters.",
        "min_length",
    ),
)
