"""The vendored Plotly: no code made of text in it, the terms of all its parts, and no page that loads it for nothing."""

from __future__ import annotations

import re

import pytest
from django.conf import settings

VENDOR = settings.BASE_DIR / "static" / "vendor"
BUNDLE = next(VENDOR.glob("plotly-*/plotly.min.js"))
LARGEST = 1_191_749  # bytes of the bundle of scatter, bar and pie that the packager offers
MADE_OF_TEXT = re.compile(
    r"""(?<![\w$])(?:Function|eval)\s*\(|\(0,\s*eval\)|\bset(?:Timeout|Interval)\(\s*["'`]"""
    r"""|\.constructor\(\s*["'`]|(?<![\w$.])import\("""
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("new Function('return 1')", True), ("window.Function('a')", True), ("x=Function(a)", True), ("eval(x)", True),
        ("window.eval(x)", True), ("(0,eval)(x)", True), ('setTimeout("go()",9)', True), ("f.constructor('x')", True),
        ("import('./x')", True), ("isFunction(x)", False), ("retrieval(x)", False), ("function(a){}", False),
        ("setTimeout(go,9)", False), ("x instanceof Function", False),
    ],
)  # fmt: skip
def test_code_made_of_text_is_recognised(text: str, found: bool) -> None:
    assert bool(MADE_OF_TEXT.search(text)) is found


def test_the_bundle_has_no_code_made_of_text() -> None:
    text = BUNDLE.read_text(encoding="utf-8")
    assert [text[max(0, hit.start() - 60) : hit.end() + 60] for hit in MADE_OF_TEXT.finditer(text)] == []


def test_the_bundle_has_the_kinds_of_chart_that_pages_draw_and_is_small() -> None:
    text = BUNDLE.read_text(encoding="utf-8")
    for kind in ("scatter", "bar", "heatmap"):
        assert re.search(rf"""moduleType:["'`]trace["'`],name:["'`]{kind}["'`]""", text), kind
    assert not re.search(r"""moduleType:["'`]trace["'`],name:["'`](?!scatter|bar|heatmap)""", text)
    assert len(text.encode()) <= LARGEST


def test_the_terms_of_every_package_in_the_bundle_stand_beside_it() -> None:
    terms = (BUNDLE.parent / "LICENSE").read_text(encoding="utf-8")
    packages = re.findall(r"^(\S+) \d+\.\d+\.\d+\S* \([^)]+\)$", terms, re.M)
    assert {"plotly.js", "@plotly/d3", "native-promise-only"} <= set(packages)
    assert terms.count("Permission") + terms.count("Redistribution") + terms.count("provided 'as-is'") >= len(packages)


def test_only_pages_with_charts_load_it() -> None:
    pages = sorted((settings.BASE_DIR / "templates").rglob("*.html"))
    assert [page.name for page in pages if "plotly" in page.read_text()] == [
        "books.html",
        "card.html",
        "quality.html",
        "job.html",
        "node.html",
    ]
