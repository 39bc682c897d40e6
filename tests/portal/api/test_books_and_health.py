"""The balance, the OpenAPI document and its viewer, and the addresses that machines watch."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from ledger.clock import database_now
from ledger.models import AuditEvent, Job, User
from tests import factories
from tests.portal.api.client import Api, api, is_problem

ACCOUNTS = {"capacity", "used", "cleaning", "held", "headroom", "idle"}


def sides(balance: dict[str, Any]) -> tuple[int, int]:
    rest = balance["used"]["total"] + balance["idle"]["total"]
    return balance["capacity"], rest + sum(balance[name] for name in ("cleaning", "held", "headroom"))


@pytest.mark.django_db
def test_the_balance_has_its_shape_and_both_sides_agree(running: Job, researcher: Api) -> None:
    time.sleep(1.1)  # the book counts whole seconds
    told = researcher.get("books/balance/", simulated="true").json()
    assert set(told) == ACCOUNTS | {"from", "to", "time_zone", "unit", "exact", "simulated"}
    assert set(told["exact"]) == ACCOUNTS | {"unit"}
    assert (told["unit"], told["exact"]["unit"], told["time_zone"]) == ("card_seconds", "mib_seconds", "UTC")
    assert set(told["used"]) == {"total", "by_project", "by_form", "by_zone", "by_model"}
    assert set(told["idle"]) == {"free", "stranded", "total"}
    for cut in (told, told["exact"]):
        left, right = sides(cut)
        assert left == right > 0
        for split in ("by_project", "by_form", "by_zone", "by_model"):
            assert sum(cut["used"][split].values()) == cut["used"]["total"], split
    assert told["exact"]["used"]["total"] % 1024 == 0
    assert told["exact"]["used"]["by_form"].keys() == {"container"}


@pytest.mark.django_db
def test_the_balance_of_real_cards_is_the_default(running: Job, researcher: Api) -> None:
    told = researcher.get("books/balance/").json()
    assert (told["simulated"], told["capacity"]) == (False, 0)
    start, end = (dt.datetime.fromisoformat(told[name]) for name in ("from", "to"))
    assert end - start == dt.timedelta(days=1)


@pytest.mark.django_db
def test_a_window_is_cut_off_at_now(researcher: Api) -> None:
    begin = (database_now() - dt.timedelta(hours=1)).isoformat()
    told = researcher.get("books/balance/", **{"from": begin, "to": "9999-12-31T23:59:59Z"}).json()
    assert dt.datetime.fromisoformat(told["to"]) <= database_now()


@pytest.mark.django_db
def test_cuts_by_zone_project_and_model(running: Job, researcher: Api) -> None:
    time.sleep(1.1)
    cut = lambda **query: researcher.get("books/balance/", simulated="true", **query).json()  # noqa: E731
    assert cut(project="vision")["exact"]["used"]["by_project"].keys() == {"vision"}
    assert cut(model="none of these")["capacity"] == 0
    assert cut(zone="flexible")["exact"]["capacity"] > 0


@pytest.mark.django_db
def test_the_schema_names_every_address_and_both_kinds_of_tokens(researcher: Api) -> None:
    document = yaml.safe_load(researcher.get("schema/").content)
    paths = set(document["paths"])
    assert {f"/api/v1/{p}" for p in ("jobs/", "jobs/{id}/", "books/balance/", "agents/reports/", "drift/")} <= paths
    assert not [p for p in paths if "nowhere" in p or "(" in p]
    assert set(document["components"]["securitySchemes"]) >= {"token", "nodeToken"}
    assert document["paths"]["/api/v1/agents/reports/"]["post"]["security"] == [{"nodeToken": []}]
    fields = document["components"]["schemas"]["JobInput"]["properties"]
    assert {"project", "name", "asks", "command", "environment", "image", "walltime_s", "priority"} <= set(fields)


@pytest.mark.django_db
def test_the_viewer_works_offline_and_without_inline_scripts(researcher: Api) -> None:
    page = researcher.get("docs/").content.decode()
    assert not re.search(r"(src|href)=\"(https?:)?//", page)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)
    assert scripts
    assert all("src=" in attributes and not body.strip() for attributes, body in scripts)
    assert all(researcher.send("GET", src).status_code == 200 for src in re.findall(r'src="(/api/[^"]+)"', page))


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["docs/", "schema/", "schema/?format=json", "jobs/", "no/such/address/"])
def test_errors_are_problems_whatever_the_view_renders(path: str) -> None:
    refused = Api().send("GET", path)
    assert refused.status_code == 401
    assert is_problem(refused)


@pytest.mark.django_db
@pytest.mark.parametrize("accept", ["text/html", "application/xml", "image/png", "junk", "*/*;q=0", ""])
def test_a_caller_who_accepts_no_json_gets_json_or_a_problem(people: dict[str, User], accept: str) -> None:
    caller = api(people["researcher"])
    caller.headers["Accept"] = accept
    answer = caller.get("jobs/")
    assert answer.status_code == 200 or (answer.status_code == 406 and is_problem(answer))
    assert caller.get("jobs/", format="xlsx").status_code == 404


@pytest.mark.django_db
def test_methods_outside_http_use_are_refused(researcher: Api) -> None:
    for method in ("TRACE", "CONNECT", "PROPFIND", "MOVE", "x"):
        assert researcher.send(method, "jobs/").status_code == 405
    assert researcher.send("HEAD", "jobs/").status_code == 200
    assert researcher.send("OPTIONS", "jobs/").status_code == 200


@pytest.mark.django_db
def test_health_needs_no_sign_in_and_tells_no_secret(people: dict[str, User], settings: Any) -> None:
    caller = Api()
    assert caller.get("/healthz").content == b"ok\n"
    ready = caller.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"] is True
    assert set(ready.json()["checks"]) == {"database", "broker"}
    settings.REDIS_URL = "redis://:canary-password@127.0.0.1:1/0"
    away = caller.get("/readyz")
    assert away.status_code == 200  # the broker is only the doorbell
    assert "not reachable" in away.json()["checks"]["broker"]
    assert b"canary" not in away.content


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_health_is_read_only(path: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert Api().send(method, path).status_code == 405


@pytest.mark.django_db
def test_metrics_are_prometheus_text_without_names_of_people_and_projects(running: Job) -> None:
    answer = Api().get("/metrics")
    assert answer["Content-Type"].startswith("text/plain")
    text = answer.content.decode()
    assert 'gpu_commons_jobs{simulated="true",state="running"} 1.0' in text
    assert "gpu_commons_cards 2.0" in text
    assert not [name for name in ("vision", "researcher", "n1-card", "test job") if name in text]


@pytest.mark.django_db
@pytest.mark.parametrize(("given", "kept"), [("abc-1", True), ("a b", False), ("x" * 65, False), ("a\u00e9", False)])
def test_request_ids_are_kept_when_well_formed_and_stored(
    researcher: Api, spec: Callable[..., Any], given: str, kept: bool
) -> None:
    answer = researcher.post("jobs/", spec(), X_Request_ID=given)
    stored = AuditEvent.objects.get(verb="job.submitted").request_id
    assert answer["X-Request-ID"] == stored
    assert (stored == given) is kept
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", stored)


@pytest.mark.django_db
def test_the_zone_of_the_last_person_does_not_stay_with_the_thread(people: dict[str, User]) -> None:
    from django.utils import timezone

    User.objects.filter(pk=people["admin"].pk).update(time_zone="Asia/Shanghai")
    signed_in = Api()
    signed_in.http.force_login(factories.user("admin"))
    signed_in.get("jobs/")
    Api().get("jobs/")
    assert timezone.get_current_timezone_name() == "UTC"
