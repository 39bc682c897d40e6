"""Select fields are written without templates, and look as Django's own to the letter."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, override

from portal.form_renderer import QuickSelects

CHOICES: list[Any] = [
    ("", gettext_lazy("all")),
    ("a&b", '<i>"x"</i>'),
    (1234, mark_safe("<b>safe</b>")),
    ("Group <1>", [("g1", "One"), ("g2", "Two")]),
]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("value", [None, "", "a&b", 1234, "g2", "of no choice"])
def test_the_same_html_as_djangos(value: object, language: str) -> None:
    widget = forms.Select(
        attrs={"class": "a<b", "required": True, "disabled": False, "data-n": 1000, "odd>": True}, choices=CHOICES
    )
    with override(language):
        ours = widget.render("na'me", value, renderer=QuickSelects())
        assert ours == widget.render("na'me", value, renderer=DjangoTemplates())
    assert "<option" in ours


def test_it_is_the_one_in_use_and_other_fields_are_djangos() -> None:
    class Sample(forms.Form):
        some = forms.MultipleChoiceField(choices=CHOICES)
        one = forms.ChoiceField(choices=CHOICES)
        text = forms.CharField()

    form = Sample()
    assert isinstance(form.renderer, QuickSelects)
    assert "multiple" in str(form["some"])
    assert '<input type="text" name="text"' in str(form["text"])
    assert str(form["one"]).count("<option") == 5


def test_options_of_another_make_are_left_to_django() -> None:
    class Odd(forms.Select):
        option_template_name = "django/forms/widgets/radio_option.html"

    widget = Odd(choices=[("a", "A")])
    assert widget.render("x", "a", renderer=QuickSelects()) == widget.render("x", "a", renderer=DjangoTemplates())
