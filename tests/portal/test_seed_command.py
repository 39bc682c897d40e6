"""The first run: safe to repeat, secrets in private files only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.models import AuditEvent, Node, User, Zone
from tests.portal.api.client import Api, row_counts
from tests.portal.commands import run

FACTS = {
    "virtual": True,
    "node": {"cpu_milli": 4000, "host_memory_mib": 16_000},
    "cards": [{"uuid": f"VIRT-{i}", "slot": i, "model": "virtual", "memory_mib": 1024} for i in range(2)],
    "links": [],
}


@pytest.fixture
def seeded(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small = data / "openb.csv"
    small.write_text("sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,64000,262144,2,P100\n")
    monkeypatch.setattr("portal.seeding.BUNDLED_FLEET", small)
    monkeypatch.setattr("portal.seeding.agent_facts", lambda: json.loads(json.dumps(FACTS)))
    return data


@pytest.mark.django_db
def test_seed_makes_the_cast_once_and_prints_no_secret(seeded: Path) -> None:
    first = run("seed")
    file = seeded / "sign-ins.txt"
    signs = dict(line.split() for line in file.read_text().splitlines())
    assert set(signs) == {"researcher", "member", "outsider", "owner", "admin", "operator", "manager", "auditor"}
    secrets = [*signs.values(), (seeded / "agent.token").read_text().strip()]
    assert not [secret for secret in secrets if secret in first]
    assert not [secret for secret in secrets if secret in str(list(AuditEvent.objects.values()))]
    for name in ("sign-ins.txt", "agent.token"):
        assert (seeded / name).stat().st_mode & 0o777 == 0o600
    assert all(User.objects.get(username=name).check_password(password) for name, password in signs.items())
    assert set(Zone.objects.values_list("slug", flat=True)) == {"container", "block", "whole", "flexible"}
    assert Node.objects.filter(simulated=True).count() == 1
    before, text = row_counts(), file.read_text()
    assert run("seed") == "seed: nothing to add\n"
    assert row_counts() == before
    assert file.read_text() == text


@pytest.mark.django_db
def test_seed_without_a_fleet_and_then_with_it(seeded: Path) -> None:
    run("seed", "--no-fleet")
    assert not Node.objects.filter(simulated=True).exists()
    assert "simulated fleet: 1 nodes, 2 cards" in run("seed")


@pytest.mark.django_db
def test_seed_closes_a_file_of_sign_ins_that_others_could_read(seeded: Path) -> None:
    file = seeded / "sign-ins.txt"
    file.write_text("")
    file.chmod(0o644)
    run("seed", "--no-fleet")
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.django_db
def test_seed_makes_a_lost_agent_token_anew(seeded: Path) -> None:
    run("seed", "--no-fleet")
    old = (seeded / "agent.token").read_text()
    (seeded / "agent.token").unlink()
    run("seed", "--no-fleet")
    new = (seeded / "agent.token").read_text().strip()
    assert new != old.strip()
    hostname = Node.objects.get(simulated=False).hostname
    assert Api(new, "Agent").post("agents/reports/", {"hostname": hostname}).status_code == 400  # it is known
    assert Api(old.strip(), "Agent").post("agents/reports/", {}).status_code == 401
