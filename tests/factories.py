"""A fixed cast for tests: people named by role, projects, zones, machines and jobs. Everything goes through the real
writers where there is one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any
from unittest import mock

from django.contrib.auth.hashers import get_hasher, make_password
from django.contrib.auth.models import Permission
from django.db import transaction

from ledger import audit, projects
from ledger.acts import Act
from ledger.blocks import cut_into_blocks
from ledger.clock import database_now
from ledger.inventory import SeenCard, SeenNode, sync_node
from ledger.models import (
    Department,
    InventoryVersion,
    Job,
    Membership,
    Node,
    NodeZone,
    Project,
    ProjectUserPermission,
    QuotaGrant,
    StateTransition,
    User,
    Zone,
)
from ledger.roles import ROLE_PERMISSIONS
from ledger.vocabulary import Form, ProjectRole, Resource, SiteRole
from portal.api.serializers import JobInput
from scheduler import reclaim, snapshot
from scheduler.queue import submit

ALL_FORMS = (Form.CONTAINER, Form.BLOCK, Form.WHOLE)
PASSWORD = "correct horse battery staple"


def constant_rows() -> None:
    """The rows that migrations write; the flush after a test with real transactions takes them away."""
    if not StateTransition.objects.exists():
        rows = import_module("ledger.migrations.0002_guards").ROWS
        StateTransition.objects.bulk_create(StateTransition(entity=e, old=old, new=new) for e, old, new in rows)
    InventoryVersion.objects.get_or_create(pk=1, defaults={"version": 1})


def user(name: str, site_role: SiteRole = SiteRole.RESEARCHER) -> User:
    return users({name: site_role})[name]


def users(roles: Mapping[str, SiteRole]) -> dict[str, User]:
    """By name, made where they are not there."""
    found = {user.username: user for user in User.objects.filter(username__in=roles)}
    missing = [
        User(username=name, password=_hashed(), site_role=role) for name, role in roles.items() if name not in found
    ]
    return found | {user.username: user for user in (User.objects.bulk_create(missing) if missing else ())}


def _hashed() -> str:
    """Hashing is slow on purpose; once a run and hasher is enough."""
    return _hashed_by(get_hasher().algorithm)


@cache
def _hashed_by(algorithm: str) -> str:
    return make_password(PASSWORD, hasher=algorithm)


def project(slug: str = "vision", **members: ProjectRole) -> Project:
    """A project; keyword arguments are its members, such as researcher=ProjectRole.MEMBER. Without an owner among them
    it is a project of `owner`."""
    owner = next((name for name, role in members.items() if role == ProjectRole.OWNER), "owner")
    roles = {owner: ProjectRole.OWNER, **members}
    people = users(dict.fromkeys(roles, SiteRole.RESEARCHER))
    return _project(slug, people[owner], {people[name]: role for name, role in roles.items()})


def _project(slug: str, owner: User, roles: Mapping[User, ProjectRole]) -> Project:
    with transaction.atomic():
        made = Project.objects.filter(slug=slug).first()
        if made is None:
            department = Department.objects.filter(slug="research").first()
            today = database_now().date()
            made = Project.objects.create(
                slug=slug,
                title=slug.title(),
                owner=owner,
                department=department or Department.objects.create(slug="research", title="Research"),
                starts_on=today - dt.timedelta(days=1),
                ends_on=today + dt.timedelta(days=365),
            )
        join(made, roles)
    return made


def join(of: Project, roles: Mapping[User, ProjectRole]) -> None:
    """What ledger.projects.set_role writes, in one statement a table for all who are new: most tests begin with
    these rows. tests/portal/test_factories.py holds both to the same rows."""
    inside = dict(Membership.objects.filter(project=of).values_list("user_id", "role"))
    for person, role in roles.items():
        if inside.get(person.pk, role) != role:
            projects.put_inside(of.pk, person, role, Act(None, "system"))
    new = [Membership(project=of, user=person, role=role) for person, role in roles.items() if person.pk not in inside]
    if not new:
        return
    saved, at = Membership.objects.bulk_create(new), database_now()
    audit.record_many(
        audit.row(
            actor=None,
            via="system",
            verb="member.role",
            target=one,
            project=of,
            at=at,
            after={"user": one.user.username, "role": one.role},
        )
        for one in saved
    )
    known = dict(Permission.objects.filter(content_type__model="project").values_list("codename", "pk"))
    ProjectUserPermission.objects.bulk_create(
        ProjectUserPermission(content_object=of, user=one.user, permission_id=known[code])
        for one in saved
        for code in sorted(ROLE_PERMISSIONS[ProjectRole(one.role)])
    )


def ended(slug: str, **members: ProjectRole) -> Project:
    """A project that has ended, with its receipt."""
    made = project(slug, **members)
    Project.objects.filter(pk=made.pk).update(ends_on=made.starts_on, grace_days=0)
    reclaim.reclaim_all()
    made.refresh_from_db()
    return made


def leave(of: Project, person: User) -> None:
    projects.remove_member(project=of, user=person, act=Act(None, "test"))


def cast() -> dict[str, User]:
    """researcher and member in `vision`, outsider in `outside`, and one person a site role."""
    names = ("owner", "researcher", "member", "outsider")
    site_roles = {role.value: role for role in SiteRole if role != SiteRole.RESEARCHER}
    people = users({**dict.fromkeys(names, SiteRole.RESEARCHER), **site_roles})
    members = {people[name]: ProjectRole.MEMBER for name in names[1:3]}
    _project("vision", people["owner"], {**members, people["owner"]: ProjectRole.OWNER})
    _project("outside", people["outsider"], {people["outsider"]: ProjectRole.OWNER})
    return people


def zone(slug: str = "flexible", forms: Sequence[Form] = ALL_FORMS) -> Zone:
    made, _ = Zone.objects.get_or_create(slug=slug, defaults={"title": slug, "forms": [str(f) for f in forms]})
    return made


def node(
    hostname: str = "n1",
    cards: int = 4,
    memory_mib: int = 16_000,
    *,
    model: str = "A100",
    simulated: bool = True,
    in_zone: Zone | None = None,
    block: int = 0,
    driver: str = "simulated",
    **values: Any,
) -> Node:
    """A node with `cards` equal cards, in a flexible zone, cut into blocks of `block` cards when given."""
    where = in_zone or zone()
    made = Node.objects.create(
        hostname=hostname,
        simulated=simulated,
        managers={str(form): driver for form in Form},
        **{"cpu_milli": 64_000, "host_memory_mib": 256_000} | values,
    )
    NodeZone.objects.create(node=made, zone=where, period=(database_now(), None))
    seen = [SeenCard(f"{hostname}-card-{slot}", slot, model, memory_mib) for slot in range(cards)]
    sync_node(SeenNode(hostname=hostname, cards=seen))
    if block:
        cut_into_blocks(node=made, size=block)
    snapshot.forget()
    return made


def job_data(actor: User, **values: Any) -> dict[str, Any]:
    """A validated JobInput: one container of 1 GiB on one card, simulated, unless told otherwise."""
    spec = {
        "project": "vision",
        "name": "test job",
        "asks": [{"form": "container", "memory_mib": 1024}],
        "command": ["simulate", "--seconds", "1"],
        "simulated": True,
    } | values
    data = JobInput(data=spec, context={"user": actor})
    data.is_valid(raise_exception=True)
    return data.validated_data


def job(actor: User | None = None, **values: Any) -> Job:
    by = actor or user("researcher")
    return submit(data=job_data(by, **values), actor=by, via="test")


def any_job(actor: User | None = None, **values: Any) -> Job:
    """A job whether or not the fleet could ever run it, as there are when nodes have left."""
    with mock.patch("scheduler.queue.impossible", return_value=None):
        return job(actor, **values)


def grant(of: Project, resource: Resource, amount: int, model: str = "") -> QuotaGrant:
    values: dict[str, Any] = {"project": of, "resource": resource, "amount": amount, "model": model}
    return QuotaGrant.objects.create(**values, period=(database_now(), None), reason="test", by=user("owner"))
