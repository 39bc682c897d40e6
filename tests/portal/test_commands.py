"""The commands of manage.py: what they print, how they end, and that wrong arguments are told in a sentence."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from ledger import audit, fleet
from ledger.clock import database_now
from ledger.models import ApiToken, AuditEvent, Card, Job, Membership, Node, ProjectUserPermission, User, Zone
from portal.management.commands import replay
from scheduler import commands, observing, placing, snapshot
from scheduler.drivers.registry import driver
from scheduler.drivers.simulated import World
from tests import factories
from tests.portal.api.client import Api, row_counts


def run(*words: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out, **options)
    return out.getvalue()


def ends_with_1(*words: str) -> str:
    out = io.StringIO()
    with pytest.raises(SystemExit) as end:
        call_command(*words, stdout=out, stderr=out)
    assert end.value.code == 1
    return out.getvalue()


# token


@pytest.mark.django_db
def test_token_prints_one_that_works_and_stores_its_digest_only() -> None:
    factories.cast()
    secret = run("token", "researcher").strip()
    assert re.fullmatch(r"gpc_[A-Za-z0-9_-]{43}", secret)
    assert Api(secret).get("jobs/").status_code == 200
    assert secret not in str(list(AuditEvent.objects.values())) + str(list(ApiToken.objects.values()))
    assert AuditEvent.objects.filter(verb="token.created", via="command").count() == 1


@pytest.mark.django_db
def test_token_expires_when_told() -> None:
    factories.cast()
    secret = run("token", "researcher", "--days", "1").strip()
    assert Api(secret).get("jobs/").status_code == 200
    ApiToken.objects.update(expires_at=database_now())
    assert Api(secret).get("jobs/").status_code == 401


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nobody"], "there is no user 'nobody'"),
        ([""], "there is no user ''"),
        (["researcher", "--days", "0"], "between 1 and 3650"),
        (["researcher", "--days", "-1"], "between 1 and 3650"),
        (["researcher", "--days", "99999999999999999999"], "between 1 and 3650"),
        (["researcher", "--days", "x"], "invalid int value"),
        ([], "required: user"),
    ],
)
def test_token_refuses_wrong_arguments(words: list[str], says: str) -> None:
    factories.cast()
    with pytest.raises(CommandError, match=re.escape(says)):
        run("token", *words)
    assert not ApiToken.objects.exists()


# check_books and verify_audit


@pytest.mark.django_db
def test_check_books_says_clean() -> None:
    factories.cast()
    factories.node("n1", cards=2)
    factories.job()
    assert "invariants hold" in run("check_books")


@pytest.mark.django_db
def test_check_books_ends_with_1_and_shows_the_rows_that_break_an_invariant() -> None:
    factories.cast()
    job = factories.job()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE ledger_job DISABLE TRIGGER USER")
        cursor.execute("UPDATE ledger_job SET state = 'running' WHERE id = %s", [job.pk])
        cursor.execute("ALTER TABLE ledger_job ENABLE TRIGGER USER")
    said = ends_with_1("check_books")
    assert "BROKEN I8-one-live-attempt" in said
    assert f"({job.pk}, 'running', 0)" in said


@pytest.mark.django_db
def test_check_books_finds_work_without_its_audit_row_and_rights_without_a_membership() -> None:
    people = factories.cast()
    job = factories.job(people["researcher"])
    made = Job.objects.get(pk=job.pk)
    made.pk = None
    made.save(force_insert=True)
    Membership.objects.filter(user=people["member"]).delete()
    assert ProjectUserPermission.objects.filter(user=people["member"]).exists()
    said = ends_with_1("check_books")
    assert "BROKEN I18-audited" in said
    assert f"({made.pk},)" in said
    assert "BROKEN guardian-orphans" in said


@pytest.fixture
def data(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


def sealed(at_least: int) -> None:
    """Other databases of the same server may hold the horizon back for a moment."""
    for _ in range(600):
        audit.seal()
        if audit.verify().sealed >= at_least:
            return
        time.sleep(0.1)
    raise AssertionError("the sealer found nothing to seal")


@pytest.mark.django_db(transaction=True)
def test_verify_audit_names_the_first_row_that_was_changed_deleted_or_cut_off(data: Path) -> None:
    factories.constant_rows()
    try:
        user = factories.user("admin")
        for i in range(5):
            audit.record(actor=user, via="test", verb="thing.done", target=user, after={"i": i})
        sealed(at_least=5)
        audit.write_anchor(data / "audit-anchor.log")
        assert "intact: 5 rows" in run("verify_audit")
        ids = list(AuditEvent.objects.order_by("id").values_list("pk", flat=True))
        tamper("UPDATE ledger_auditevent SET reason = 'x' WHERE id = %s", ids[2])
        assert f"after 2 good rows: audit row {ids[2]}" in ends_with_1("verify_audit")
        tamper("UPDATE ledger_auditevent SET reason = '' WHERE id = %s", ids[2])
        assert "intact" in run("verify_audit")
        tamper("DELETE FROM ledger_auditseal WHERE event_id = %s", ids[4])
        tamper("DELETE FROM ledger_auditevent WHERE id = %s", ids[4])
        assert "anchored outside" in ends_with_1("verify_audit")
    finally:
        factories.constant_rows()


def tamper(statement: str, pk: int) -> None:
    """As the owner of the tables, with their guards off."""
    with connection.cursor() as cursor:
        for table in ("ledger_auditevent", "ledger_auditseal"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(statement, [pk])
        for table in ("ledger_auditevent", "ledger_auditseal"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


# import_fleet

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
    from portal.seeding import BUNDLED_FLEET

    parsed = fleet.parse(BUNDLED_FLEET.read_text(), BUNDLED_FLEET.name)
    assert parsed.errors == []
    assert (len(parsed.nodes), sum(node.cards for node in parsed.nodes)) == (1523, 6212)


# snapshot and explain


@pytest.mark.django_db
def test_a_snapshot_explains_what_would_happen_to_a_job(tmp_path: Path) -> None:
    snapshot.forget()
    factories.cast()
    factories.node("n1", cards=2, memory_mib=16_000)
    fits, never = factories.job(), factories.job(asks=[{"form": "container", "memory_mib": 20_000}])
    file = tmp_path / "snapshot.json"
    file.write_text(run("snapshot"), encoding="utf-8")
    said = run("explain", str(file), str(fits.pk))
    assert f"job {fits.pk} would be placed by ask 0" in said
    assert "n1 as container" in said
    said = run("explain", str(file), str(never.pk), "--nodes")
    assert "can never run on this fleet" in said
    assert "card_memory_total 1" in said
    assert "n1 ask 0: card_memory_total" in said


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "5", "{}", '{"format": "x"}', '{"format": "gpu-commons-snapshot/1"}', "[" * 100_000, "NaN"],
)
def test_explain_refuses_what_is_no_snapshot(tmp_path: Path, content: str) -> None:
    file = tmp_path / "f.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=re.escape(str(file))):
        run("explain", str(file), "1")


@pytest.mark.django_db
def test_explain_refuses_a_missing_file_and_a_job_that_is_not_queued(tmp_path: Path) -> None:
    snapshot.forget()
    with pytest.raises(CommandError, match="No such file"):
        run("explain", str(tmp_path / "none.json"), "1")
    file = tmp_path / "s.json"
    file.write_text(run("snapshot"))
    with pytest.raises(CommandError, match="job 7 is not queued"):
        run("explain", str(file), "7")
    with pytest.raises(CommandError, match="invalid int value"):
        run("explain", str(file), "x")


# replay


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small simulated fleet whose scheduler turns whenever the command waits."""
    snapshot.forget()
    factories.cast()
    for i in range(3):
        factories.node(f"n{i}", cards=8, memory_mib=16_384, cpu_milli=10**6, host_memory_mib=2 * 10**6)
    monkeypatch.setattr(driver("simulated"), "world", World(start_delay_s=(0.0, 0.0)))

    def turn(seconds: float) -> None:
        placing.place_queued()
        commands.run_due()
        observing.observe_all()
        time.sleep(min(seconds, 0.2))

    monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=time.monotonic, sleep=turn))


@pytest.mark.django_db
def test_replay_submits_real_jobs_to_simulated_machines_and_reports(world: None) -> None:
    said = run("replay", "openb-default", "--jobs", "4", "--rate", "50", "--speed", "1e12")
    assert "all 4 jobs have ended: 4 succeeded" in said
    assert "submit to placed: median" in said
    assert set(Job.objects.values_list("simulated", "project__slug")) == {(True, "vision")}
    assert not Job.objects.filter(attempts__allocations__node__simulated=False).exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["openb-default", "--jobs", "0"], "--jobs"),
        (["openb-default", "--jobs", "-5"], "--jobs"),
        (["openb-default", "--jobs", "1000000000000"], "--jobs"),
        (["openb-default", "--rate", "0"], "--rate"),
        (["openb-default", "--rate", "nan"], "--rate"),
        (["openb-default", "--rate", "inf"], "--rate"),
        (["openb-default", "--speed", "-1"], "--speed"),
        (["openb-default", "--speed", "nan"], "--speed"),
        (["openb-default", "--rate", "fast"], "invalid float value"),
        (["openb-default", "--project", "nope"], "there is no project 'nope'"),
        (["no-such-trace"], "bundled are openb-default"),
    ],
)
def test_replay_refuses_wrong_arguments(words: list[str], says: str) -> None:
    factories.cast()
    with pytest.raises(CommandError, match=re.escape(says)):
        run("replay", *words)
    assert not Job.objects.exists()


HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        HEADER.encode(),
        f"{HEADER}\nx,1\n".encode(),
        f"{HEADER}\nx,a,1,1,1000,,LS,Running,0,1,0\n".encode(),
        f"{HEADER}\nx,1,1,1,1000,,LS,Running,0,,0\n".encode(),
        f"{HEADER}\nx,1,1,1,1000,,LS,Running,0,nan,0\n".encode(),
        f"{HEADER}\nx,1,1,-1,1000,,LS,Running,0,1,0\n".encode(),
        f"{HEADER}\nx,1,1,{'9' * 5000},1000,,LS,Running,0,1,0\n".encode(),
        b"\xff\xfe\x00",
        b'"' + b"x" * 200_000,
    ],
)
def test_replay_refuses_a_broken_trace(tmp_path: Path, content: bytes) -> None:
    factories.cast()
    file = tmp_path / "t.csv"
    file.write_bytes(content)
    with pytest.raises(CommandError):
        run("replay", str(file), "--jobs", "1", "--rate", "100")
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_replay_needs_somebody_who_may_submit() -> None:
    factories.cast()
    Membership.objects.all().delete()
    with pytest.raises(CommandError, match="no member who submits"):
        run("replay", "openb-default", "--jobs", "1")


# seed

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
