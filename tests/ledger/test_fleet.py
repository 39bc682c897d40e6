"""Fleet files: the openb list comes in whole, the same file changes nothing, and a bad one writes nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger import fleet
from ledger.errors import Refused
from ledger.fleet_file import SIZE_LIMIT
from ledger.models import AuditEvent, Block, Card, CardSeat, Node, NodeZone, Zone
from tests import factories

pytestmark = pytest.mark.django_db
OPENB = Path(fleet.__file__).parents[1] / "portal/fleets/openb2023/openb_node_list_all_node.csv"
HEAD = "hostname,cpu_milli,host_memory_mib,cards,model,card_memory_mib,zone\n"
GOOD = HEAD + "a1,64000,256000,4,A100,81920,flexible\na2,32000,128000,0,,,flexible\n".replace(",,,", ",,0,")


@pytest.fixture(autouse=True)
def flexible() -> Zone:
    return factories.zone("flexible")


def _apply(text: str, name: str = "f.csv") -> fleet.Diff:
    return fleet.apply(fleet.parse(text, name), actor=None, via="test")


def _tables() -> list[int]:
    return [model.objects.count() for model in (Node, Card, CardSeat, NodeZone, Block, Zone, AuditEvent)]


def test_the_openb_fleet_has_1523_nodes_and_6212_cards() -> None:
    for slug, forms in (("whole", ["whole"]), ("container", ["container"])):
        factories.zone(slug, forms)  # type: ignore[arg-type]
    diff = _apply(OPENB.read_text())
    assert (len(diff.create), Node.objects.count(), Card.objects.count()) == (1523, 1523, 6212)
    assert Node.objects.filter(simulated=True).count() == 1523
    assert Card.objects.filter(memory_assumed=True).count() == 6212
    assert CardSeat.objects.filter(node__simulated=True, period__upper_inf=True).count() == 6212
    blocks = CardSeat.objects.exclude(block=None).values_list("node", "block__node")
    assert all(node == of for node, of in blocks)
    before = _tables()
    again = _apply(OPENB.read_text())
    assert (len(again.create), len(again.update), again.same) == (0, 0, 1523)
    assert _tables() == before


def test_a_plain_file_comes_in_and_again_changes_nothing() -> None:
    diff = _apply(GOOD)
    assert [row.hostname for row in diff.create] == ["a1", "a2"]
    node = Node.objects.get(hostname="a1")
    assert (node.cpu_milli, node.simulated, node.seats.count(), node.blocks.count()) == (64_000, False, 4, 2)
    assert node.managers == {form: "local" for form in ("container", "block", "whole")}
    assert _apply("\ufeff" + GOOD.replace("\n", "\r\n")).same == 2  # as a spreadsheet would save it


def test_a_change_is_shown_and_made() -> None:
    _apply(GOOD)
    diff = _apply(GOOD.replace("64000", "65000"))
    assert [(row.hostname, changes) for row, changes in diff.update] == [("a1", {"cpu_milli": (64_000, 65_000)})]
    assert Node.objects.get(hostname="a1").cpu_milli == 65_000
    assert AuditEvent.objects.get(verb="node.updated").before == {"cpu_milli": 64_000}


def test_yaml_brings_zones_and_labels() -> None:
    _apply(
        "zones:\n- {slug: lab, title: 实验室, forms: [container]}\n"
        "nodes:\n- hostname: y1\n  cpu_milli: 1000\n  host_memory_mib: 2000\n  zone: lab\n  labels: [ssd, 机房-1]\n",
        "f.yaml",
    )
    node = Node.objects.get()
    assert (node.labels, node.zone_periods.get().zone.title) == (["ssd", "机房-1"], "实验室")


def _row(**values: Any) -> str:
    row = {
        "hostname": "b1", "cpu_milli": 1, "host_memory_mib": 1, "cards": 1, "model": "A100", "card_memory_mib": 9,
        "zone": "flexible",
    } | values  # fmt: skip
    return GOOD + ",".join(str(value) for value in row.values()) + "\n"


BAD_CSV: dict[str, tuple[str, str]] = {
    "minus one card": (_row(cards=-1), "line 4: cards"),
    "too many cards": (_row(cards=65), "line 4: cards"),
    "huge number": (_row(cpu_milli=10**30), "line 4: cpu_milli"),
    "huge memory": (_row(host_memory_mib=10**11), "line 4: host_memory_mib"),
    "fraction": (_row(cpu_milli="1.5"), "line 4: cpu_milli"),
    "exponent": (_row(cpu_milli="1e3"), "line 4: cpu_milli"),
    "underscore": (_row(cpu_milli="1_000"), "line 4: cpu_milli"),
    "not a number": (_row(cpu_milli="NaN"), "line 4: cpu_milli"),
    "plus sign": (_row(cards="+1"), "line 4: cards"),
    "nothing": (_row(cards=""), "line 4: cards"),
    "full-width digits": (_row(cpu_milli="１２３"), "line 4: cpu_milli"),
    "arabic digits": (_row(cpu_milli="١٢٣"), "line 4: cpu_milli"),
    "unknown zone": (_row(zone="atlantis"), "line 4: zone"),
    "same host twice": (_row(hostname="a1"), "line 4: hostname a1 stands on line 2"),
    "no host name": (_row(hostname=""), "line 4: hostname"),
    "host with a path": (_row(hostname="../etc"), "line 4: hostname"),
    "long host": (_row(hostname="h" * 300), "line 4: hostname"),
    "cards without a model": (_row(model=""), "line 4: model"),
    "unknown memory": (_row(model="Z9", card_memory_mib=0), "line 4: card_memory_mib"),
    "a cell too few": (GOOD + "b1,1,1\n", "line 4: 3 cells"),
    "a cell too many": (GOOD + "b1,1,1,1,A100,9,flexible,more\n", "line 4: 8 cells"),
    "open quote": (GOOD + '"b1,1,1,1,A100,9,flexible\n', "line"),
    "control character": (_row(model="A\x1b[31m"), "line 4: model"),
    "NUL": (GOOD + "b\x001,1,1,0,,0,flexible\n", "NUL"),
    "unknown column": (GOOD.replace("zone\n", "colour\n"), "there is no field 'colour'"),
    "column twice": (GOOD.replace("cards,", "cpu_milli,", 1), "line 1: the column 'cpu_milli' stands twice"),
    "missing column": (GOOD.replace("cpu_milli", "cpu"), "cpu_milli is missing"),
    "empty": ("", "no nodes"),
    "only a header": (HEAD, "no nodes"),
    "too large": ("#" * (SIZE_LIMIT + 1), "larger than"),
    "a huge cell": (_row(model="x" * 200_000), "line 4"),
}
NODE = "- {hostname: b1, cpu_milli: 1, host_memory_mib: 1%s}\n"
DEEP = "[" * 1500 + "]" * 1500
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nnodes: [*b, *b]\n"
BAD_YAML: dict[str, tuple[str, str]] = {
    "alias bomb": (BOMB, "aliases are not allowed"),
    "key twice": ("nodes:\n" + NODE % ", cards: 0, cards: 1", "'cards' stands twice"),
    "top key twice": ("nodes: []\nnodes:\n" + NODE % "", "'nodes' stands twice"),
    "tag": ("nodes: !!python/object/apply:os.system ['true']\n", "no valid YAML"),
    "deep": (f"nodes: {DEEP}\n", ""),
    "two documents": ("nodes: []\n---\nnodes: []\n", "no valid YAML"),
    "a list": ("- a\n", "give a mapping"),
    "text": ("hello", "give a mapping"),
    "nothing": ("", "give a mapping"),
    "nodes as a mapping": ("nodes: {a: 1}\n", "the list `nodes`"),
    "node as text": ("nodes: [b1]\n", "must be a mapping"),
    "boolean for a number": ("nodes:\n" + NODE % ", cards: true", "line 2: cards"),
    "fraction": ("nodes:\n" + NODE % ", cards: 1.0", "line 2: cards"),
    "infinity": ("nodes:\n" + NODE % ", cards: .inf", "line 2: cards"),
    "huge": ("nodes:\n" + NODE % f", cards: 0x{'f' * 5000}", "line 2: cards"),
    "labels as text": ("nodes:\n" + NODE % ", labels: ssd", "line 2: labels"),
    "NUL in a label": ("nodes:\n" + NODE % ', labels: ["a\\0b"]', "line 2: labels"),
    "half a surrogate": ("nodes:\n" + NODE % ', rack: "\\uD800"', ""),
    "date for a text": ("nodes:\n" + NODE % ", rack: 2024-01-01", "line 2: rack"),
    "unknown field": ("nodes:\n" + NODE % ", colour: red", "there is no field 'colour'"),
    "unknown top field": ("fleet: 1\nnodes:\n" + NODE % "", "there is no field 'fleet'"),
    "zones as a number": ("zones: 5\nnodes:\n" + NODE % "", "zones: give a list"),
    "zone as text": ("zones: [lab]\nnodes:\n" + NODE % "", "each zone must be a mapping"),
    "unknown form": ("zones: [{slug: lab, forms: [magic]}]\nnodes:\n" + NODE % "", "forms"),
    "NUL in a title": ('zones: [{slug: lab, title: "a\\0", forms: [whole]}]\nnodes:\n' + NODE % "", "title"),
    "zone twice": ("zones: [{slug: a, forms: [whole]}, {slug: a, forms: [block]}]\nnodes:\n" + NODE % "", "stands twice"),
    "unknown field of a zone": ("zones: [{slug: a, forms: [whole], size: 3}]\nnodes:\n" + NODE % "", "'size'"),
    "bad slug": ("zones: [{slug: A b, forms: [whole]}]\nnodes:\n" + NODE % "", "slug"),
    "unknown interconnect": ("nodes:\n" + NODE % ", interconnect: string", "line 2: interconnect"),
    "unknown driver": ("nodes:\n" + NODE % ", driver: magic", "line 2: driver"),
    "real node, simulated driver": ("nodes:\n" + NODE % ", driver: simulated", "line 2: driver"),
    "simulated node, real driver": ("nodes:\n" + NODE % ", driver: local, simulated: true", "line 2: driver"),
    "block that does not fit": ("nodes:\n" + NODE % ", cards: 4, model: T4, block_size: 3", "line 2: block_size"),
}  # fmt: skip
BAD = [pytest.param(*case, "f.csv", id=name) for name, case in BAD_CSV.items()] + [
    pytest.param(*case, "f.yaml", id=f"yaml {name}") for name, case in BAD_YAML.items()
]


@pytest.mark.parametrize(("text", "message", "name"), BAD)
def test_a_bad_file_is_refused_by_line_and_writes_nothing(text: str, message: str, name: str) -> None:
    before = _tables()
    with pytest.raises(Refused) as refusal:
        _apply(text, name)
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 5000
    assert _tables() == before


def test_every_bad_row_is_named_at_once() -> None:
    text = GOOD + "b1,1,1,-1,A100,9,flexible\nb2,x,1,1,A100,9,flexible\nb3,1,1,1,A100,9,nowhere\n"
    with pytest.raises(Refused) as refusal:
        _apply(text)
    assert [line.split(":")[0] for line in str(refusal.value).splitlines()] == ["line 4", "line 5", "line 6"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("64000,256000,4", "64000,256000,8"), "cards"),
        (("81920,flexible", "81920,other"), "zone"),
    ],
)
def test_what_files_may_not_change_is_refused(change: tuple[str, str], field: str) -> None:
    factories.zone("other")
    _apply(GOOD)
    before = _tables()
    with pytest.raises(Refused, match=f"line 2: {field}"):
        _apply(GOOD.replace(*change))
    assert _tables() == before
