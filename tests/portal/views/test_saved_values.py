"""Saved values of the submit form: kept as typed, found under “Start from”, one's own alone, nothing typed is lost."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from ledger import projects, saved_values
from ledger.acts import Act
from ledger.models import Job, Project, SavedValues, User
from ledger.saved_values import LONGEST_VALUE, MOST_SAVED
from ledger.vocabulary import ProjectRole
from portal.forms import SubmitForm
from tests import factories
from tests.portal.views.conftest import ClientAs
from tests.portal.views.test_jobs import HOSTILE, form

HTMX = {"HX-Request": "true"}


def save(client: Client, under: str = "mine", **values: Any) -> Any:
    return client.post("/jobs/saved/", form(save_as=under, **values))


def shown(answer: Any) -> dict[str, Any]:
    """What stands in the fields of the page."""
    return {name: answer.context["form"][name].value() for name in SubmitForm.base_fields}


def test_saved_values_come_back_as_they_were_typed_and_submit_the_same_job(client_as: ClientAs) -> None:
    client = client_as("researcher")
    answer = save(client, "night run", then_form="whole", command="  train \\\n '中文' ")
    saved = SavedValues.objects.get()
    assert answer["Location"] == f"/jobs/new/?saved={saved.pk}"
    assert not Job.objects.exists()
    page = client.get(answer["Location"])
    assert "saved as “night run”; nothing was submitted" in page.content.decode()
    typed = {name: str(value) for name, value in form(then_form="whole", command="  train \\\n '中文' ").items()}
    opened = shown(page)
    assert {name: opened[name] for name in typed if name != "client_key"} == {
        name: value for name, value in typed.items() if name != "client_key"
    }
    assert opened["client_key"] != "k1"
    assert not opened["preemptible"]
    again = {name: "" if value is None else value for name, value in opened.items() if value is not False}
    assert client.post("/jobs/new/", again).status_code == 302
    job = Job.objects.get()
    assert (job.command, job.cpu_milli, job.simulated, job.preemptible) == (["train", "\n", "中文"], 1500, True, False)


def test_half_a_form_with_mistakes_is_kept_too(client_as: ClientAs) -> None:
    client = client_as("researcher")
    answer = save(client, name="", command="echo 'open", nodes="-7", cpu_cores="many", environment="no equals sign")
    assert answer.status_code == 302
    opened = shown(client.get(answer["Location"]))
    assert (opened["name"], opened["command"], opened["nodes"]) == ("", "echo 'open", "-7")
    assert (opened["cpu_cores"], opened["environment"]) == ("many", "no equals sign")


def test_the_name_of_the_loaded_set_stands_ready_and_saving_again_replaces_it(client_as: ClientAs) -> None:
    client = client_as("researcher")
    page = client.get(save(client, "night run")["Location"])
    assert page.context["saving"]["save_as"].value() == "night run"
    answer = client.post("/jobs/saved/", form(save_as="night run", nodes=3), follow=True)
    assert "The values saved as “night run” are replaced by these." in answer.content.decode()
    assert SavedValues.objects.get().values["nodes"] == "3"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"save_as": ""}, "Give these values a name"),
        ({"save_as": "   "}, "Give these values a name"),
        ({"save_as": "x" * 61}, "The name has 61 characters; it may have 60."),
        ({"save_as": "x" * 10_000}, "The name has 10000 characters"),
        ({"save_as": "a\x00b"}, "Null characters are not allowed."),
        ({"save_as": "x", "command": "c" * (LONGEST_VALUE + 1)}, "Command: The value has 20001 characters"),
        ({"save_as": "x", "name": "c" * (LONGEST_VALUE + 1)}, "Name: The value has 20001 characters"),
        ({"save_as": "x", "image": "a\x00b"}, "Container image: The value holds a character"),
        (
            {"save_as": "x", "command": "c" * 19_000, "environment": "e" * 19_000, "data_paths": "d" * 19_000},
            "together; 50000 can be saved",
        ),
    ],
)
def test_what_can_not_be_saved_is_named_and_everything_typed_stays(
    client_as: ClientAs, values: dict[str, str], words: str
) -> None:
    typed = form(nodes="-7", client_key="kept-key") | values
    answer = client_as("researcher").post("/jobs/saved/", typed)
    assert answer.status_code == 422
    assert words in str(answer.context["saving"].errors["save_as"])
    assert words in answer.content.decode()
    assert answer.context["saving"]["save_as"].value() == values["save_as"]
    opened = shown(answer)
    assert {name: str(opened[name]) for name in typed if name != "save_as"} == {
        name: str(value) for name, value in typed.items() if name != "save_as"
    }
    assert "Nothing was submitted" not in answer.content.decode()
    assert 'href="/jobs/new/?template=try"' in answer.content.decode()  # the page stands at another address
    assert not SavedValues.objects.exists()


def test_one_too_many_is_refused_with_what_would_change_it(client_as: ClientAs, people: dict[str, User]) -> None:
    for n in range(MOST_SAVED):
        saved_values.save(user=people["researcher"], name=f"set {n}", values={}, via="test")
    answer = save(client_as("researcher"), "one more")
    assert answer.status_code == 422
    assert "Remove one, or use the name of one to replace it" in answer.content.decode()


def test_a_wrong_submission_keeps_the_name_to_save_under(client_as: ClientAs) -> None:
    answer = client_as("researcher").post("/jobs/new/", form(command="", save_as="half typed"))
    assert answer.status_code == 422
    assert answer.context["saving"]["save_as"].value() == "half typed"


def test_nobody_sees_or_uses_what_another_saved(client_as: ClientAs) -> None:
    save(client_as("researcher"), "my own secret set")
    pk = SavedValues.objects.get().pk
    for who in ("member", "owner", "admin", "auditor", "manager", "operator", "outsider"):
        client = client_as(who)
        assert b"my own secret set" not in client.get("/jobs/new/").content, who
        assert client.get(f"/jobs/new/?saved={pk}").status_code == 404, who
        assert client.post(f"/jobs/saved/{pk}/remove/").status_code == 404, who
        assert client.post(f"/jobs/saved/{pk}/remove/", headers=HTMX).status_code == 404, who
    assert SavedValues.objects.filter(pk=pk).exists()
    save(client_as("member"), "my own secret set", nodes=9)
    assert SavedValues.objects.get(pk=pk).values["nodes"] == "1"


@pytest.mark.parametrize("number", ["", "0", "-1", "abc", "9" * 40, "\x00", "٣", "1e9"])
def test_a_set_that_is_not_there_is_not_found(client_as: ClientAs, number: str) -> None:
    assert client_as("researcher").get(f"/jobs/new/?saved={quote(number)}").status_code == 404


@pytest.mark.parametrize("number", ["0", "9" * 18, "9" * 40])
def test_removing_what_is_not_there_is_not_found(client_as: ClientAs, number: str) -> None:
    assert client_as("researcher").post(f"/jobs/saved/{number}/remove/").status_code == 404


def test_the_list_stands_under_start_from_and_is_removed_there(client_as: ClientAs) -> None:
    client = client_as("researcher")
    assert b"Saved values" not in client.get("/jobs/new/").content
    save(client, "b set")
    save(client, "a set")
    first, second = client.get("/jobs/new/").context["saved"]
    assert (first.name, second.name) == ("a set", "b set")
    page = client.get("/jobs/new/").content.decode()
    assert f'href="/jobs/new/?saved={first.pk}"' in page
    answer = client.post(f"/jobs/saved/{first.pk}/remove/")
    assert answer["Location"] == "/jobs/new/"
    page = client.get("/jobs/new/").content.decode()
    assert "The saved values “a set” are removed." in page
    assert f"?saved={first.pk}" not in page
    assert client.get(f"/jobs/new/?saved={first.pk}").status_code == 404


def test_with_htmx_only_the_list_is_answered_so_that_the_form_stays(client_as: ClientAs) -> None:
    client = client_as("researcher")
    save(client, "a set")
    save(client, "b set")
    a, b = SavedValues.objects.order_by("name")
    loaded = HTMX | {"HX-Current-URL": f"http://testserver/jobs/new/?saved={b.pk}"}
    part = client.post(f"/jobs/saved/{a.pk}/remove/", headers=loaded)
    assert part.content.decode().lstrip().startswith("<details")
    assert "b set" in part.content.decode()
    assert "HX-Replace-Url" not in part
    part = client.post(f"/jobs/saved/{b.pk}/remove/", headers=loaded)
    assert part["HX-Replace-Url"] == "/jobs/new/"
    assert 'id="saved"' in part.content.decode()
    assert "The saved values “b set” are removed." in part.content.decode()


def test_a_project_that_one_has_left_falls_back_and_is_told(client_as: ClientAs, people: dict[str, User]) -> None:
    client = client_as("outsider")
    where = save(client, project="outside", model="H100")["Location"]
    page = client.get(where)
    assert page.context["form"]["project"].value() == "outside"
    assert page.context["gone"] == [("Card model", "H100")]
    outside = Project.objects.get(slug="outside")
    projects.hand_over(project=outside, to=people["owner"], act=Act(people["outsider"], "test"))
    factories.leave(outside, people["outsider"])
    factories.project("vision", outsider=ProjectRole.MEMBER)
    page = client.get(where)
    assert page.context["form"]["project"].value() is None
    assert page.context["gone"] == [("Project", "outside"), ("Card model", "H100")]
    assert "Not taken over" in page.content.decode()
    assert SavedValues.objects.get().values["project"] == "outside"


def test_fields_that_the_form_does_not_have_are_neither_kept_nor_used(
    client_as: ClientAs, people: dict[str, User]
) -> None:
    client = client_as("researcher")
    save(client, bogus="x", csrfmiddlewaretoken="x")
    assert set(SavedValues.objects.get().values) <= set(SubmitForm.base_fields) - {"client_key"}
    odd = {"of_the_past": "1", "client_key": "stolen", "nodes": 4, "name": "kept"}
    SavedValues.objects.update(values=odd)
    opened = shown(client.get(f"/jobs/new/?saved={SavedValues.objects.get().pk}"))
    assert (opened["name"], opened["nodes"]) == ("kept", 1)
    assert opened["client_key"] != "stolen"


def test_hostile_names_and_values_stay_text(client_as: ClientAs) -> None:
    client = client_as("researcher")
    where = save(client, HOSTILE, command=HOSTILE, project=HOSTILE, image="\u202egnp.exe")["Location"]
    page = client.get(where).content.decode()
    assert "<script>alert" not in page
    assert SavedValues.objects.get().name == HOSTILE
    assert f'hx-confirm="Remove the saved values “{HOSTILE}' not in page
    part = client.post(f"/jobs/saved/{SavedValues.objects.get().pk}/remove/", headers=HTMX).content.decode()
    assert "<script>alert" not in part


def test_the_list_costs_the_same_however_long_it_is(
    client_as: ClientAs, people: dict[str, User], django_assert_max_num_queries: Any
) -> None:
    client = client_as("researcher")
    save(client, "first")
    with django_assert_max_num_queries(100) as few:
        client.get("/jobs/new/")
    for n in range(20):
        saved_values.save(user=people["researcher"], name=f"set {n}", values={"command": "x" * 5000}, via="test")
    with django_assert_max_num_queries(len(few)):
        client.get("/jobs/new/")


def test_without_a_project_there_is_no_form_and_no_list(client_as: ClientAs) -> None:
    page = client_as("auditor").get("/jobs/new/").content.decode()
    assert "save_as" not in page
    assert "make you a member" in page
