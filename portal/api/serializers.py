"""What the API takes in, checked strictly. Answers are built in portal.api.answers."""

from __future__ import annotations

import re
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ledger.vocabulary import (
    DENIED_ENVIRONMENT_PREFIXES,
    AskForm,
    Distance,
    Interconnect,
    JobKind,
)

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
LABEL = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")
IMAGE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,299}$")
CHECKPOINT_SIGNALS = ("", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
MIB_LIMIT = 64 * 1024 * 1024  # 64 TiB: more than any machine
CARD_MIB_LIMIT = 1024 * 1024  # 1 TiB: more than any card
YEAR_S = 366 * 86_400
COMMAND_BYTES = 128 * 1024
ENVIRONMENT_BYTES = 128 * 1024


class WholeNumber(serializers.IntegerField):
    """A JSON integer; not true, not "3", not 3.0."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            raise serializers.ValidationError(_("Give a whole number."), code="invalid")
        value: int = super().to_internal_value(data)
        return value


class Text(serializers.CharField):
    """A JSON string without NUL and control characters."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(_("Give a text."), code="invalid")
        if CONTROL.search(data):
            raise serializers.ValidationError(_("Control characters (such as NUL) are not allowed."), code="control")
        value: str = super().to_internal_value(data)
        return value


class StrictBoolean(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            raise serializers.ValidationError(_("Give true or false."), code="invalid")
        return data


class Argument(Text):
    """A command argument: anything but NUL."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError(_("Give a text."), code="invalid")
        if "\x00" in data:
            raise serializers.ValidationError(_("NUL is not allowed."), code="control")
        return data


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


class AskInput(Strict):
    form = serializers.ChoiceField([f.value for f in AskForm])
    nodes = WholeNumber(default=1, min_value=1, max_value=1024)
    cards_per_node = WholeNumber(required=False, min_value=0, max_value=64)
    memory_mib = WholeNumber(default=0, min_value=0, max_value=CARD_MIB_LIMIT)
    after_s = WholeNumber(default=0, min_value=0, max_value=YEAR_S)
    model = Text(default="", allow_blank=True, max_length=64)
    compute_milli = WholeNumber(default=0, min_value=0, max_value=1000)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        form = attrs["form"]
        attrs.setdefault("cards_per_node", 0 if form == AskForm.WHOLE else 1)
        if attrs["cards_per_node"] == 0 and form in (AskForm.BLOCK, AskForm.AUTO):
            raise serializers.ValidationError(
                {"cards_per_node": _("A job without cards is a container; a block or an automatic form has at least 1 card.")}
            )
        if attrs["cards_per_node"] == 0 and form == AskForm.CONTAINER and (attrs["memory_mib"] or attrs["compute_milli"]):
            raise serializers.ValidationError({"memory_mib": _("Without cards there is no card memory to ask for.")})
        return attrs


class JobInput(Strict):
    """A job as POST /api/v1/jobs/ and the submit page take it. Context: {"user": User}."""

    project = Text(max_length=50)
    name = Text(max_length=200)
    kind = serializers.ChoiceField([k.value for k in JobKind], default=JobKind.OTHER.value)
    asks = serializers.ListField(child=AskInput(), min_length=1, max_length=8)
    cpu_milli = WholeNumber(default=500, min_value=0, max_value=4_096_000)
    host_memory_mib = WholeNumber(default=512, min_value=0, max_value=MIB_LIMIT)
    interconnect = serializers.ChoiceField([i.value for i in Interconnect], default=Interconnect.ANY.value)
    distance = serializers.ChoiceField([d.value for d in Distance], default=Distance.ANY.value)
    labels = serializers.ListField(child=Text(max_length=63), default=list, max_length=20)
    command = serializers.ListField(child=Argument(allow_blank=True, trim_whitespace=False), min_length=1, max_length=1000)
    environment = serializers.DictField(
        child=Argument(allow_blank=True, trim_whitespace=False), default=dict, allow_empty=True
    )
    image = Text(default="", allow_blank=True, max_length=300)
    data_paths = serializers.ListField(child=Text(max_length=1000), default=list, max_length=50)
    walltime_s = WholeNumber(default=86_400, min_value=1, max_value=YEAR_S)
    priority = WholeNumber(default=0, min_value=-100, max_value=100)
    preemptible = StrictBoolean(default=False)
    checkpoint = serializers.ChoiceField(CHECKPOINT_SIGNALS, default="", allow_blank=True)
    key_work = StrictBoolean(default=False)
    simulated = StrictBoolean(default=False)

    def validate_asks(self, asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        times = [ask["after_s"] for ask in asks]
        if times != sorted(times):
            raise serializers.ValidationError(_("after_s must not fall from one ask to the next: they are tried in order."))
        return [dict(ask) for ask in asks]

    def validate_command(self, command: list[str]) -> list[str]:
        if not command[0].strip():
            raise serializers.ValidationError(_("The first word must name a program."))
        if sum(len(word.encode()) for word in command) > COMMAND_BYTES:
            raise serializers.ValidationError(_("The command is longer than %(n)d bytes.") % {"n": COMMAND_BYTES})
        return command

    def validate_environment(self, environment: dict[str, str]) -> dict[str, str]:
        if len(environment) > 200 or sum(len(k.encode()) + len(v.encode()) for k, v in environment.items()) > ENVIRONMENT_BYTES:
            raise serializers.ValidationError(_("At most 200 variables and %(n)d bytes.") % {"n": ENVIRONMENT_BYTES})
        for name in environment:
            if not VARIABLE.match(name):
                raise serializers.ValidationError(
                    _("%(name)s is no variable name: use letters, digits and _.") % {"name": repr(name[:60])}
                )
            if name.upper().startswith(DENIED_ENVIRONMENT_PREFIXES):
                raise serializers.ValidationError(
                    _("%(name)s is set by the system and can't be chosen: it decides over cards or libraries.")
                    % {"name": name}
                )
        return environment

    def validate_image(self, image: str) -> str:
        if image and (not IMAGE.match(image) or ".." in image):
            raise serializers.ValidationError(_("This is no image name, such as registry/name:tag."))
        return image

    def validate_labels(self, labels: list[str]) -> list[str]:
        if any(not LABEL.match(label) for label in labels):
            raise serializers.ValidationError(_("A label has letters, digits and . _ / - only."))
        return sorted(set(labels))

    def validate_data_paths(self, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith("/") or ".." in path.split("/"):
                raise serializers.ValidationError(
                    _("%(path)s is not allowed: give absolute paths without “..”.") % {"path": repr(path[:100])}
                )
        return paths

    def validate_key_work(self, key_work: bool) -> bool:
        if key_work and not self.context["user"].operates:
            raise serializers.ValidationError(_("Only operators and admins mark key work, which may enter headroom."))
        return key_work


class CancelInput(Strict):
    reason = Text(default="", allow_blank=True, max_length=500)


class HoldInput(Strict):
    node = Text(required=False, max_length=253)
    card = Text(required=False, max_length=100)
    kind = serializers.ChoiceField(["fault", "maintenance", "drill", "drain"], default="maintenance")
    reason = Text(max_length=500)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("node" in attrs) == ("card" in attrs):
            raise serializers.ValidationError({"node": _("Name one node or one card.")})
        return attrs


class EndHoldInput(Strict):
    reason = Text(max_length=500)


class _Loose(serializers.Serializer[Any]):
    """Agents of other versions may send more than we know."""


class NodePart(_Loose):
    cpu_milli = WholeNumber(min_value=0, max_value=100_000_000)
    host_memory_mib = WholeNumber(min_value=0, max_value=MIB_LIMIT)


class CardPart(_Loose):
    uuid = Text(max_length=100)
    slot = WholeNumber(min_value=0, max_value=1024)
    model = Text(max_length=64)
    memory_mib = WholeNumber(allow_null=True, min_value=1, max_value=CARD_MIB_LIMIT)  # null: the card does not tell
    memory_used_mib = WholeNumber(required=False, allow_null=True, min_value=0, max_value=CARD_MIB_LIMIT)
    temperature_c = WholeNumber(required=False, allow_null=True, min_value=-50, max_value=200)
    utilisation_pct = WholeNumber(required=False, allow_null=True, min_value=0, max_value=100)
    power_mw = WholeNumber(required=False, allow_null=True, min_value=0, max_value=10_000_000)
    ecc = serializers.DictField(required=False, allow_null=True)
    processes = serializers.ListField(required=False, allow_null=True, max_length=4096)
    lost = StrictBoolean(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        used = attrs.get("memory_used_mib")
        if used is not None and attrs["memory_mib"] is not None and used > attrs["memory_mib"]:
            raise serializers.ValidationError({"memory_used_mib": _("More is used than the card has.")})
        return attrs


class LinkPart(_Loose):
    a = Text(max_length=100)
    b = Text(max_length=100)
    kind = Text(max_length=16)
    gbps = WholeNumber(required=False, allow_null=True, min_value=0, max_value=1_000_000)


class FaultPart(_Loose):
    id = Text(max_length=200)
    kind = serializers.ChoiceField(["xid", "ecc", "lost", "thermal"])
    code = WholeNumber(required=False, allow_null=True, min_value=0, max_value=1_000_000)
    card_uuid = Text(required=False, allow_null=True, max_length=100)
    at = serializers.DateTimeField()
    message = Text(default="", allow_blank=True, max_length=4000)


class ReportInput(_Loose):
    hostname = Text(max_length=253)
    boot_id = Text(max_length=64)
    sequence = WholeNumber(min_value=0, max_value=2**62)
    sent_at = serializers.DateTimeField()
    virtual = StrictBoolean(default=False)
    node = NodePart()
    cards = serializers.ListField(child=CardPart(), max_length=1024)
    links = serializers.ListField(child=LinkPart(), default=list, max_length=65_536)
    faults = serializers.ListField(child=FaultPart(), default=list, max_length=1000)
