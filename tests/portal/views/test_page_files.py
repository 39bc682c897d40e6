"""What pages are made of: no inline script, only files that exist, error pages without a context, whole catalogues."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.template.loader import get_template
from django.test import Client
from django.utils import translation
from django.utils.translation.template import templatize

from ledger import vocabulary
from ledger.models import Job
from portal import labels
from portal.reclaim_rows import Phase
from scheduler.engine.fingerprint import Difference
from scheduler.promises import Breach
from scheduler.reclaim_plan import Step
from tests.portal.views.conftest import ClientAs

TEMPLATES = sorted((settings.BASE_DIR / "templates").rglob("*.html"))
VENDOR = Path(settings.BASE_DIR / "static" / "vendor")
CATALOGUE = settings.BASE_DIR / "portal" / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
PAGES = [
    "/",
    "/account/",
    "/jobs/",
    "/jobs/new/",
    "/nodes/",
    "/nodes/n1/",
    "/books/?hardware=simulated",
    "/books/chart/",
    "/health/?hardware=simulated",
    "/health/part/?hardware=simulated",
    "/health/use/",
    "/health/history/n1-card-0/",
    "/health/history/node/n1/",
]


def test_no_page_has_an_inline_script_or_handler(client_as: ClientAs, running: Job) -> None:
    client = client_as("researcher")
    for path in [*PAGES, f"/jobs/{running.pk}/", f"/jobs/{running.pk}/status/", "/no/such/page/"]:
        page = client.get(path).content.decode()
        for tag in re.findall(r"<script\b[^>]*>", page):
            assert "src=" in tag or 'type="application/json"' in tag, path
        assert not re.search(r"<[^>]+\son[a-z]+\s*=", page), path
        assert "javascript:" not in page, path


def test_the_policy_of_the_pages_allows_no_inline_script(client: Client, db: None) -> None:
    policy = client.get("/sign-in/")["Content-Security-Policy"]
    scripts = next(part for part in policy.split(";") if part.strip().startswith("script-src"))
    assert scripts.split() == ["script-src", "'self'"]


def test_htmx_may_not_evaluate_code(client: Client, db: None) -> None:
    page = client.get("/sign-in/").content.decode()
    found = re.search(r"<meta name=\"htmx-config\" content='([^']*)'", page)
    assert found
    assert json.loads(found[1])["allowEval"] is False
    assert json.loads(found[1])["includeIndicatorStyles"] is False


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_every_static_file_that_a_template_names_exists(template: Path) -> None:
    for name in re.findall(r"{% static '([^']+)' %}", template.read_text()):
        assert finders.find(name), name


@pytest.mark.parametrize("name", ["400.html", "403_csrf.html", "500.html"])
def test_pages_for_errors_need_no_context(name: str) -> None:
    """Django renders these without request and user."""
    assert "GPU Commons" in get_template(name).render()


def test_a_page_that_is_not_there_says_the_next_step(client_as: ClientAs) -> None:
    response = client_as("researcher").get("/no/such/page/")
    assert response.status_code == 404
    assert b"ask the owner to add you" in response.content


def test_a_form_of_another_site_is_refused_with_our_page(people: object) -> None:
    client = Client(enforce_csrf_checks=True)
    response = client.post("/sign-in/", {"username": "researcher", "password": "x"})
    assert response.status_code == 403
    assert b"came from another site" in response.content


def test_the_vendored_files_are_the_ones_that_were_checked_in() -> None:
    done = subprocess.run([sys.executable, VENDOR / "rebuild.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_vendored_package_has_its_licence_and_is_locked_by_hash() -> None:
    for folder in (path for path in VENDOR.iterdir() if path.is_dir()):
        assert (folder / "LICENSE").read_text().strip()
    locked = json.loads((VENDOR / "package-lock.json").read_text())["packages"]
    for name, package in locked.items():
        assert not name or package["integrity"].startswith("sha512-")
        assert "resolved" not in package


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("job", vocabulary.JobState),
        ("attempt", vocabulary.AttemptState),
        ("outcome", vocabulary.Outcome),
        ("allocation", vocabulary.AllocationState),
        ("node", vocabulary.NodeState),
        ("hold", vocabulary.HoldKind),
        ("project", vocabulary.ProjectState),
        ("form", vocabulary.Form),
        ("ask_form", vocabulary.AskForm),
        ("interconnect", vocabulary.Interconnect),
        ("distance", vocabulary.Distance),
        ("span", vocabulary.Span),
        ("difference", Difference),
        ("kind", vocabulary.JobKind),
        ("driver", vocabulary.DriverName),
        ("account", vocabulary.Account),
        ("project_role", vocabulary.ProjectRole),
        ("site_role", vocabulary.SiteRole),
        ("breach", Breach),
        ("notice", vocabulary.NoticeKind),
        ("channel", vocabulary.Channel),
        ("delivery", vocabulary.DeliveryState),
        ("resource", vocabulary.Resource),
        ("reclaim_phase", Phase),
        ("reclaim_step", Step),
    ],
)
def test_every_word_of_the_vocabulary_has_a_look(table: str, words: type) -> None:
    assert set(labels.TABLES[table]) == set(words)  # type: ignore[call-overload]


def test_every_refusal_has_a_sentence() -> None:
    assert set(labels.REFUSALS) == set(vocabulary.Refusal)


@pytest.mark.parametrize("table", ["job", "attempt", "outcome", "allocation", "node", "hold", "project"])
def test_a_state_is_never_told_by_colour_alone(table: str) -> None:
    looks = labels.TABLES[table].values()
    assert all(look.glyph for look in looks)
    with translation.override("zh-hans"):
        assert len({str(look.label) for look in looks}) == len(looks)


def test_every_text_has_a_chinese_translation() -> None:
    catalogue = polib.pofile(str(CATALOGUE))
    assert [entry.msgid for entry in catalogue if not entry.translated() or entry.fuzzy] == []


def test_translations_keep_the_placeholders() -> None:
    holes = re.compile(r"%\(\w+\)[sd]")
    for entry in polib.pofile(str(CATALOGUE)):
        texts = entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr]
        for text in texts:
            assert set(holes.findall(text)) == set(holes.findall(entry.msgid_plural or entry.msgid)), entry.msgid


def test_the_compiled_catalogue_equals_its_source() -> None:
    def texts(entries: object) -> dict[tuple[str | None, str], object]:
        return {(e.msgctxt, e.msgid): e.msgstr_plural or e.msgstr for e in entries}  # type: ignore[attr-defined]

    assert texts(polib.mofile(str(CATALOGUE.with_suffix(".mo")))) == texts(polib.pofile(str(CATALOGUE)))


LITERAL = r"""u?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
PLAIN = {"_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy"}
WITH_CONTEXT = {"pgettext", "pgettext_lazy"}


def texts_of_template(path: Path) -> set[tuple[str | None, str]]:
    code = templatize(path.read_text())
    plain = re.findall(rf"\bn?gettext\({LITERAL}", code)
    context = re.findall(rf"\bn?pgettext\({LITERAL}, *{LITERAL}", code)
    return {(None, literal_eval(text)) for text in plain} | {(literal_eval(c), literal_eval(t)) for c, t in context}


def texts_of_module(path: Path) -> set[tuple[str | None, str]]:
    found: set[tuple[str | None, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if node.func.id in PLAIN and words:
            found.add((None, words[0]))
        elif node.func.id in WITH_CONTEXT and len(words) == 2:
            found.add((words[0], words[1]))
    return found


def test_every_text_of_the_code_is_in_the_catalogue() -> None:
    known = {(entry.msgctxt, entry.msgid) for entry in polib.pofile(str(CATALOGUE))}
    modules = [p for room in ("portal", "scheduler", "ledger") for p in (settings.BASE_DIR / room).rglob("*.py")]
    used = {text for path in modules for text in texts_of_module(path)}
    used |= {text for path in TEMPLATES for text in texts_of_template(path)}
    assert len(used) > 300
    assert used - known == set()
