"""Code is compiled even where there is no folder to keep it in."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine import compiling


def test_without_a_folder_for_compiled_code_it_is_compiled_at_every_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compiler(function: Any, **how: Any) -> Any:
        asked.append(how["cache"])
        if how["cache"]:
            raise RuntimeError("cannot cache function: no locator available for file")
        return function

    monkeypatch.setattr(compiling, "_COMPILER", compiler)
    assert compiling.compiled(abs) is abs
    assert asked == [True, False]


def test_without_a_compiler_functions_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_COMPILER", None)
    assert compiling.compiled(abs) is abs
