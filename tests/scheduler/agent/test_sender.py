"""Addresses, tokens, pauses and batch sizes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from scheduler.agent.sender import Backoff, Batch, Reply, Unusable, read_token, report_url
from tests.scheduler.agent.conftest import Machine


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/api/v1/agents/reports/"),
        ("https://gpu.example.org/portal/", "https://gpu.example.org/portal/api/v1/agents/reports/"),
        ("http://[::1]:8000", "http://[::1]:8000/api/v1/agents/reports/"),
    ],
)
def test_reports_go_below_the_address_that_was_given(url: str, address: str) -> None:
    assert report_url(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org",
        "file:///etc/passwd",
        "example.org",
        "http://",
        "http://user:secret@example.org",
        "http://example.org/?a=b",
        "http://example.org:port",
        "http://example.org/a b",
        "http://[::1",
    ],
)
def test_other_addresses_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(Unusable) as refusal:
        report_url(url)
    assert "secret" not in str(refusal.value)


def test_a_refused_address_ends_the_agent_with_a_reason(machine: Machine) -> None:
    done = machine.once("file:///etc/passwd")
    assert (done.returncode, "http://" in done.stderr) == (2, True)


@pytest.mark.parametrize("content", [b"", b"two words", b"a\nb", "é".encode(), b"x" * 513])
def test_a_token_that_is_no_token_is_refused_unseen(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(Unusable) as refusal:
        read_token(path)
    assert content.decode() not in str(refusal.value) or not content


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        read_token(tmp_path / "token")


def test_pauses_double_with_jitter_up_to_30_seconds() -> None:
    backoff = Backoff(1.0, random.Random(1))
    pauses = [backoff.after(Reply(503)) for _ in range(40)]
    for number, pause in enumerate(pauses):
        whole = min(30.0, 2.0**number)
        assert whole / 2 <= pause <= whole
    assert len(set(pauses)) == len(pauses)
    backoff.reset()
    assert backoff.after(Reply(None)) <= 1.0


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_tried_again_slowly(status: int) -> None:
    assert Backoff(0.1, random.Random(1)).after(Reply(status)) >= 15


@pytest.mark.parametrize(
    ("status", "accepted", "final"),
    [
        (200, True, False),
        (204, True, False),
        (302, False, False),
        (400, False, True),
        (401, False, True),
        (408, False, False),
        (429, False, False),
        (500, False, False),
        (None, False, False),
    ],
)
def test_what_a_status_means(status: int | None, accepted: bool, final: bool) -> None:
    reply = Reply(status)
    assert (reply.accepted, reply.final) == (accepted, final)


def test_a_batch_shrinks_to_the_fault_to_blame_and_grows_again() -> None:
    batch = Batch()
    blamed = []
    for sent in (500, 250, 125, 62, 31, 15, 7, 3, 1):
        assert batch.size == sent
        blamed.append(batch.refused(sent))
    assert blamed == [False] * 8 + [True]
    assert batch.size == 0
    for _ in range(12):
        batch.accepted()
    assert batch.size == 500
