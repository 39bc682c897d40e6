"""Reproducible jobs through page and API, and the fingerprint of a placement beside that of another job."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ledger.models import Job, Node, User
from scheduler import queue
from tests import factories
from tests.portal.api.client import Api, token_of
from tests.portal.views.conftest import ClientAs
from tests.portal.views.test_outlook import TYPED

pytestmark = pytest.mark.django_db
Turn = Callable[[], None]


@pytest.fixture(autouse=True)
def fleet(people: dict[str, User]) -> None:
    """Three equal machines."""
    for name in ("n1", "n2", "n3"):
        factories.node(name, cards=2)


def whole(people: dict[str, User], name: str, **values: object) -> Job:
    spec = {"asks": [{"form": "whole"}], "reproducible": True, "command": ["simulate", "--seconds", "3600"]}
    return factories.job(people["researcher"], name=name, **spec | values)


def text(client_as: ClientAs, address: str, who: str = "researcher") -> str:
    return re.sub(r"\s+", " ", client_as(who).get(address).content.decode())


def sent(client_as: ClientAs, **values: str) -> tuple[int, str]:
    typed = TYPED | {"client_key": "c", "name": "again", "command": "simulate", "form": "whole", "memory_mib": "0"}
    response = client_as("researcher").post("/jobs/new/", typed | {"reproducible": "on"} | values)
    return response.status_code, response.content.decode()


def test_the_form_makes_a_job_that_is_placed_like_another(
    client_as: ClientAs, people: dict[str, User], turn: Turn
) -> None:
    first = whole(people, "first")
    turn()
    assert sent(client_as, like_job=str(first.pk))[0] == 302
    again = Job.objects.get(name="again")
    assert (again.reproducible, again.like_job, again.like["nodes"]) == (True, first, 1)
    cloned = text(client_as, f"/jobs/new/?clone={again.pk}")
    assert re.search(rf'name="like_job" value="{first.pk}"', cloned)
    assert re.search(r'name="reproducible"[^>]* checked', cloned)


@pytest.mark.parametrize(
    ("values", "field"),
    [({"form": "container"}, "form"), ({"then_form": "container"}, "then_form"), ({"like_job": "999999"}, "like_job")],
)
def test_what_contradicts_is_told_beside_its_field(client_as: ClientAs, values: dict[str, str], field: str) -> None:
    status, page = sent(client_as, **values)
    assert status == 422
    assert f'id="id_{field}_error"' in page
    assert not Job.objects.exists()


def test_the_page_tells_what_the_placement_was_like_and_whether_it_is_comparable(
    client_as: ClientAs, people: dict[str, User], turn: Turn
) -> None:
    first = whole(people, "first")
    turn()
    second = whole(people, "second", like_job=first.pk)
    Node.objects.filter(hostname="n3").update(host_memory_mib=999_999)
    other = factories.job(people["researcher"], name="other", command=["simulate", "--seconds", "3600"])
    turn()
    page = text(client_as, f"/jobs/{second.pk}/")
    assert "Placement fingerprint" in page
    assert "no other work on it at placement" in page
    assert "same placement class" in page
    assert f"placed like job {first.pk}" in page
    assert "≠" not in page
    compared = text(client_as, f"/jobs/{second.pk}/?compare={other.pk}")
    assert "≠" in compared
    assert "cards given and their links" in compared
    for nothing in ("", "x", "0", "999999999999999999"):
        assert "differs in" not in text(client_as, f"/jobs/{second.pk}/?compare={nothing}")


def test_a_job_that_the_reader_may_not_see_is_not_compared(
    client_as: ClientAs, people: dict[str, User], turn: Turn
) -> None:
    mine = whole(people, "mine")
    hidden = factories.job(people["outsider"], project="outside", asks=[{"form": "whole"}], name="hidden")
    turn()
    page = text(client_as, f"/jobs/{mine.pk}/?compare={hidden.pk}")
    assert "or you may not see it" in page
    assert "same placement class" not in page


def test_the_api_tells_the_same(people: dict[str, User], turn: Turn) -> None:
    first = whole(people, "first")
    turn()
    second = whole(people, "second", like_job=first.pk)
    turn()
    api = Api(token_of(people["researcher"]))
    told = api.get(f"jobs/{second.pk}/").json()
    assert (told["reproducible"], told["like_job"]) == (True, first.pk)
    assert told["comparison"] == {"job": first.pk, "seen": True, "same": True, "differs": []}
    mine, theirs = (api.get(f"jobs/{pk}/").json()["attempts"][0]["fingerprint"] for pk in (second.pk, first.pk))
    assert mine == theirs
    assert mine.keys() == {"code", "form", "nodes", "span", "shared", "members"}


def test_the_page_tells_that_a_node_was_chosen_for_the_data_on_it(
    client_as: ClientAs, people: dict[str, User], turn: Turn
) -> None:
    first, second = (whole(people, name, data_paths=["/data/a"], reproducible=False) for name in ("one", "two"))
    turn()
    page = text(client_as, f"/jobs/{first.pk}/")
    assert "Chosen for the data there" not in page
    for job in (first, second):
        queue.cancel(job_id=job.pk, actor=people["researcher"], reason="", via="test")
    turn()
    turn()
    third = whole(people, "three", data_paths=["/data/a"], reproducible=False)
    turn()
    told = Api(token_of(people["researcher"])).get(f"jobs/{third.pk}/").json()
    assert told["reasons"]["warm"]["nodes"] == [told["placement"][0]["node"]]
    page = text(client_as, f"/jobs/{third.pk}/")
    assert "Chosen for the data there" in page
    assert "warm-data/1" in page


def test_a_refusal_names_its_field_in_both_languages(people: dict[str, User]) -> None:
    spec = {"project": "vision", "name": "x", "command": ["x"], "simulated": True, "reproducible": True}
    for language in ("en", "zh-hans"):
        api = Api(token_of(people["researcher"]), language=language)
        refused = api.post("jobs/", spec | {"asks": [{"form": "whole"}, {"form": "auto", "after_s": 5}]})
        assert refused.status_code == 400
        assert [error["field"] for error in refused.json()["errors"]] == ["asks.1.form"]
        unknown = api.post("jobs/", spec | {"asks": [{"form": "whole"}], "like_job": 999_999})
        assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (400, "like_job")
