"""Fleet files: our CSV and YAML and the openb node list become FleetNode rows, each problem with its line.

No database here.
"""

from __future__ import annotations

import csv
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from io import StringIO
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from ledger.vocabulary import DriverName, Form, Interconnect, Supply

NAMESPACE = uuid.UUID("6c1b5d3e-0a8f-4c63-9d5e-7f6f0f3c2a11")
HOSTNAME = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")
SIZE_LIMIT = 20 * 1024 * 1024

# Card memory in MiB where a source names only the model. The openb trace hides what G1 to G3 are: guesses by
# the shape of their nodes.
ASSUMED_MEMORY: Final[Mapping[str, int]] = {
    "T4": 16_384,
    "P100": 16_384,
    "V100M16": 16_384,
    "V100M32": 32_768,
    "A10": 24_576,
    "G1": 16_384,
    "G2": 40_960,
    "G3": 81_920,
}
NVLINK_MODELS = frozenset({"V100M16", "V100M32", "G2", "G3"})


@dataclass(frozen=True)
class FleetNode:
    """One row of a fleet file. `card_memory_mib` 0 = the assumed figure of the model; `block_size` -1 = default."""

    line: int
    hostname: str
    cpu_milli: int
    host_memory_mib: int
    cards: int = 0
    model: str = ""
    card_memory_mib: int = 0
    site: str = ""
    room: str = ""
    rack: str = ""
    leaf: str = ""
    interconnect: str = Interconnect.PCIE
    network: str = ""
    labels: tuple[str, ...] = ()
    zone: str = "flexible"
    supply: str = Supply.OWNED
    simulated: bool = False
    driver: str = ""
    block_size: int = -1
    dcgm_url: str = ""

    @property
    def memory_assumed(self) -> bool:
        return self.cards > 0 and self.card_memory_mib == 0

    @property
    def memory_mib(self) -> int:
        return self.card_memory_mib or ASSUMED_MEMORY.get(self.model, 0)

    def card_uuid(self, slot: int) -> str:
        prefix = "SIM" if self.simulated else "GPU"
        return f"{prefix}-{uuid.uuid5(NAMESPACE, f'{self.hostname}/{slot}')}"


@dataclass
class Fleet:
    nodes: list[FleetNode] = field(default_factory=list)
    zones: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # slug → (title, forms)
    errors: list[str] = field(default_factory=list)


CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "interconnect": list(Interconnect),
    "supply": list(Supply),
    "driver": ["", *DriverName],
}
NUMBERS = {"cpu_milli", "host_memory_mib", "cards", "card_memory_mib", "block_size"}
KNOWN = {f.name for f in fields(FleetNode)} - {"line"}
REQUIRED = {"hostname", "cpu_milli", "host_memory_mib"}
LIMITS = {
    "cpu_milli": 100_000_000,
    "host_memory_mib": 64 * 1024**2,
    "cards": 64,
    "card_memory_mib": 1024**2,
    "block_size": 64,
}


def parse(text: str, name: str) -> Fleet:
    """Read a file's text; every problem is listed in `errors` with its line."""
    if len(text) > SIZE_LIMIT:
        return Fleet(errors=[f"{name}: the file is larger than {SIZE_LIMIT // 1024**2} MiB"])
    if "\x00" in text:
        return Fleet(errors=[f"{name}: the file holds NUL bytes; it is not a text file"])
    fleet = _parse_yaml(text) if name.endswith((".yaml", ".yml")) else _parse_csv(text)
    seen: dict[str, int] = {}
    for node in fleet.nodes:
        if node.hostname in seen:
            fleet.errors.append(
                f"line {node.line}: hostname {node.hostname} stands on line {seen[node.hostname]} already"
            )
        seen[node.hostname] = node.line
    if not fleet.nodes and not fleet.errors:
        fleet.errors.append(f"{name}: there are no nodes in this file")
    return fleet


def _parse_csv(text: str) -> Fleet:
    fleet = Fleet()
    reader = csv.reader(StringIO(text.lstrip("\ufeff")), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        return Fleet(errors=[f"line {reader.line_num}: this is no valid CSV: {error}"])
    rows = [(line, row) for line, row in rows if not row[0].lstrip().startswith("#")]
    if not rows:
        return fleet
    header = [cell.strip() for cell in rows[0][1]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        return Fleet(errors=[f"line {rows[0][0]}: the column {name!r} stands twice" for name in twice])
    openb = header == ["sn", "cpu_milli", "memory_mib", "gpu", "model"]
    for index, (line, row) in enumerate(rows[1:]):
        if len(row) != len(header):
            fleet.errors.append(f"line {line}: {len(row)} cells where the header has {len(header)}")
            continue
        values: dict[str, Any] = dict(zip(header, (cell.strip() for cell in row), strict=True))
        if "labels" in values:
            values["labels"] = [part for part in values["labels"].split(";") if part]
        _add(fleet, line, _from_openb(values, index) if openb else values)
    return fleet


def _from_openb(row: Mapping[str, str], index: int) -> dict[str, Any]:
    """A row of the openb node list. Racks of 8 nodes and leaves of 4 racks are made up from the row order; zones by
    the node's shape: one in four 8-card nodes is kept for whole machines, small ones serve containers."""
    cards = row["gpu"]
    eight = cards == "8"
    zone = "whole" if eight and index % 4 == 0 else "flexible" if eight or cards == "4" else "container"
    return {
        "hostname": row["sn"],
        "cpu_milli": row["cpu_milli"],
        "host_memory_mib": row["memory_mib"],
        "cards": cards,
        "model": row["model"],
        "site": "openb",
        "room": f"room-{index // 512 + 1}",
        "rack": f"rack-{index // 8 + 1:03d}",
        "leaf": f"leaf-{index // 32 + 1:02d}",
        "interconnect": Interconnect.NVLINK if row["model"] in NVLINK_MODELS and eight else Interconnect.PCIE,
        "zone": zone,
        "simulated": "true",
    }


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses aliases (bombs) and repeated keys, and remembers line numbers."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        mapping = super().construct_mapping(node, deep)
        mapping["__line__"] = node.start_mark.line + 1
        return mapping


def _parse_yaml(text: str) -> Fleet:
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return Fleet(errors=[f"this is no valid YAML: {' '.join(str(error).split())[:300]}"])
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        return Fleet(errors=["line 1: give a mapping with the list `nodes` (and, if wanted, `zones`)"])
    fleet = Fleet()
    for unknown in sorted(set(map(str, document)) - {"nodes", "zones", "__line__"}):
        fleet.errors.append(f"line 1: there is no field {unknown!r}; known are nodes and zones")
    zones = document.get("zones") or []
    if not isinstance(zones, list):
        fleet.errors.append("line 1: zones: give a list of zones, each with slug, title and forms")
        zones = []
    for zone in zones:
        _add_zone(fleet, zone)
    for row in document["nodes"]:
        if not isinstance(row, dict):
            fleet.errors.append(f"line {document['__line__']}: each node must be a mapping, not {type(row).__name__}")
            continue
        line = row.pop("__line__")
        _add(fleet, line, row)
    return fleet


def _add_zone(fleet: Fleet, zone: Any) -> None:
    if not isinstance(zone, dict):
        fleet.errors.append("zones: each zone must be a mapping with slug, title and forms")
        return
    line, slug, forms = zone.get("__line__", 1), zone.get("slug"), zone.get("forms")
    if not isinstance(slug, str) or not re.fullmatch(r"[a-z0-9-]{1,50}", slug):
        fleet.errors.append(f"line {line}: slug: give lower-case letters, digits and -")
    elif not isinstance(forms, list) or not forms or any(form not in list(Form) for form in forms):
        fleet.errors.append(f"line {line}: forms: give a list of {', '.join(Form)}")
    elif not _is_text(zone.get("title", slug), 200):
        fleet.errors.append(f"line {line}: title: give a text of at most 200 characters")
    elif slug in fleet.zones:
        fleet.errors.append(f"line {line}: slug: the zone {slug} stands twice")
    elif unknown := sorted(map(str, set(zone) - {"slug", "title", "forms", "__line__"})):
        fleet.errors.append(f"line {line}: there is no field {unknown[0]!r}; known are slug, title and forms")
    else:
        fleet.zones[slug] = (zone.get("title", slug), forms)


def _add(fleet: Fleet, line: int, row: Mapping[str, Any]) -> None:
    errors = [
        f"there is no field {name!r}; known are {', '.join(sorted(KNOWN))}"
        for name in sorted(map(str, set(row) - KNOWN))
    ]
    errors += [f"{name} is missing" for name in sorted(REQUIRED - set(row))]
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name in KNOWN:
            try:
                values[name] = _cell(name, value)
            except ValueError as error:
                errors.append(f"{name}: {error}")
    if not errors:
        node = FleetNode(line=line, **values)
        errors = _contradictions(node)
    if errors:
        fleet.errors += [f"line {line}: {error}" for error in errors]
    else:
        fleet.nodes.append(node)


def _cell(name: str, value: Any) -> Any:
    if name in NUMBERS:
        return _number(name, value)
    if name in OWN_WAYS:
        return OWN_WAYS[name](value)
    if not _is_text(value, 253):
        raise ValueError(f"give a text without control characters, not {str(value)[:60]!r}")
    allowed = CHOICES.get(name)
    if allowed is not None and value not in allowed:
        raise ValueError(f"known are {', '.join(a for a in allowed if a)}, not {value[:60]!r}")
    if name == "hostname" and not HOSTNAME.match(value):
        raise ValueError(f"{value[:60]!r} is no host name")
    if name in {"site", "room", "rack", "leaf", "model"} and len(value) > 64:
        raise ValueError("at most 64 characters")
    return value


def _truth(value: Any) -> bool:
    if str(value).lower() not in {"true", "false"}:
        raise ValueError(f"give true or false, not {str(value)[:60]!r}")
    return str(value).lower() == "true"


def _labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(_is_text(v, 63) and v for v in value):
        raise ValueError("give a list of labels of at most 63 printable characters")
    return tuple(value)


def _web_address(value: Any) -> str:
    """An http:// or https:// address without a name or password in it, or ""."""
    if value == "":
        return ""
    try:
        parts = urlsplit(value) if _is_text(value, 300) and " " not in value else urlsplit("")
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in parts.netloc or parts.fragment:
        raise ValueError(f"give an address such as http://n1:9400/metrics, not {str(value)[:60]!r}")
    return str(value)


OWN_WAYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "simulated": _truth,
    "labels": _labels,
    "dcgm_url": _web_address,
}


def _is_text(value: Any, longest: int) -> bool:
    """Printable: no control characters, no NUL, no half of a surrogate pair (YAML can write them all)."""
    return isinstance(value, str) and len(value) <= longest and value.isprintable()


def _number(name: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,12}", text, re.ASCII):
        raise ValueError(f"give a whole number, not {text[:60]!r}")
    number, least = int(text), -1 if name == "block_size" else 0
    if not least <= number <= LIMITS[name]:
        raise ValueError(f"{number} is not between {least} and {LIMITS[name]}")
    return number


def _contradictions(node: FleetNode) -> list[str]:
    if node.driver and (node.driver == DriverName.SIMULATED) != node.simulated:
        return [f"driver: {node.driver} does not go with simulated: {str(node.simulated).lower()}"]
    if node.cards and not node.model:
        return ["model: a node with cards needs their model"]
    if node.cards and not node.memory_mib:
        return [f"card_memory_mib: the memory of {node.model} is not known; give it in MiB"]
    if node.block_size > 0 and node.cards % node.block_size:
        return [f"block_size: {node.cards} cards can't be cut into blocks of {node.block_size}"]
    return []
