"""Files of tables, read back with other code than wrote them: nothing in them runs, and nothing in them is lost."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import openpyxl
import pytest
from django.http import HttpResponseBase
from django.utils import timezone
from openpyxl.utils.escape import unescape

from portal import exports

ABOUT = [("Window", "2026-03-01 – 2026-04-01"), ("Filters", '=HYPERLINK("http://x")')]
HEADER = ["name", "amount"]
SIGNS = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\ufe62", "\ufe63", "\ufe6b"]
HIDDEN = ["", " ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u200f", "\u202e", "\ufeff", "\u2066 ", "'", "''", "' "]
FORMULAS = [f"{before}{sign}cmd|' /C calc'!A0" for before in HIDDEN for sign in SIGNS] + [
    "\tx",
    "\rx",
    "\nx",
    "-",
    "=",
    "'\tx",
]
HARMLESS = [
    "", "plain", "'t Hooft", "O'Brien", "a,b;c\td", 'say "hi"', '"', "a\nb", "a\r\nb", "a;=1+1", 'x",=1+1,"y', "1e5", "007", "TRUE",
    "نص من اليمين", "\u202eevil", "简体中文", "💥" * 50, "_x0041_", "_x000D_", "<b>&amp;</b>", "a\x85b", "#1", "# Window",
]  # fmt: skip
CONTROLS = ["a\x00b", "\x01=1", "\x1b[31mred", "a\ud800b", "\x7f", "\ufffe"]


def content(response: HttpResponseBase) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content  # type: ignore[attr-defined]


def from_csv(rows: Sequence[Sequence[exports.Cell]], delimiter: str = ",") -> list[list[str]]:
    data = content(exports.csv_file("t", ABOUT, HEADER, rows)).decode("utf-8-sig")
    return list(csv.reader(io.StringIO(data, newline=""), delimiter=delimiter))


def from_xlsx(rows: Sequence[Sequence[exports.Cell]]) -> Any:
    return openpyxl.load_workbook(io.BytesIO(content(exports.xlsx_file("t", ABOUT, HEADER, rows))))


def text_of(cell: Any) -> str:
    """What a spreadsheet shows: openpyxl leaves _xHHHH_, the format's own escapes, as they stand in the file."""
    return unescape(cell.value or "")


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_of_a_csv_file_begins_like_a_formula(text: str) -> None:
    (*_, (cell, _)) = from_csv([[text, 1]])
    assert cell.startswith("'")
    assert exports.unguarded(cell) == exports.plain(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_stand_in_a_csv_file_as_they_are(text: str) -> None:
    (*_, (cell, _)) = from_csv([[text, 1]])
    assert cell == exports.plain(text) == text.replace("\r\n", "\n")
    assert exports.unguarded(cell) == cell


def test_a_reader_that_splits_at_other_signs_finds_no_cell_of_its_own() -> None:
    for delimiter in (";", "\t", "|"):
        for text in ("a;=1+1", "a\t=1+1", "a|=1+1"):
            (*_, row) = from_csv([[text, 1]], delimiter)
            assert not any(cell.startswith("=") for cell in row)


@pytest.mark.parametrize("text", FORMULAS + HARMLESS + CONTROLS)
def test_an_xlsx_file_holds_every_text_as_a_text(text: str) -> None:
    book = from_xlsx([[text, 1]])
    cell = book["Data"].cell(2, 1)
    assert cell.data_type in ("s", "inlineStr", "n")  # n: an empty cell
    assert text_of(cell) == exports.plain(text)
    assert cell.hyperlink is None
    assert book["About"].cell(2, 2).data_type == "s"


@pytest.mark.parametrize("text", CONTROLS)
def test_signs_that_no_file_can_hold_are_replaced_and_seen(text: str) -> None:
    (*_, (cell, _)) = from_csv([[text, 1]])
    assert "\ufffd" in cell
    assert not exports.CONTROL.search(cell)


@pytest.mark.parametrize("text", ["x" * 40_000, "=" + "x" * 40_000, "💥" * 20_000, "a" + "💥" * 20_000])
def test_what_is_too_long_for_a_cell_is_cut_with_a_mark(text: str) -> None:
    value = from_xlsx([[text, 1]])["Data"].cell(2, 1).value
    (*_, (cell, _)) = from_csv([[text, 1]])
    for kept in (value, cell):
        assert len(kept.encode("utf-16-le")) // 2 <= exports.LONGEST_CELL
        assert kept.endswith("…")
        assert exports.unguarded(kept)[:1000] == text[:1000]
    assert exports.plain("x" * exports.LONGEST_CELL) == "x" * exports.LONGEST_CELL


def test_numbers_are_numbers() -> None:
    values: list[exports.Cell] = [0, -5, 3.25, Decimal("7.125"), 2**53, -(2**53), True]
    sheet = from_xlsx([[value, 1] for value in values])["Data"]
    assert [sheet.cell(line, 1).value for line in range(2, 2 + len(values))] == values
    assert {sheet.cell(line, 1).data_type for line in range(2, 2 + len(values) - 1)} == {"n"}
    read = from_csv([[value, 1] for value in values])[-len(values) :]
    assert [row[0] for row in read] == ["0", "-5", "3.25", "7.125", str(2**53), str(-(2**53)), "True"]


def test_a_number_too_large_for_a_spreadsheet_is_kept_to_the_unit() -> None:
    number = 2**53 + 1
    cell = from_xlsx([[number, 1]])["Data"].cell(2, 1)
    assert cell.value == str(number)
    (*_, (text, _)) = from_csv([[number, 1]])
    assert text == str(number)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), Decimal("NaN")])
def test_what_is_no_number_breaks_no_file(value: exports.Cell) -> None:
    assert from_xlsx([[value, 1]])["Data"].cell(2, 1).value.lower().lstrip("-") in ("nan", "inf")
    (*_, (text, _)) = from_csv([[value, 1]])
    assert exports.unguarded(text).lower().lstrip("-") in ("nan", "inf")


def test_times_are_in_the_readers_zone_with_their_offset() -> None:
    moment = dt.datetime(2026, 7, 1, 12, 0, tzinfo=dt.UTC)
    with timezone.override("Asia/Shanghai"):
        assert from_csv([[moment, dt.date(2026, 7, 1)]])[-1] == ["2026-07-01T20:00:00+08:00", "2026-07-01"]
        assert from_xlsx([[moment, 1]])["Data"].cell(2, 1).value == "2026-07-01T20:00:00+08:00"


def test_a_file_says_what_it_is_and_its_name_makes_no_header() -> None:
    read = from_csv([])
    assert read[:3] == [["# Window", ABOUT[0][1]], ["# Filters", "'" + ABOUT[1][1]], HEADER]
    book = from_xlsx([])
    assert [cell.value for cell in book["About"]["A"]] == ["Window", "Filters"]
    assert [cell.value for cell in book["Data"][1]] == HEADER
    for kind, write in exports.WRITERS.items():
        name = write('a"; filename="../../x\r\nSet-Cookie: y', [], HEADER, [])["Content-Disposition"]
        assert name == f'attachment; filename="a-filename-x-Set-Cookie-y.{kind}"'


@pytest.mark.parametrize("seed", range(20))
def test_random_texts_come_back_as_they_went(seed: int) -> None:
    draw = random.Random(seed)
    signs = [*SIGNS, *HIDDEN, '"', ",", ";", "\n", "'", "a", "中", "💥", "\u202e", "\x00", "_x0041_", "&", "<"]
    texts = ["".join(draw.choices(signs, k=draw.randrange(0, 12))) for _ in range(60)]
    rows = [[text, number] for number, text in enumerate(texts)]
    read = from_csv(rows)[-len(rows) :]
    assert [exports.unguarded(cell) for cell, _ in read] == [exports.plain(text) for text in texts]
    sheet = from_xlsx(rows)["Data"]
    assert [text_of(sheet.cell(line, 1)) for line in range(2, 62)] == [exports.plain(text) for text in texts]
    assert [sheet.cell(line, 2).value for line in range(2, 62)] == list(range(60))
    assert not any(sheet.cell(line, 1).data_type == "f" for line in range(2, 62))
