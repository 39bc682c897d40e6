"""The small world that the guards of the database are tried on."""

import pytest

from tests.ledger.raw_world import World, small_world


@pytest.fixture
def world() -> World:
    return small_world()
