"""What the API takes in, checked strictly. Answers are built in portal.api.answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ledger import mig
from ledger.errors import Refused
from ledger.vocabulary import (
    DENIED_ENVIRONMENT_PREFIXES,
    AskForm,
    Distance,
    Interconnect,
    JobKind,
)
from portal.api.fields import Argument, Choice, Facts, Instant, Items, StrictBoolean, Text, WholeNumber
from scheduler import likeness, slices

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGE = re.compile(  # [registry[:port]/]path[:tag][@digest], as registries define it; no user:password@
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
METRICS_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,199}")
CHECKPOINT_SIGNALS = ("", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
MIB_LIMIT = 64 * 1024 * 1024  # 64 TiB: more than any machine
CARD_MIB_LIMIT = 1024 * 1024  # 1 TiB: more than any card
YEAR_S = 366 * 86_400
COMMAND_BYTES = 128 * 1024  # with the NUL after each word: what Linux takes as one argument
ENVIRONMENT_BYTES = 128 * 1024
VARIABLES = 200


class Strict(serializers.Serializer[Any]):
    """Refuses fields that it does not know."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                known = ", ".join(sorted(self.fields))
                message = _("There is no such field; known are: %(known)s.") % {"known": known}
                raise serializers.ValidationError({str(name)[:100]: [message] for name in unknown[:20]}, code="unknown")
        return super().to_internal_value(data)


class Variables(serializers.DictField):
    """Environment variables; their number, size and names are checked before their values."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if isinstance(data, dict):
            self._check_size(data)
            for name in data:
                self._check_name(name)
        value: dict[str, str] = super().to_internal_value(data)
        return value

    def _check_size(self, data: dict[str, Any]) -> None:
        size = sum(len(k.encode()) + len(v.encode()) + 2 for k, v in data.items() if isinstance(v, str))
        if len(data) > VARIABLES or size > ENVIRONMENT_BYTES:
            raise serializers.ValidationError(
                _("At most %(count)d variables and %(n)d bytes.") % {"count": VARIABLES, "n": ENVIRONMENT_BYTES}
            )

    def _check_name(self, name: str) -> None:
        if not VARIABLE.fullmatch(name):
            raise serializers.ValidationError(
                _("%(name)s is no variable name: use letters, digits and _.") % {"name": ascii(name[:60])}
            )
        if name.upper().startswith(DENIED_ENVIRONMENT_PREFIXES):
            raise serializers.ValidationError(
                _("%(name)s is set by the system and can't be chosen: it decides over cards or libraries.")
                % {"name": name}
            )


class AskInput(Strict):
    form = Choice([f.value for f in AskForm])
    nodes = WholeNumber(default=1, min_value=1, max_value=1024)
    cards_per_node = WholeNumber(required=False, min_value=0, max_value=64)
    memory_mib = WholeNumber(default=0, min_value=0, max_value=CARD_MIB_LIMIT)
    after_s = WholeNumber(default=0, min_value=0, max_value=YEAR_S)
    model = Text(default="", allow_blank=True, max_length=64)
    compute_milli = WholeNumber(default=0, min_value=0, max_value=1000)
    profile = Text(default="", allow_blank=True, max_length=16)  # of MIG: a container's share as large as that

    def validate_profile(self, profile: str) -> str:
        if profile and profile not in mig.KNOWN:
            raise serializers.ValidationError(
                _("%(name)s is no MIG profile that is known here; profiles are called 1g.10gb or 3g.40gb.")
                % {"name": ascii(profile)}
            )
        return profile

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        form = attrs["form"]
        attrs.setdefault("cards_per_node", 0 if form == AskForm.WHOLE else 1)
        if attrs["cards_per_node"] == 0 and form in (AskForm.BLOCK, AskForm.AUTO):
            raise serializers.ValidationError(
                {
                    "cards_per_node": _(
                        "A job without cards is a container; a block or an automatic form has at least 1 card."
                    )
                }
            )
        if (
            attrs["cards_per_node"] == 0
            and form == AskForm.CONTAINER
            and (attrs["memory_mib"] or attrs["compute_milli"])
        ):
            raise serializers.ValidationError({"memory_mib": _("Without cards there is no card memory to ask for.")})
        if attrs["profile"]:
            _check_slice(attrs)
        else:
            del attrs["profile"]
        return attrs


def _check_slice(attrs: dict[str, Any]) -> None:
    if attrs["form"] != AskForm.CONTAINER:
        message = _("Only a container is a slice of a card: choose the form container, or leave the profile out.")
    elif attrs["memory_mib"] or attrs["compute_milli"]:
        message = _("A profile says how much memory and compute it has: ask for no other amount beside it (0).")
    elif not attrs["cards_per_node"]:
        message = _("Without cards there is no card to take a slice of.")
    else:
        return
    raise serializers.ValidationError({"profile": message})


class JobInput(Strict):
    """A job as POST /api/v1/jobs/ and the submit page take it. Context: {"user": User}."""

    project = Text(max_length=50)
    name = Text(max_length=200)
    kind = Choice([k.value for k in JobKind], default=JobKind.OTHER.value)
    asks = Items(child=AskInput(), min_length=1, most=slices.MOST_ASKS)
    cpu_milli = WholeNumber(default=500, min_value=1, max_value=4_096_000)
    host_memory_mib = WholeNumber(default=512, min_value=0, max_value=MIB_LIMIT)
    interconnect = Choice([i.value for i in Interconnect], default=Interconnect.ANY.value)
    distance = Choice([d.value for d in Distance], default=Distance.ANY.value)
    labels = Items(child=Text(max_length=63), default=list, most=20)
    reproducible = StrictBoolean(default=False)
    like_job = WholeNumber(default=None, allow_null=True, min_value=1, max_value=2**63 - 1)
    command = Items(child=Argument(), min_length=1, most=1000)
    environment = Variables(child=Argument(), default=dict, allow_empty=True)
    image = Text(default="", allow_blank=True, max_length=300)
    data_paths = Items(child=Text(max_length=1000), default=list, most=50)
    # left out, the project's policies say it, or else the portal
    walltime_s = WholeNumber(required=False, min_value=1, max_value=YEAR_S, help_text=_("Without: policies, or 86400."))
    priority = WholeNumber(required=False, min_value=-100, max_value=100, help_text=_("Without: policies, or 0."))
    preemptible = StrictBoolean(default=False)
    checkpoint = Choice(CHECKPOINT_SIGNALS, default="", allow_blank=True)
    key_work = StrictBoolean(default=False)
    simulated = StrictBoolean(default=False)
    metrics_port = WholeNumber(default=None, allow_null=True, min_value=1024, max_value=65_535)
    metrics_path = Text(default="", allow_blank=True, max_length=200, help_text=_("With a port. Without: /metrics."))

    def validate_asks(self, asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        times = [ask["after_s"] for ask in asks]
        if times != sorted(times):
            raise serializers.ValidationError(
                _("after_s must not fall from one ask to the next: they are tried in order.")
            )
        return [dict(ask) for ask in asks]

    def validate_command(self, command: list[str]) -> list[str]:
        if not command[0].strip():
            raise serializers.ValidationError(_("The first word must name a program."))
        if sum(len(word.encode()) + 1 for word in command) > COMMAND_BYTES:
            raise serializers.ValidationError(_("The command is longer than %(n)d bytes.") % {"n": COMMAND_BYTES})
        return command

    def validate_image(self, image: str) -> str:
        if image and (not IMAGE.fullmatch(image) or ".." in image):
            raise serializers.ValidationError(_("This is no image name, such as registry/name:tag."))
        return image

    def validate_labels(self, labels: list[str]) -> list[str]:
        if any(not LABEL.fullmatch(label) for label in labels):
            raise serializers.ValidationError(_("A label has letters, digits and . _ / - only."))
        return sorted(set(labels))

    def validate_data_paths(self, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith("/") or ".." in path.split("/"):
                raise serializers.ValidationError(
                    _("%(path)s is not allowed: give absolute paths without “..”.") % {"path": repr(path[:100])}
                )
        return paths

    def validate_metrics_path(self, path: str) -> str:
        if path and (not METRICS_PATH.fullmatch(path) or ".." in path.split("/")):
            raise serializers.ValidationError(_("Give a path such as /metrics: letters, digits and . _ ~ - / only."))
        return path

    def validate_key_work(self, key_work: bool) -> bool:
        if key_work and not self.context["user"].operates:
            raise serializers.ValidationError(_("Only operators and admins mark key work, which may enter headroom."))
        return key_work

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["metrics_port"] is None and attrs["metrics_path"]:
            raise serializers.ValidationError({"metrics_port": _("Name the port that this path is at.")})
        if attrs["metrics_port"] is not None:
            attrs["metrics_path"] = attrs["metrics_path"] or "/metrics"
        if attrs["reproducible"]:
            _only_whole(attrs["asks"])
        elif attrs["like_job"] is not None:
            message = _("Only a reproducible job is placed like another: set reproducible to true.")
            raise serializers.ValidationError({"reproducible": message})
        try:
            likeness.check(attrs, self.context["user"])
            slices.asks_of(attrs["asks"], attrs["simulated"])  # asked again when the job is made
        except Refused as refused:
            raise serializers.ValidationError(_at(refused.field, str(refused)), code=refused.code) from None
        return attrs


def _only_whole(asks: Iterable[dict[str, Any]]) -> None:
    message = _("A reproducible job has its machines to itself: ask for whole machines (form whole).")
    wrong = {number: {"form": message} for number, ask in enumerate(asks) if ask["form"] != AskForm.WHOLE}
    if wrong:
        raise serializers.ValidationError({"asks": wrong})


def _at(field: str, message: str) -> Any:
    """The message at its place in the document: asks.0.nodes."""
    found: Any = message
    for name in reversed(field.split(".")):
        found = {name: found}
    return found


class CancelInput(Strict):
    reason = Text(default="", allow_blank=True, max_length=500, multiline=True)


class HoldInput(Strict):
    node = Text(required=False, max_length=253)
    card = Text(required=False, max_length=100)
    kind = Choice(["fault", "maintenance", "drill", "drain"], default="maintenance")
    reason = Text(max_length=500, multiline=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("node" in attrs) == ("card" in attrs):
            raise serializers.ValidationError({"node": _("Name one node or one card.")})
        return attrs


class EndHoldInput(Strict):
    reason = Text(max_length=500, multiline=True)


SLOWDOWNS = ("thermal", "power", "other")


class _Loose(serializers.Serializer[Any]):
    """Agents of other versions may send more than we know."""


class StoragePart(_Loose):
    path = Text(max_length=1000)
    ok = StrictBoolean()
    ms = WholeNumber(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    error = Text(default="", allow_null=True, allow_blank=True, max_length=500, multiline=True)


class NodePart(_Loose):
    cpu_milli = WholeNumber(min_value=0, max_value=100_000_000)
    host_memory_mib = WholeNumber(min_value=0, max_value=MIB_LIMIT)
    pci_cards = WholeNumber(required=False, allow_null=True, min_value=0, max_value=1024)
    storage = Items(child=StoragePart(), required=False, allow_null=True, most=64)


class Reading(WholeNumber):
    """A whole number or null. What no card can have is not refused here, so that one bad sensor hides no other card:
    ledger.telemetry sets it aside and counts it."""

    def __init__(self, **values: Any) -> None:
        super().__init__(required=False, allow_null=True, min_value=-(2**31), max_value=2**31 - 1, **values)


class SamplePart(_Loose):
    """What a card told at one moment."""

    uuid = Text(max_length=100)
    memory_used_mib = Reading()
    temperature_c = Reading()
    utilisation_pct = Reading()
    tensor_pct = Reading()
    memory_busy_pct = Reading()
    power_mw = Reading()


class CardPart(SamplePart):
    slot = WholeNumber(min_value=0, max_value=1024)
    model = Text(max_length=64)
    memory_mib = WholeNumber(allow_null=True, min_value=1, max_value=CARD_MIB_LIMIT)  # null: the card does not tell
    ecc = Facts(dict, required=False, allow_null=True)
    nvlink_errors = WholeNumber(required=False, allow_null=True, min_value=0, max_value=2**62)
    slowdown = Items(child=Choice(SLOWDOWNS), required=False, allow_null=True, most=len(SLOWDOWNS))
    reset_required = StrictBoolean(default=False)
    processes = Facts(list, required=False, allow_null=True)
    lost = StrictBoolean(default=False)


class EarlierPart(_Loose):
    sequence = WholeNumber(min_value=0, max_value=2**62)
    sent_at = Instant()
    cards = Items(child=SamplePart(), most=1024)


class ResultPart(_Loose):
    """How something ended that the agent was asked to do."""

    order = WholeNumber(min_value=1, max_value=2**63 - 1)
    ok = StrictBoolean()
    seconds = serializers.FloatField(min_value=0, max_value=10_000_000)
    detail = Text(default="", allow_blank=True, max_length=4000, multiline=True)


class LinkPart(_Loose):
    a = Text(max_length=100)
    b = Text(max_length=100)
    kind = Text(max_length=16)
    gbps = WholeNumber(required=False, allow_null=True, min_value=0, max_value=1_000_000)


class FaultPart(_Loose):
    id = Text(max_length=200)
    kind = Choice(["xid", "ecc", "lost", "thermal", "nvlink", "correctable"])
    code = WholeNumber(required=False, allow_null=True, min_value=0, max_value=1_000_000)
    card_uuid = Text(required=False, allow_null=True, max_length=100)
    at = Instant()
    message = Text(default="", allow_blank=True, max_length=4000, multiline=True)


class ReportInput(_Loose):
    hostname = Text(max_length=253)
    boot_id = Text(max_length=64)
    sequence = WholeNumber(min_value=0, max_value=2**62)
    sent_at = Instant()
    virtual = StrictBoolean(default=False)
    node = NodePart()
    cards = Items(child=CardPart(), most=1024)
    links = Items(child=LinkPart(), default=list, most=65_536)
    faults = Items(child=FaultPart(), default=list, most=1000)
    earlier = Items(child=EarlierPart(), default=list, most=100)
    results = Items(child=ResultPart(), default=list, most=100)

    def validate_earlier(self, earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for part in earlier:
            self.validate_cards(part["cards"])
        return earlier

    def validate_cards(self, cards: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({card["uuid"] for card in cards}) != len(cards):
            raise serializers.ValidationError(_("A card stands here twice."))
        return cards
