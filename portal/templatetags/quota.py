"""Filters for amounts of quota: `{{ claim.takes|amount:claim.resource }}`. Nothing here reads the database."""

from __future__ import annotations

import datetime as dt

from django import template
from django.utils.formats import date_format

from portal import quota_words
from portal.labels import Text

register = template.Library()


@register.filter
def amount(value: int | str | None, resource: str) -> str:
    """With its unit; a dash for what is not there."""
    return quota_words.told(resource, value) if isinstance(value, int) else "—"


@register.filter
def number(value: int | str | None, resource: str) -> str:
    """Without it."""
    return quota_words.number(resource, value) if isinstance(value, int) else "—"


@register.filter
def renewal(renews: str) -> Text:
    return quota_words.RENEWALS.get(renews, renews)


@register.filter
def utc_day(moment: dt.datetime) -> str:
    """The day of UTC that begins then, in the language of the reader."""
    return date_format(moment.astimezone(dt.UTC).date(), "DATE_FORMAT")


@register.filter
def whose(refusal: str) -> Text:
    return quota_words.WHOSE.get(refusal, refusal)
