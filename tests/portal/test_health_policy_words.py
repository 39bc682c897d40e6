"""The notes of the health policy that comes with the portal are told in both languages."""

from __future__ import annotations

from django.utils import translation

from ledger.health_defaults import DEFAULT
from portal import health_policy_words


def test_every_note_of_the_default_table_is_known_here() -> None:
    assert {rule.note for rule in DEFAULT.rules} - {""} == health_policy_words.NOTES


def test_a_note_is_told_in_the_readers_language_and_a_persons_own_as_it_is() -> None:
    with translation.override("zh-hans"):
        assert health_policy_words.note("row remap failed") == "行重映射失败"
        assert health_policy_words.note("as agreed with the maker") == "as agreed with the maker"
