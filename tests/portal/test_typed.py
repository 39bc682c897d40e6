"""What a person typed in an address, read as a number: of a page, of a row."""

from __future__ import annotations

import pytest
from django.test import RequestFactory

from portal.typed import DIGITS_OF_AN_ID, PAGE_DIGITS, id_of, page_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("007", 7),
        ("0", None),
        ("-1", None),
        ("", None),
        ("٣", None),
        ("²", None),
        ("1.0", None),
        ("9" * PAGE_DIGITS, 10**PAGE_DIGITS - 1),
        ("9" * (PAGE_DIGITS + 1), None),
    ],
)
def test_the_number_of_a_page(text: str, expected: int | None) -> None:
    assert page_number(RequestFactory().get("/", {"page": text})) == expected


def test_without_a_number_it_is_the_first_page() -> None:
    assert page_number(RequestFactory().get("/")) == 1


@pytest.mark.parametrize(
    ("text", "expected"), [("12", 12), ("0", 0), ("-1", None), ("٣", None), ("x", None), ("", None)]
)
def test_the_number_of_a_row(text: str, expected: int | None) -> None:
    assert id_of(text) == expected


def test_a_number_longer_than_the_database_holds_is_none() -> None:
    assert id_of("9" * DIGITS_OF_AN_ID) == 10**DIGITS_OF_AN_ID - 1
    assert id_of("9" * (DIGITS_OF_AN_ID + 1)) is None
