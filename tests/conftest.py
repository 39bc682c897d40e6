"""Fixtures that every test folder shares. The cast of people and machines is in tests/factories.py."""

from collections.abc import Iterator

import pytest

from tests.ledger import watch

pytest_configure = watch.register


@pytest.fixture(autouse=True)
def books_stay_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Database tests leave clean books behind, or fail."""
    yield from watch.watched(request)
