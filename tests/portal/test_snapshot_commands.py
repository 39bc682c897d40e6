"""What the engine sees as a file, and what it would do with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import CommandError

from scheduler import snapshot
from tests import factories
from tests.portal.commands import run


@pytest.mark.django_db
def test_a_snapshot_explains_what_would_happen_to_a_job(tmp_path: Path) -> None:
    snapshot.forget()
    factories.cast()
    factories.node("n1", cards=2, memory_mib=16_000)
    fits, never = factories.job(), factories.any_job(asks=[{"form": "container", "memory_mib": 20_000}])
    file = tmp_path / "snapshot.json"
    file.write_text(run("snapshot"), encoding="utf-8")
    said = run("explain", str(file), str(fits.pk))
    assert f"job {fits.pk} would be placed by ask 0" in said
    assert "n1 as container" in said
    assert "n1 as container" in run("explain", str(file), str(fits.pk), "--rule", "least-loss/1")
    with pytest.raises(CommandError, match="invalid choice: 'luck/1'"):
        run("explain", str(file), str(fits.pk), "--rule", "luck/1")
    said = run("explain", str(file), str(never.pk), "--nodes")
    assert "can never run on this fleet" in said
    assert "card_memory_total 1" in said
    assert "n1 ask 0: card_memory_total" in said


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "5", "{}", '{"format": "x"}', '{"format": "gpu-commons-snapshot/1"}', "[" * 100_000, "NaN"],
)
def test_explain_refuses_what_is_no_snapshot(tmp_path: Path, content: str) -> None:
    file = tmp_path / "f.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=re.escape(str(file))):
        run("explain", str(file), "1")


@pytest.mark.django_db
def test_explain_refuses_a_missing_file_and_a_job_that_is_not_queued(tmp_path: Path) -> None:
    snapshot.forget()
    with pytest.raises(CommandError, match="No such file"):
        run("explain", str(tmp_path / "none.json"), "1")
    file = tmp_path / "s.json"
    file.write_text(run("snapshot"))
    with pytest.raises(CommandError, match="job 7 is not queued"):
        run("explain", str(file), "7")
    with pytest.raises(CommandError, match="invalid int value"):
        run("explain", str(file), "x")
