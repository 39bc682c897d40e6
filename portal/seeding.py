"""The first run: zones, one sign-in a role, three projects, this machine, and the bundled fleet as simulated nodes.

Safe to run again: what is there stays, secrets are made once.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from ledger import audit, blocks, fleet, inventory, projects
from ledger.acts import Act
from ledger.clock import database_now
from ledger.models import Department, Node, NodeZone, Project, User, Zone
from ledger.people import create_node_token
from ledger.vocabulary import DriverName, Form, ProjectRole, SiteRole
from scheduler.reconcile import seen_by_agent

BUNDLED_FLEET = Path(__file__).parent / "fleets" / "openb2023" / "openb_node_list_all_node.csv"
ZONES = {
    "container": ("Containers", [Form.CONTAINER]),
    "block": ("Blocks", [Form.BLOCK]),
    "whole": ("Whole machines", [Form.WHOLE]),
    "flexible": ("Flexible", [Form.CONTAINER, Form.BLOCK, Form.WHOLE]),
}
PEOPLE = {
    "researcher": SiteRole.RESEARCHER,
    "member": SiteRole.RESEARCHER,
    "outsider": SiteRole.RESEARCHER,
    "owner": SiteRole.RESEARCHER,
    "admin": SiteRole.ADMIN,
    "operator": SiteRole.OPERATOR,
    "manager": SiteRole.MANAGER,
    "auditor": SiteRole.AUDITOR,
}
PROJECTS = {
    "vision": ("Computer vision", {"owner": "owner", "researcher": "member", "member": "member"}),
    "language": ("Language models", {"owner": "owner", "researcher": "member"}),
    "outside": ("Another lab", {"outsider": "owner"}),
}
RESERVED_MEMORY_SHARE = 4  # a quarter of the machine's memory stays with the portal itself


def seed(*, with_fleet: bool) -> list[str]:
    """Returns one line for each thing that was made."""
    made: list[str] = []
    made += _zones()
    made += _people()
    made += _projects()
    made += _this_machine()
    if with_fleet:
        made += _bundled_fleet()
    return made


def _zones() -> list[str]:
    made = []
    with transaction.atomic(durable=True):
        for slug, (title, forms) in ZONES.items():
            zone, new = Zone.objects.get_or_create(
                slug=slug, defaults={"title": title, "forms": [str(f) for f in forms]}
            )
            if new:
                audit.record(actor=None, via="seed", verb="zone.created", target=zone, after={"forms": zone.forms})
                made.append(f"zone {slug}")
    return made


def _people() -> list[str]:
    missing = [name for name in PEOPLE if not User.objects.filter(username=name).exists()]
    if not missing:
        return []
    lines = []
    with transaction.atomic(durable=True):
        for name in missing:
            password = secrets.token_urlsafe(12)
            user = User.objects.create_user(name, password=password, site_role=PEOPLE[name])
            audit.record(actor=None, via="seed", verb="user.created", target=user, after={"username": name})
            lines.append(f"{name:<12} {password}")
        write_private(settings.DATA_DIR / "sign-ins.txt", "\n".join(lines) + "\n")  # before the commit: never lost
    return [f"sign-in {name}" for name in missing]


def write_private(path: Path, text: str) -> None:
    """Append to a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, 0o600)  # it may have stood there with other rights
        file.write(text)


def _projects() -> list[str]:
    department, _ = Department.objects.get_or_create(slug="research", defaults={"title": "Research"})
    act, made = Act(None, "seed"), []
    for slug, (title, members) in PROJECTS.items():
        if Project.objects.filter(slug=slug).exists():
            continue
        people = {name: User.objects.get(username=name) for name in members}
        owner = next(people[name] for name, role in members.items() if role == ProjectRole.OWNER)
        ends_on = database_now().date() + dt.timedelta(days=365)
        details = projects.Details(title=title, department=department, ends_on=ends_on)
        project = projects.open_project(slug=slug, owner=owner, details=details, act=act)
        for name, role in members.items():
            if people[name] != owner:
                projects.set_role(project=project, user=people[name], role=ProjectRole(role), act=act)
        made.append(f"project {slug}")
    return made


def agent_facts(*extra: str) -> dict[str, Any]:
    """What the node agent sees on this machine, from one run of the agent itself."""
    command = [sys.executable, "-m", "scheduler.agent", "--print", "--hostname", local_hostname(), *extra]
    command += ["--spool", str(settings.DATA_DIR / "agent-spool")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=settings.BASE_DIR)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def local_hostname() -> str:
    """This machine's name in the ledger, remembered so that a renamed machine stays the same node."""
    file = settings.DATA_DIR / "agent.hostname"
    if not file.exists():
        settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
        file.write_text(socket.gethostname() + "\n")
    return file.read_text().strip()


def _this_machine() -> list[str]:
    hostname = local_hostname()
    node = Node.objects.filter(hostname=hostname).first()
    made = []
    if node is None:
        facts = agent_facts()
        node = _register(hostname, facts)
        inventory.sync_node(seen_by_agent(hostname, facts))
        blocks.cut_into_blocks(node=node, size=blocks.block_size(len(facts["cards"])))
        made.append(f"this machine as node {hostname} with {len(facts['cards'])} cards")
    token = settings.DATA_DIR / "agent.token"
    if not token.exists() or not node.agent_digest:
        token.unlink(missing_ok=True)
        write_private(token, create_node_token(node=node, actor=None, via="seed") + "\n")
    return made


def _register(hostname: str, facts: dict[str, Any]) -> Node:
    """For sale: the CPUs, and the memory that neither the portal nor the virtual cards need."""
    total = facts["node"]["host_memory_mib"]
    virtual = sum(card["memory_mib"] for card in facts["cards"]) if facts["virtual"] else 0
    with transaction.atomic(durable=True):
        node = Node.objects.create(
            hostname=hostname,
            site="here",
            cpu_milli=facts["node"]["cpu_milli"],
            host_memory_mib=max(512, total - total // RESERVED_MEMORY_SHARE - virtual),
            interconnect="pcie",
            labels=["virtual"] if facts["virtual"] else [],
            managers={str(form): str(DriverName.LOCAL) for form in Form},
        )
        NodeZone.objects.create(node=node, zone=Zone.objects.get(slug="flexible"), period=(database_now(), None))
        audit.record(actor=None, via="seed", verb="node.registered", target=node, after={"hostname": hostname})
    return node


def _bundled_fleet() -> list[str]:
    if Node.objects.filter(simulated=True).exists():
        return []
    diff = fleet.apply(fleet.parse(BUNDLED_FLEET.read_text(), BUNDLED_FLEET.name), actor=None, via="seed")
    cards = sum(row.cards for row in diff.create)
    return [f"simulated fleet: {len(diff.create)} nodes, {cards} cards (openb 2023)"]
