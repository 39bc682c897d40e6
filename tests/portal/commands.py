"""Running a command of manage.py inside a test."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command


def run(*words: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out, **options)
    return out.getvalue()


def ends_with_1(*words: str) -> str:
    out = io.StringIO()
    with pytest.raises(SystemExit) as end:
        call_command(*words, stdout=out, stderr=out)
    assert end.value.code == 1
    return out.getvalue()
