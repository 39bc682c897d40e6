"""Select fields written by a few lines of Python: Django's own way renders two templates an option, which made up most
of the time of pages with long lists. The same HTML, to the letter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.forms import Select
from django.forms.renderers import DjangoTemplates
from django.utils.html import conditional_escape as escape
from django.utils.safestring import SafeString, mark_safe


class QuickSelects(DjangoTemplates):
    """Django's default renderer but for plain select fields."""

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> SafeString:
        if template_name == Select.template_name and _plain(context["widget"]["optgroups"]):
            return _select(context["widget"])
        return super().render(template_name, context, request)


def _plain(groups: Iterable[tuple[Any, list[Mapping[str, Any]], Any]]) -> bool:
    return all(option["template_name"] == Select.option_template_name for _, options, _ in groups for option in options)


def _select(widget: Mapping[str, Any]) -> SafeString:
    written = [f'<select name="{escape(widget["name"])}"{_attributes(widget["attrs"])}>']
    for label, options, _ in widget["optgroups"]:
        if label:
            written.append(f'\n  <optgroup label="{escape(label)}">')
        for option in options:
            value, attributes = escape(str(option["value"])), _attributes(option["attrs"])
            written.append(f'\n  <option value="{value}"{attributes}>{escape(option["label"])}</option>\n')
        if label:
            written.append("\n  </optgroup>")
    written.append("\n</select>")
    return mark_safe("".join(written))  # noqa: S308 - every value in it was escaped here


def _attributes(attributes: Mapping[str, Any]) -> str:
    return "".join(
        f" {escape(name)}" if value is True else f' {escape(name)}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not False
    )
