"""What the submit form starts from: a template, a former job, saved values, or what the address names. Reads only."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django import forms
from django.db.models import QuerySet
from django.http import Http404, QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ledger.models import Job, Project, SavedValues, User
from ledger.saved_values import LONGEST_NAME
from ledger.vocabulary import ProjectState, SiteRole
from portal.forms import StyledForm, SubmitForm
from portal.labels import Text
from portal.typed import id_of
from scheduler import queue, slices


class Template(NamedTuple):
    slug: str
    title: Text
    about: Text
    values: Mapping[str, Any]


TEMPLATES: Final = (
    Template(
        "try",
        _("Try it out"),
        _("A small share of one card for a few minutes; starts almost anywhere."),
        {"name": "try", "command": "nvidia-smi", "form": "container", "memory_mib": 2048, "walltime_min": 10},
    ),
    Template(
        "finetune",
        _("Fine-tune on one card"),
        _("One whole card in a container."),
        {
            "name": "finetune", "command": "python train.py", "kind": "training", "form": "container",
            "cards_per_node": 1, "memory_mib": 0, "cpu_cores": 8, "host_memory_mib": 65_536, "walltime_min": 720,
        },
    ),
    Template(
        "distributed",
        _("Distributed training"),
        _("Two whole machines near each other; after 30 minutes of waiting containers will do."),
        {
            "name": "distributed", "command": "torchrun --nnodes 2 train.py", "kind": "training", "form": "whole",
            "nodes": 2, "cards_per_node": 8, "memory_mib": 0, "then_form": "container", "then_after_min": 30,
            "cpu_cores": 32, "host_memory_mib": 262_144, "distance": "near", "walltime_min": 1440,
        },
    ),
    Template(
        "inference",
        _("Serve a model"),
        _("A share of 16 GiB on one card, whichever form is ready first."),
        {
            "name": "serve", "command": "python serve.py", "kind": "inference", "form": "auto", "memory_mib": 16_384,
            "cpu_cores": 4, "host_memory_mib": 32_768, "walltime_min": 1440,
        },
    ),
    Template(
        "data",
        _("Prepare data"),
        _("CPU only, no card."),
        {
            "name": "prepare", "command": "python prepare.py", "kind": "data", "form": "container",
            "cards_per_node": 0, "memory_mib": 0, "cpu_cores": 8, "host_memory_mib": 16_384, "walltime_min": 240,
        },
    ),
)  # fmt: skip


def projects_of(user: User) -> QuerySet[Project]:
    """Where the person may submit: a choice of the select field, checked again by the queue."""
    visible = Project.objects.visible_to(user).filter(state=ProjectState.ACTIVE).order_by("slug")
    if user.site_role == SiteRole.ADMIN:
        return visible
    return visible.filter(memberships__user=user, memberships__role__in=queue.MAY_SUBMIT).distinct()


class SaveForm(StyledForm):
    """The name to save the values of the submit form under; ledger.saved_values judges it."""

    save_as = forms.CharField(label=_("Save these values as"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["save_as"].widget.attrs |= {"maxlength": LONGEST_NAME, "autocomplete": "off", "dir": "auto"}


def open_form(user: User, values: Mapping[str, Any], client_key: str = "") -> tuple[SubmitForm, list[tuple[str, str]]]:
    """The form with these values in it, not judged yet; and what of them can't be chosen now, as (label, value)."""
    initial = {"client_key": client_key or uuid.uuid4().hex, **values}
    form = SubmitForm(initial=initial, projects=projects_of(user), cards=slices.sizes())
    gone = []
    for name, field in form.fields.items():
        value = initial.get(name)
        if value and isinstance(field, forms.ChoiceField) and not field.valid_value(value):
            del form.initial[name]  # it falls back to what an empty form has
            gone.append((str(field.label), str(value)))
    return form, gone


def typed_values(data: Mapping[str, str]) -> dict[str, str]:
    """The fields that the form has, as text; a box that is not ticked is not there."""
    names = (name for name in SubmitForm.base_fields if name != "client_key")
    return {name: data[name] for name in names if isinstance(data.get(name), str)}


def saved_of(user: User) -> list[SavedValues]:
    """Their saved values by name, without the values."""
    return list(SavedValues.objects.filter(user=user).defer("values").order_by("name"))


def starting_values(query: QueryDict, user: User) -> dict[str, Any]:
    """What `?template=`, `?clone=` and `?project=` ask for; what is not there or not theirs changes nothing.

    `?saved=` of what is not theirs is not found: the form must not pass for the one they saved.
    """
    values: dict[str, Any] = {}
    template = next((t for t in TEMPLATES if t.slug == query.get("template")), None)
    if template is not None:
        values |= template.values
    pk = id_of(query.get("clone", ""))
    if pk is not None:
        job = Job.objects.visible_to(user).select_related("project").filter(pk=pk).first()
        values |= cloned(job) if job is not None else {}
    if "saved" in query:
        values |= _saved(query["saved"], user)
    if project := query.get("project"):
        values["project"] = project
    return values


def _saved(number: str, user: User) -> dict[str, str]:
    pk = id_of(number)
    saved = SavedValues.objects.filter(user=user, pk=pk).first() if pk is not None else None
    if saved is None:
        raise Http404(gettext("You have no such saved values."))
    return typed_values(saved.values)


def cloned(job: Job) -> dict[str, Any]:
    """A job's values as the form shows them. The form has room for two wishes."""
    first, of_first = job.asks[0], slices.siblings(job.asks)
    values = {name: first[name] for name in ("form", "nodes", "cards_per_node", "memory_mib", "model")}
    if profile := first.get("profile"):
        values |= {"profile": profile, "memory_mib": 0} | ({"model": ""} if of_first > 1 else {})
    if len(job.asks) > of_first:
        values |= {"then_form": job.asks[of_first]["form"], "then_after_min": job.asks[of_first]["after_s"] // 60}
    same = ("name", "kind", "image", "interconnect", "distance", "host_memory_mib", "priority", "checkpoint")
    same += ("metrics_port", "metrics_path")
    return values | {
        **{name: getattr(job, name) for name in (*same, "reproducible", "preemptible", "simulated")},
        "like_job": job.like_job_id,
        "project": job.project.slug,
        "command": shlex.join(job.command),
        "environment": "\n".join(f"{name}={value}" for name, value in job.environment.items()),
        "data_paths": "\n".join(job.data_paths),
        "cpu_cores": job.cpu_milli / 1000,
        "walltime_min": max(1, job.walltime_s // 60),
    }
