"""Who does a thing, through what, and why: what a writer writes into each audit row of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.models import User


@dataclass(frozen=True, slots=True)
class Act:
    """`actor` None is the system itself; `via` is page, API, task, seed or a command."""

    actor: User | None
    via: str
    reason: str = ""
    request_id: str = ""
    on_behalf_of: User | None = None

    def said(self) -> dict[str, Any]:
        """The columns of an audit row that it fills."""
        fields = {name: getattr(self, name) for name in ("actor", "via", "reason", "request_id")}
        return fields | ({"on_behalf_of": self.on_behalf_of} if self.on_behalf_of is not None else {})
