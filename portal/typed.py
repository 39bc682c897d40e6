"""Whole numbers that people type into addresses and fields. Nothing here fails: what is no number is None."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest

PAGE_DIGITS: Final = 9
DIGITS_OF_AN_ID: Final = 18  # fits a bigint


def whole(text: str, digits: int) -> int | None:
    """A number from 0 on with at most so many digits, of the ASCII ones."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def page_number(request: HttpRequest) -> int | None:
    """The number that `?page=` asks for, 1 without it; None for what is no page number."""
    return whole(request.GET.get("page", "1"), PAGE_DIGITS) or None


def id_of(text: str) -> int | None:
    """The number of a row that a person typed."""
    return whole(text, DIGITS_OF_AN_ID)
