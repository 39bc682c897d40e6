"""Database tests of the ledger leave clean books behind, or the test fails."""

from collections.abc import Iterator

import pytest

from tests.ledger import watch
from tests.ledger.raw_world import World, small_world

pytest_configure = watch.register


@pytest.fixture(autouse=True)
def books_stay_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from watch.watched(request)


@pytest.fixture
def world() -> World:
    return small_world()
