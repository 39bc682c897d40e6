"""Files of tables: CSV and XLSX with units, filters and time zone inside, and no cell that a program would run.

A text that begins like a formula gets an apostrophe before it in CSV (spreadsheets then show it as text) and is
written as a string in XLSX. Every text in CSV stands in quotes, so a reader that splits at other signs finds no
second cell in it. Times are ISO 8601 in the reader's zone. `unguarded` gives a text of a CSV file back.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone

Cell = str | int | float | Decimal | dt.datetime | dt.date | bool | None
About = Sequence[tuple[str, str]]
Writer = Callable[[str, About, Sequence[str], Iterable[Sequence[Cell]]], HttpResponseBase]

# What spreadsheets may take for a formula: = + - @ and their full-width and small forms, also behind spaces, line
# breaks and marks that are not seen (direction, joiners, byte order).
UNSEEN: Final = r"[\s\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*"
SIGNS: Final = r"[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]"
RISKY: Final = re.compile(f"'*(?:[\\t\\n]|{UNSEEN}{SIGNS})")
LONGEST_CELL: Final = 32_767  # of UTF-16, Excel's limit
LARGEST_NUMBER: Final = 2**53  # beyond it a spreadsheet's number is no longer exact
CUT: Final = "…"
# XML 1.0 has no place for these, and no spreadsheet shows them
CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff\ud800-\udfff]")
LINE_BREAKS: Final = re.compile(r"\r\n?")  # XML turns them into \n, so both kinds of file do
MOST_ROWS: Final = 1_048_576  # of a sheet
MEDIA_XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def plain(value: Cell) -> str | int | float | Decimal | bool:
    """A cell as both kinds of file hold it: numbers stay numbers, times are ISO texts in the reader's zone."""
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return timezone.localtime(value).isoformat(timespec="seconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, int | float | Decimal):
        return value if math.isfinite(value) else str(value)
    return shortened(CONTROL.sub("\ufffd", LINE_BREAKS.sub("\n", str(value))))


def shortened(text: str) -> str:
    """At most LONGEST_CELL units of UTF-16, with a mark where it was cut."""
    if 2 * len(text) <= LONGEST_CELL:
        return text
    units = text.encode("utf-16-le")
    if len(units) <= 2 * LONGEST_CELL:
        return text
    return units[: 2 * (LONGEST_CELL - len(CUT))].decode("utf-16-le", "ignore") + CUT


def guarded(value: Cell) -> str | int | float | Decimal | bool:
    """`plain`, with texts that a spreadsheet would take for a formula made harmless."""
    cell = plain(value)
    return shortened(f"'{cell}") if isinstance(cell, str) and RISKY.match(cell) else cell


def unguarded(text: str) -> str:
    """The text that `guarded` was given, unless it was cut."""
    return text[1:] if text.startswith("'") and RISKY.match(text[1:]) else text


class _Echo:
    """A file that gives back what is written, for csv.writer."""

    def write(self, text: str) -> str:
        return text


def _csv_lines(about: About, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_NONNUMERIC)
    yield "\ufeff"  # so that spreadsheets read UTF-8
    for name, text in about:
        yield writer.writerow([f"# {name}", guarded(text)])
    yield writer.writerow([guarded(title) for title in header])
    for row in rows:
        yield writer.writerow([guarded(value) for value in row])


def csv_file(name: str, about: About, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> HttpResponseBase:
    response = StreamingHttpResponse(_csv_lines(about, header, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{_safe(name)}.csv"'
    return response


def xlsx_file(name: str, about: About, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> HttpResponseBase:
    """One sheet with the rows and one, "About", with what they are."""
    import xlsxwriter  # only who exports pays for it

    file = io.BytesIO()
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "in_memory": False}
    book = xlsxwriter.Workbook(file, options)
    bold = book.add_format({"bold": True})
    sheet = book.add_worksheet("Data")
    sheet.freeze_panes(1, 0)
    for column, title in enumerate(header):
        sheet.write_string(0, column, str(plain(title)), bold)
    for line, row in enumerate(islice(rows, MOST_ROWS - 1), 1):
        for column, value in enumerate(row):
            _write(sheet, line, column, plain(value))
    facts = book.add_worksheet("About")
    for line, (what, text) in enumerate(about):
        facts.write_string(line, 0, str(plain(what)), bold)
        facts.write_string(line, 1, str(plain(text)))
    book.close()
    response = HttpResponse(file.getvalue(), content_type=MEDIA_XLSX)
    response["Content-Disposition"] = f'attachment; filename="{_safe(name)}.xlsx"'
    return response


def _write(sheet: Any, line: int, column: int, cell: str | int | float | Decimal | bool) -> None:
    if isinstance(cell, bool):
        sheet.write_boolean(line, column, cell)
    elif isinstance(cell, str) or abs(cell) > LARGEST_NUMBER:
        sheet.write_string(line, column, str(cell))  # such a number would not be kept to the unit
    else:
        sheet.write_number(line, column, cell)


def _safe(name: str) -> str:
    """Letters, digits and hyphens only: no header or path can be made of it."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:100] or "table"


WRITERS: Final[Mapping[str, Writer]] = {"csv": csv_file, "xlsx": xlsx_file}
