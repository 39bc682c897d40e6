"""A browser for tests that look at the answer alone, not at the templates and what they were given."""

from __future__ import annotations

from typing import Any

from django.test import Client


class LeanClient(Client):
    """Keeps no copy of what every template was given, which can take longer than the page itself. A view that raises
    is answered with 500."""

    def request(self, **request: Any) -> Any:
        response = self.handler(self._base_environ(**request))
        self.cookies.update(response.cookies)
        return response
