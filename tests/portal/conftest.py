"""A data folder of a test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def data(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # hashing is slow on purpose
    return tmp_path
