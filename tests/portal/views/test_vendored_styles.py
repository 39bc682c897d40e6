"""The vendored style sheet has the rules of every class that a page names, and pages are light enough to load."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

VENDOR = settings.BASE_DIR / "static" / "vendor"
FOLDER = next(VENDOR.glob("tabler-*"))
WORD = re.compile(r"[A-Za-z0-9_-]+")
NAMES_CLASSES = {
    "alert_forms.py",
    "forms.py",
    "zone_forms.py",
}  # the modules that name classes, as tabler.build.mjs knows
REBUILD = "run static/vendor/rebuild.py, so that the style sheet has the rules of these classes"


def pages() -> list[Path]:
    modules = [settings.BASE_DIR / "portal" / name for name in sorted(NAMES_CLASSES)]
    templates, scripts = (settings.BASE_DIR / name for name in ("templates", "static/js"))
    return [*templates.rglob("*.html"), *scripts.rglob("*.js"), *modules]


def test_no_page_names_a_class_whose_rules_were_left_out() -> None:
    left_out = set((FOLDER / "left-out.txt").read_text().split())
    assert "offcanvas" in left_out  # or the list says nothing
    missing = {path.name: sorted(left_out & set(WORD.findall(path.read_text()))) for path in pages()}
    assert {name: words for name, words in missing.items() if words} == {}, REBUILD


def test_the_classes_that_widgets_and_messages_get_have_rules() -> None:
    sheet = (FOLDER / "tabler.min.css").read_text()
    for name in (
        "form-control",
        "form-select",
        "form-check-input",
        "alert-danger",
        "alert-success",
        "show",
        "collapsing",
    ):
        assert re.search(rf"\.{name}(?![\w-])", sheet), name


def test_a_menu_of_the_navigation_bar_stays_inside_the_window() -> None:
    """Bootstrap's script sets the attribute; no page names it."""
    assert re.search(
        r"\.dropdown-menu-end\[data-bs-popper\][^{]*\{[^}]*inset-inline-end:\s*0",
        (FOLDER / "tabler.min.css").read_text(),
    )


def test_only_the_modules_that_the_build_knows_name_classes() -> None:
    portal = settings.BASE_DIR / "portal"
    naming = {
        path.name
        for path in portal.rglob("*.py")
        if re.search(r"""["']class["'](?!: "logging)|class=["']""", path.read_text())
    }
    assert naming <= NAMES_CLASSES


def test_every_variable_that_our_sheets_use_without_a_fallback_is_defined() -> None:
    sheets = [FOLDER / "tabler.min.css", *(settings.BASE_DIR / "static" / "css").glob("*.css")]
    text = "\n".join(path.read_text() for path in sheets)
    scripts = "\n".join(path.read_text() for path in pages())
    defined = set(re.findall(r"(--[\w-]+)\s*:", text)) | set(re.findall(r"(--[\w-]+)", scripts))
    ours = "\n".join(path.read_text() for path in sheets[1:])
    assert set(re.findall(r"var\((--[\w-]+)\)", ours)) - defined == set()


def test_what_every_page_loads_is_small() -> None:
    """A page is to transfer less than 1.5 MB before compression; the charts of the books take 1.04 MB of them."""
    everywhere = [
        FOLDER / "tabler.min.css",
        FOLDER / "bootstrap.min.js",
        settings.BASE_DIR / "static" / "css" / "app.css",
    ]
    charts = next(VENDOR.glob("plotly-*/plotly.min.js"))
    assert sum(path.stat().st_size for path in everywhere) < 150_000
    assert sum(path.stat().st_size for path in [*everywhere, charts]) < 1_200_000
