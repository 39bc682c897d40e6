"""The filters and tags that all pages share: amounts, lists of names, marks in both languages."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.password_validation import MinimumLengthValidator, NumericPasswordValidator
from django.utils import translation
from django.utils.text import Truncator

from portal.tables import Column
from portal.templatetags import ui


@pytest.mark.parametrize(
    ("mib", "told"),
    [
        (0, "0 MiB"),
        (512, "512 MiB"),
        (1024, "1 GiB"),
        (1536, "1.5 GiB"),
        (2816, "2.75 GiB"),
        (2820, "2.75 GiB"),
        (1025, "1.0 GiB"),
        (24 * 1024, "24 GiB"),
        (81_559, "79.6 GiB"),
        (24 * 1024 + 1, "24.0 GiB"),
    ],
)
def test_memory_is_told_in_its_nearest_unit(mib: int, told: str) -> None:
    assert ui.mib(mib) == told


def test_a_cell_groups_whole_numbers_of_number_columns_alone() -> None:
    def shown(value: Any, *, number: bool) -> Any:
        return ui.cell(Column("x", "X", lambda row: row, number=number), value)

    assert shown(1234567, number=True) == "1\u202f234\u202f567"
    assert (shown(1234567, number=False), shown(1.5, number=True), shown(None, number=True)) == (1234567, 1.5, "—")


def test_marks_follow_the_language() -> None:
    assert (ui.gap(), ui.listed(["a", "b"]), ui.project_names([])) == (" ", "a, b", "nobody")
    with translation.override("zh-hans"):
        assert (ui.gap(), ui.listed(["a", "b"])) == ("", "a、b")
        assert ui.project_names(["vision", ui.HIDDEN]) == "vision、其他项目"
        assert Truncator("abcdef").chars(4) == "abc…"


def test_people_are_addressed_alike_in_chinese() -> None:
    """Also by the texts that are Django's."""
    with translation.override("zh-hans"):
        texts = [MinimumLengthValidator().get_help_text(), NumericPasswordValidator().get_help_text()]
    assert all("您" in str(text) and "你" not in str(text) for text in texts)
