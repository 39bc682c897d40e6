"""What a writer raises when it will not do a thing. `str()` is a sentence for people; `field` names the input."""

from __future__ import annotations


class Refused(Exception):
    """The request can't be carried out as it stands; nothing was written."""

    def __init__(self, message: str, *, field: str = "", code: str = "refused") -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class Conflict(Refused):
    """It could have been carried out in another state of the world (HTTP 409)."""


class Forbidden(Refused):
    """This person may see the thing and not do this to it (HTTP 403). What they may not see is simply not there."""
