"""What policies make of a job: which version each value comes from, and one function that applies them. Submitting, the
outlook before it, what it would take of the quota, and the preview of a change all go through `settle`. Reads only.

The most specific policy that says a thing wins, for each thing by itself: of the project and the kind of work, of the
project; the same of its department, then of each above it; of everybody. A default above the most that may be asked for
is cut to it. What was decided is kept with the job: a later version changes no job that is in the queue already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from django.db.models import Q
from django.utils.translation import gettext as _

from ledger import limits
from ledger.errors import Refused
from ledger.models import Department, Job, Project
from ledger.vocabulary import AskForm
from scheduler import likeness
from scheduler.policy_rows import LONGEST_S, VALUES, PolicyUse, PolicyVersion

RULE: Final = "most-specific/1"
DEFAULTS: Final = {"priority": 0, "walltime_s": 86_400}  # of the portal, where no policy has one
PRIORITY, WALLTIME = DEFAULTS
OF_AMOUNT: Final = {  # field of a job -> its default and the most, of Terms
    PRIORITY: ("priority_default", "priority_most"),
    WALLTIME: ("walltime_default_s", "walltime_most_s"),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose jobs, by id; neither = everybody's. `kind` "" = of any kind."""

    project: int | None = None
    department: int | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a policy says; None = nothing of that. Seconds; `zones` are ids."""

    forms: tuple[str, ...] | None = None
    fallback_wait_s: int | None = None
    zones: tuple[int, ...] | None = None
    priority_default: int | None = None
    priority_most: int | None = None
    walltime_default_s: int | None = None
    walltime_most_s: int | None = None

    @property
    def says(self) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a policy; `id` and `policy_id` None: of one that is only tried out."""

    scope: Scope
    terms: Terms
    number: int
    id: int | None = None
    policy_id: int | None = None


@dataclass(frozen=True, slots=True)
class Ruled:
    """A value and the version that it comes from."""

    value: Any
    version: Version


Effective = Mapping[str, Ruled]  # by field of Terms


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a policy decided. `was`: what was asked for, None = it was left open. `why`: default, most, order,
    wait or zones."""

    field: str
    was: Any
    now: Any
    why: str
    version: Version


@dataclass(frozen=True, slots=True)
class Broken:
    """More than a policy allows."""

    field: str
    asked: int
    most: int
    version: Version


@dataclass(frozen=True, slots=True)
class Settled:
    """A job as it is after its policies. `asked` is kept with it; `broken`: then it is refused."""

    asks: list[dict[str, Any]]
    priority: int
    walltime_s: int
    zones: tuple[int, ...] | None
    lines: tuple[Line, ...]
    broken: tuple[Broken, ...]
    asked: dict[str, Any]


# -- which version says what ------------------------------------------------------------------------------------------


class Rules:
    """Versions in force, by scope."""

    def __init__(self, versions: Iterable[Version]) -> None:
        self.by_scope = {version.scope: version for version in versions}
        self._known: dict[tuple[int | None, tuple[int, ...], str], Effective] = {}

    def changed(self, version: Version) -> Rules:
        """As they would be with this version; one that says nothing withdraws."""
        kept = {scope: one for scope, one in self.by_scope.items() if scope != version.scope}
        return Rules([*kept.values(), *([version] if version.terms.says else ())])

    def of(self, project: int | None, departments: Sequence[int], kind: str) -> Effective:
        """What holds for jobs of a project. `departments` stand above it, the root first."""
        key = project, tuple(departments), kind
        if key not in self._known:
            found: dict[str, Ruled] = {}
            for version in self._most_specific_first(*key):
                for name, value in version.terms.says.items():
                    found.setdefault(name, Ruled(value, version))
            self._known[key] = found
        return self._known[key]

    def _most_specific_first(self, project: int | None, departments: tuple[int, ...], kind: str) -> list[Version]:
        places: list[tuple[int | None, int | None]] = [(project, None)] if project is not None else []
        places += [(None, department) for department in reversed(departments)]
        scopes = [Scope(*place, of) for place in (*places, (None, None)) for of in dict.fromkeys((kind, ""))]
        return [self.by_scope[scope] for scope in scopes if scope in self.by_scope]


def version_of(row: PolicyVersion) -> Version:
    """With its policy read along."""
    scope = Scope(row.policy.project_id, row.policy.department_id, row.policy.kind)
    return Version(scope, terms_of(row), row.number, row.pk, row.policy_id)


def terms_of(row: PolicyVersion) -> Terms:
    stored = {name: getattr(row, name) for name in VALUES}
    values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in stored.items()}
    return Terms(**values)


def in_force(**which: Any) -> Any:
    """Rows of the versions that hold now and say something."""
    return PolicyVersion.objects.filter(period__upper_inf=True, withdrawn=False, **which).select_related("policy")


def all_rules() -> Rules:
    return Rules(version_of(row) for row in in_force())


def rules_of(project: Project) -> tuple[Rules, list[int]]:
    """Those that may bear on jobs of a project, and the departments above it."""
    departments = limits.chain(project.department_id)
    of_all = Q(policy__project=None, policy__department=None)
    rows = in_force().filter(Q(policy__project=project) | Q(policy__department__in=departments) | of_all)
    return Rules(version_of(row) for row in rows), departments


def effective(project: Project, kind: str) -> Effective:
    rules, departments = rules_of(project)
    return rules.of(project.pk, departments, kind)


class Tree:
    """The departments above each, from one reading."""

    def __init__(self) -> None:
        self._above = dict(Department.objects.values_list("pk", "parent"))

    def chain(self, department: int | None) -> tuple[int, ...]:
        """The root first."""
        found: list[int] = []
        while department is not None and department not in found:
            found.append(department)
            department = self._above.get(department)
        return tuple(reversed(found))

    def below(self, department: int) -> list[int]:
        """With the department itself."""
        return [one for one in self._above if department in self.chain(one)]


# -- what they make of a job ------------------------------------------------------------------------------------------


def settle(asked: Mapping[str, Any], rules: Effective) -> Settled:
    """`asked` has the asks of a JobInput, and its priority and walltime_s where they were not left open."""
    asks, lines = _asks(asked["asks"], rules)
    kept: dict[str, Any] = {"asks": asked["asks"]} if lines else {}
    amounts: dict[str, int] = {}
    broken: list[Broken] = []
    for field in OF_AMOUNT:
        kept[field] = asked.get(field)
        amounts[field], decided = _amount(field, asked.get(field), rules)
        if isinstance(decided, Line):
            lines.append(decided)
        elif decided is not None:
            broken.append(decided)
    zones = rules.get("zones")
    if zones is not None:
        lines.append(Line("zones", None, list(zones.value), "zones", zones.version))
    return Settled(
        asks=asks,
        zones=zones.value if zones else None,
        lines=tuple(lines),
        broken=tuple(broken),
        asked=kept,
        **amounts,
    )


def _amount(field: str, asked: int | None, rules: Effective) -> tuple[int, Line | Broken | None]:
    default, most = (rules.get(name) for name in OF_AMOUNT[field])
    if asked is not None:
        too_much = most is not None and asked > most.value
        return asked, Broken(field, asked, most.value, most.version) if most and too_much else None
    value = DEFAULTS[field] if default is None else default.value
    if most is not None and value > most.value:
        return most.value, Line(field, None, most.value, "most", most.version)
    return value, None if default is None else Line(field, None, value, "default", default.version)


def _asks(asks: list[dict[str, Any]], rules: Effective) -> tuple[list[dict[str, Any]], list[Line]]:
    """Each ask that leaves its form open becomes one for each form of the order, one wait after the other."""
    order, wait = rules.get("forms"), rules.get("fallback_wait_s")
    if order is None or all(ask["form"] != AskForm.AUTO for ask in asks):
        return asks, []
    step = wait.value if wait else 0
    found: list[dict[str, Any]] = []
    for ask in asks:
        forms = order.value if ask["form"] == AskForm.AUTO else (ask["form"],)
        found += [
            {**ask, "form": str(form), "after_s": min(ask["after_s"] + number * step, LONGEST_S)}
            for number, form in enumerate(forms)
        ]
    found.sort(key=lambda ask: int(ask["after_s"]))  # they are tried in order
    lines = [Line("forms", str(AskForm.AUTO), [str(form) for form in order.value], "order", order.version)]
    if wait is not None and len(order.value) > 1:
        lines.append(Line("fallback_wait_s", None, step, "wait", wait.version))
    return found, lines


# -- a job that is submitted ------------------------------------------------------------------------------------------


class AbovePolicy(Refused):
    """More was asked for than a policy allows."""

    def __init__(self, broken: Broken) -> None:
        facts = {
            "n": broken.version.policy_id,
            "version": broken.version.number,
            "most": broken.most,
            "minutes": f"{broken.most / 60:g}",
        }
        if broken.field == PRIORITY:
            text = _("Policy %(n)s, version %(version)d, allows a priority of at most %(most)d: ask for that or less.")
        else:
            text = _(
                "Policy %(n)s, version %(version)d, allows a time limit of at most %(minutes)s minutes (%(most)d s): "
                "ask for that or less."
            )
        super().__init__(text % facts, field=broken.field, code="above_policy")
        self.broken = broken


def settled(data: Mapping[str, Any], project: Project) -> Settled:
    """What policies make of a JobInput now; AbovePolicy names what is too much."""
    found = settle(data, effective(project, data["kind"]))
    if found.broken:
        raise AbovePolicy(found.broken[0])
    return found


def columns(data: Mapping[str, Any], found: Settled) -> dict[str, Any]:
    """The columns of the job that they make, its project apart."""
    names = ("asks", PRIORITY, WALLTIME)
    zones = list(found.zones) if found.zones is not None else None
    return likeness.columns({**data, **{name: getattr(found, name) for name in names}}) | {"zones": zones}


def keep(job: Job, found: Settled) -> None:
    """Write down what was decided, inside the transaction that writes the job."""
    lines = [
        {"field": line.field, "was": line.was, "now": line.now, "why": line.why, "version": line.version.id}
        for line in found.lines
    ]
    PolicyUse.objects.create(job=job, rule=RULE, asked=found.asked, lines=lines)


def named(found: Settled) -> dict[str, str]:
    """By field the policy and version that decided it, as audit rows have it."""
    return {line.field: f"{line.version.policy_id}/{line.version.number}" for line in found.lines}


def asked_of(job: Job) -> dict[str, Any]:
    """What a job asked for before policies; of one without a record what it has, as if nothing had been left open."""
    use: PolicyUse | None = getattr(job, "policy_use", None)
    own = {"asks": job.asks, PRIORITY: job.priority, WALLTIME: job.walltime_s}
    return own if use is None else own | use.asked
