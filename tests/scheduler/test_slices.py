"""Asks for a slice as large as a MIG profile: what becomes of them, that they are placed as such, and take what is said."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from ledger.errors import Refused
from ledger.models import CardShare, Job, Project
from ledger.units import NodeClass, Request, units
from ledger.vocabulary import AskForm, Resource
from scheduler import commands, placing, quota, slices, snapshot, whatif
from scheduler.possible import whole_change
from tests import factories
from tests.scheduler import flow

pytestmark = pytest.mark.django_db
A100, H100, H200 = 40_960, 81_559, 143_771
LIMIT = 10**12


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    """Two cards each of A100-40, A100-80 and H100-80, all make-believe, and one real H200."""
    flow.world(0)
    factories.node("a40", cards=2, memory_mib=A100, model="NVIDIA A100-SXM4-40GB")
    factories.node("a80", cards=2, memory_mib=81_920, model="NVIDIA A100-SXM4-80GB")
    factories.node("h80", cards=2, memory_mib=H100, model="NVIDIA H100 80GB HBM3")
    factories.node("h200", cards=1, memory_mib=H200, model="NVIDIA H200", simulated=False)


def ask(profile: str, model: str = "", **values: Any) -> dict[str, Any]:
    return {"form": "container", "profile": profile, "model": model, **values}


def made_of(profile: str, model: str = "") -> list[tuple[str, int, int]]:
    job = flow.long_job(asks=[ask(profile, model)])
    assert all(one["profile"] == profile for one in job.asks)
    return [(one["model"], one["memory_mib"], one["compute_milli"]) for one in job.asks]


def test_a_profile_of_one_model_is_one_ask_for_that_model() -> None:
    assert made_of("3g.20gb") == [("NVIDIA A100-SXM4-40GB", A100 // 2, 428)]


def test_a_profile_of_several_models_is_one_ask_a_model_what_takes_least_of_a_card_first() -> None:
    assert made_of("1g.10gb") == [
        ("NVIDIA H100 80GB HBM3", H100 // 8, 142),
        ("NVIDIA A100-SXM4-80GB", 10_240, 142),
        ("NVIDIA A100-SXM4-40GB", 10_240, 142),
    ]


def test_a_named_model_alone_is_asked_for() -> None:
    assert made_of("1g.10gb", "NVIDIA A100-SXM4-40GB") == [("NVIDIA A100-SXM4-40GB", 10_240, 142)]


def refused(**values: Any) -> Any:
    with pytest.raises(ValidationError) as error:
        factories.job_data(factories.user("researcher"), **values)
    assert not Job.objects.exists()
    return error.value.detail


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (ask("1g.7gb"), "no MIG profile that is known here"),
        (ask("3g.40GB"), "no MIG profile that is known here"),
        (ask("1g.18gb"), "No slice 1g.18gb is cut from any card of this fleet; there are: 1g.5gb, 1g.10gb"),
        (ask("1g.20gb", "NVIDIA A100-SXM4-40GB"), "cut from the cards of the model NVIDIA A100-SXM4-40GB here"),
        (ask("1g.10gb", "T4"), "their slices are: —"),
        (ask("1g.10gb", form="block"), "Only a container is a slice"),
        (ask("1g.10gb", form="whole"), "Only a container is a slice"),
        (ask("1g.10gb", form="auto"), "Only a container is a slice"),
        (ask("1g.10gb", memory_mib=1), "ask for no other amount"),
        (ask("1g.10gb", compute_milli=1), "ask for no other amount"),
        (ask("1g.10gb", cards_per_node=0), "no card to take a slice of"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said_at_the_field(asked: dict[str, Any], words: str) -> None:
    [problem] = _at(refused(asks=[{"form": "container"}, asked])["asks"])
    assert words in problem


def _at(asks: Any) -> list[str]:
    """The problem of the second ask, as the serializer or the fleet's check tells it."""
    second = asks.get(1) or asks["1"]
    found = second["profile"]
    return found if isinstance(found, list) else [found]


def test_the_real_world_has_its_own_cards() -> None:
    with pytest.raises(Refused, match=r"there are: 1g\.18gb, 1g\.35gb, 2g\.35gb"):
        slices.asks_of([{"profile": "1g.10gb", "model": ""}], simulated=False)
    assert [one["model"] for one in slices.asks_of([{"profile": "1g.18gb", "model": ""}], False)] == ["NVIDIA H200"]


def test_a_model_of_which_not_every_card_knows_the_profile_does_not_give_it() -> None:
    known = {"A100": [A100, 81_920], "H100": [81_079, H100]}
    found = slices.cuts(known)
    assert [cut.model for cut in found["1g.10gb"]] == ["H100", "A100"]
    assert [cut.model for cut in found["1g.20gb"]] == ["H100"]
    assert "1g.5gb" not in found
    assert found["1g.10gb"][0] == slices.Cut("1g.10gb", "H100", 81_079 // 8, 142, 125)


def test_wishes_stay_bounded() -> None:
    for number in range(8):
        factories.node(f"x{number}", cards=1, memory_mib=81_920, model=f"H100 kind {number}")
    with pytest.raises(Refused) as error:
        slices.asks_of([ask("1g.10gb")], simulated=True)
    assert (error.value.field, error.value.code) == ("asks.0.model", "too_many_asks")
    assert len(slices.asks_of([ask("1g.10gb", "H100 kind 3")], simulated=True)) == 1


def test_the_same_key_and_body_give_the_first_job_though_the_fleet_has_changed() -> None:
    data = factories.job_data(factories.user("researcher"), asks=[ask("1g.10gb")])
    first = _submit(data)
    factories.node("more", cards=1, memory_mib=81_920, model="H100 of another make")
    assert _submit(data).pk == first.pk


def _submit(data: dict[str, Any]) -> Job:
    return factories.submit(data=data, actor=factories.user("researcher"), via="test", client_key="k")


def test_stored_asks_without_the_word_still_load() -> None:
    job = flow.long_job(asks=[{"form": "container", "memory_mib": 1024}])
    assert "profile" not in job.asks[0]
    assert snapshot.job_view(job).asks[0].memory_mib == 1024
    assert [queued.pk for queued in snapshot.queued_jobs()] == [job.pk]


def test_siblings_are_the_first_wish() -> None:
    one, other = ask("1g.10gb", "A", after_s=0), ask("1g.10gb", "B", after_s=0)
    assert slices.siblings([one, other, {"form": "whole", "after_s": 0}]) == 2
    assert slices.siblings([one, other | {"after_s": 60}]) == 1
    assert slices.siblings([{"form": "container"}, {"form": "container"}]) == 1


@pytest.mark.parametrize(
    ("profile", "model", "size"),
    [
        ("1g.5gb", "NVIDIA A100-SXM4-40GB", A100),
        ("4g.20gb", "NVIDIA A100-SXM4-40GB", A100),
        ("1g.10gb", "NVIDIA H100 80GB HBM3", H100),
        ("3g.40gb", "NVIDIA H100 80GB HBM3", H100),
        ("7g.80gb", "NVIDIA A100-SXM4-80GB", 81_920),
    ],
)
@pytest.mark.parametrize("cards", [1, 2])
def test_units_are_what_the_database_counts_for_the_placed_job(profile: str, model: str, size: int, cards: int) -> None:
    project = Project.objects.get()
    for resource in Resource:
        factories.grant(project, resource, LIMIT)
    factories.grant(project, Resource.CARD_MILLI, LIMIT, model)
    job = flow.long_job(asks=[ask(profile, model, cards_per_node=cards)], cpu_milli=700, host_memory_mib=900)
    request = Request(
        AskForm.CONTAINER, cards_per_node=cards, profile=profile, cpu_milli=700, host_memory_mib=900,
        walltime_s=job.walltime_s,
    )  # fmt: skip
    said = units(request, NodeClass(2, size))
    before = quota.claims(job)
    assert {(claim.resource, claim.model): (claim.takes, claim.exact) for claim in before} == {
        **{(str(resource), ""): (said[resource], True) for resource in Resource},
        ("card_milli", model): (said[Resource.CARD_MILLI], True),
    }
    shown = quota.claims(job, whatif.outlook(job).spots)
    placing.place_queued()
    counted = {(limit.resource, limit.model): LIMIT - limit.left for limit in quota.Limits([project.pk]).all}
    budget = counted.pop(("card_milli_s", ""))
    assert {key: value for key, value in counted.items() if key[1] == ""} == {
        (str(resource), ""): said[resource] for resource in Resource if resource != Resource.CARD_MILLI_S
    }
    assert counted["card_milli", model] == said[Resource.CARD_MILLI]
    assert budget == said[Resource.CARD_MILLI_S]
    assert {claim.takes for claim in shown if claim.resource == "card_milli_s"} == {budget}


def test_a_slice_is_reserved_with_its_compute_and_seven_share_a_card() -> None:
    model = "NVIDIA A100-SXM4-40GB"
    jobs = [flow.long_job(asks=[ask("1g.5gb", model)]) for _ in range(15)]
    placing.place_queued()
    commands.run_due()
    shares = CardShare.objects.filter(allocation__period__upper_inf=True)
    by_card: dict[int, list[int]] = {}
    for share in shares:
        by_card.setdefault(share.card_id, []).append(sum(hi - lo for lo, hi in share.compute))
    assert sorted(by_card.values()) == [[142] * 7, [142] * 7]
    assert Job.objects.filter(pk__in=[job.pk for job in jobs], state="queued").count() == 1


def test_the_change_that_leaves_a_slice_says_all_of_it() -> None:
    job = flow.long_job(asks=[ask("1g.5gb", "NVIDIA A100-SXM4-40GB")])
    assert whole_change(job, {"nodes": 1}) == {"nodes": 1}
    assert whole_change(job, {"model": ""}) == {"profile": "", "memory_mib": 5_120, "model": ""}
    assert whole_change(job, {"memory_mib": 9}) == {
        "profile": "", "memory_mib": 9, "model": "NVIDIA A100-SXM4-40GB",
    }  # fmt: skip
