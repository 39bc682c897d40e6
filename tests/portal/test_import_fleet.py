"""Fleet files: nothing is half-imported, every refusal names its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import CommandError

from ledger import fleet
from ledger.models import AuditEvent, Card, Node
from portal.seeding import BUNDLED_FLEET
from tests import factories
from tests.portal.api.client import row_counts
from tests.portal.commands import run

CSV = "hostname,cpu_milli,host_memory_mib,cards,model,zone,simulated\nh1,64000,262144,8,T4,flexible,true\n"


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.csv"
    file.write_text(CSV)
    return file


@pytest.mark.django_db
def test_import_fleet_dry_run_shows_and_writes_nothing(fleet_file: Path) -> None:
    factories.zone()
    before = row_counts()
    said = run("import_fleet", str(fleet_file), "--dry-run")
    assert "+ h1: 8 x T4 (16384 MiB a card, assumed)" in said
    assert "1 nodes with 8 cards would be added" in said
    assert row_counts() == before


@pytest.mark.django_db
def test_import_fleet_twice_adds_once(fleet_file: Path) -> None:
    factories.zone()
    assert "1 nodes with 8 cards were added" in run("import_fleet", str(fleet_file))
    before = row_counts()
    assert "0 nodes with 0 cards were added, 0 were changed, 1 are the same" in run("import_fleet", str(fleet_file))
    assert row_counts() == before
    assert Card.objects.count() == 8


BROKEN_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("f.csv", b"", "no nodes"),
    "header only": ("f.csv", CSV.splitlines()[0].encode(), "no nodes"),
    "binary": ("f.csv", b"\x89PNG\r\n\xff\xfe", "can't be read as UTF-8"),
    "NUL": ("f.csv", CSV.encode() + b"h\x002,1,1,0,,flexible,true\n", "NUL"),
    "too few cells": ("f.csv", CSV.encode() + b"h2,1\n", "line 3"),
    "a minus card": ("f.csv", CSV.encode() + b"h2,1,1,-1,T4,flexible,true\n", "line 3: cards"),
    "a million MiB too much": (
        "f.csv",
        CSV.encode() + b"h2,1,99999999999,1,T4,flexible,true\n",
        "line 3: host_memory_mib",
    ),
    "an unknown zone": ("f.csv", CSV.encode() + b"h2,1,1,0,,nope,true\n", "line 3: zone"),
    "a host twice": ("f.csv", CSV.encode() + b"h1,1,1,0,,flexible,true\n", "line 3: hostname h1 stands on line 2"),
    "a host name with a path": ("f.csv", CSV.encode() + b"../h,1,1,0,,flexible,true\n", "line 3: hostname"),
    "an unknown column": ("f.csv", b"hostname,cpu_milli,host_memory_mib,evil\nh1,1,1,x\n", "no field 'evil'"),
    "an open quote": ("f.csv", CSV.encode() + b'"h2,1,1', "no valid CSV"),
    "a YAML bomb": ("f.yaml", b"a: &a [x,x]\nnodes: [*a, *a]\n", "aliases are not allowed"),
    "a YAML object": ("f.yaml", b"nodes: !!python/object/apply:os.system ['id']\n", "no valid YAML"),
    "YAML with a key twice": ("f.yaml", b"nodes:\n- hostname: a\n  hostname: b\n", "stands twice"),
    "YAML that is a list": ("f.yaml", b"- 1\n", "give a mapping"),
    "YAML with tabs": ("f.yaml", b"nodes:\n\t- hostname: a\n", "no valid YAML"),
    "YAML nested too deeply": ("f.yaml", b"nodes: " + b"[" * 5000, "no valid YAML"),
    "YAML with a node that is a number": ("f.yaml", b"nodes:\n- 5\n", "must be a mapping"),
    "YAML with a boolean number": (
        "f.yaml",
        b"nodes:\n- {hostname: a, cpu_milli: true, host_memory_mib: 1}\n",
        "cpu_milli",
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize("case", BROKEN_FILES)
def test_import_fleet_refuses_a_broken_file_whole(tmp_path: Path, case: str) -> None:
    name, content, says = BROKEN_FILES[case]
    factories.zone()
    (tmp_path / name).write_bytes(content)
    before = row_counts()
    for words in (["--dry-run"], []):
        with pytest.raises(CommandError, match=re.escape(says)):
            run("import_fleet", str(tmp_path / name), *words)
    assert row_counts() == before


@pytest.mark.django_db
def test_import_fleet_says_when_there_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(CommandError, match="can't be read"):
            run("import_fleet", str(path))


def test_the_bundled_fleet_reads_without_an_error() -> None:
    parsed = fleet.parse(BUNDLED_FLEET.read_text(), BUNDLED_FLEET.name)
    assert parsed.errors == []
    assert (len(parsed.nodes), sum(node.cards for node in parsed.nodes)) == (1523, 6212)


@pytest.mark.django_db
def test_the_address_of_an_exporter_is_imported_and_changed(tmp_path: Path) -> None:
    factories.zone()
    file = tmp_path / "f.csv"
    head = "hostname,cpu_milli,host_memory_mib,cards,model,zone,dcgm_url\n"
    for url in ("http://h1:9400/metrics", "https://h1:9443/metrics", ""):
        file.write_text(f"{head}h1,64000,262144,8,T4,flexible,{url}\n")
        run("import_fleet", str(file))
        assert Node.objects.get().dcgm_url == url
    assert AuditEvent.objects.filter(verb="node.updated").count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    "url",
    [
        "h1:9400",
        "ftp://h1/",
        "http://",
        "http://a:b@h1/",
        "http://h1:0/",
        "http://h1:99999/",
        "http://h 1/",
        "http://h1/#x",
    ],
)
def test_what_is_no_address_of_an_exporter_is_refused(tmp_path: Path, url: str) -> None:
    factories.zone()
    file = tmp_path / "f.csv"
    file.write_text(f"hostname,cpu_milli,host_memory_mib,zone,dcgm_url\nh1,1,1,flexible,{url}\n")
    with pytest.raises(CommandError, match="line 2: dcgm_url: give an address such as"):
        run("import_fleet", str(file))
