"""The data folder, and how commands outside `up` find what runs on it."""

import os
import stat
from pathlib import Path

import pytest

from portal.up import connection
from portal.up.folder import MARKER, SECRETS, AlreadyRunning, DataFolder, FolderError

ADDRESSES = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DATABASE_ROLE", "GPU_COMMONS_DATA")


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """A data folder that this test holds."""
    one = DataFolder(tmp_path / "data")
    one.open()
    one.lock()
    return one


@pytest.fixture
def no_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment as in a new terminal, with a data folder of this test. What `prepare` sets is undone."""
    for name in ADDRESSES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("GPU_COMMONS_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FolderError, match="holds other files"):
        DataFolder(tmp_path).open()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(FolderError, match="not a folder"):
        DataFolder(tmp_path / "data").open()


def test_two_cannot_hold_one_folder(folder: DataFolder) -> None:
    other = DataFolder(folder.path)
    with pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}\)"):
        other.lock()
    folder.unlock()
    other.lock()


def test_secrets_stay_the_same_and_are_private(folder: DataFolder) -> None:
    first = folder.secret("secret_key")
    assert len(first) >= 50
    assert DataFolder(folder.path).secret("secret_key") == first
    assert folder.secret("valkey") != first
    assert stat.S_IMODE((folder.path / SECRETS).stat().st_mode) == 0o600


def test_fresh_deletes_all_but_the_marker_and_the_lock(folder: DataFolder) -> None:
    folder.secret("secret_key")
    (folder.path / "jobs" / "1").mkdir(parents=True)
    (folder.path / "elsewhere").symlink_to(folder.path.parent)
    folder.empty()
    assert sorted(path.name for path in folder.path.iterdir()) == [MARKER, "logs", "up.lock"]
    assert folder.path.parent.exists()


def test_fresh_deletes_nothing_without_the_marker_or_the_lock(folder: DataFolder) -> None:
    kept = folder.path / "kept"
    kept.touch()
    (folder.path / MARKER).unlink()
    with pytest.raises(FolderError):
        folder.empty()
    (folder.path / MARKER).touch()
    folder.unlock()
    with pytest.raises(FolderError):
        folder.empty()
    assert kept.exists()


def test_a_command_takes_the_addresses_of_what_runs(no_addresses: Path, folder: DataFolder) -> None:
    folder.publish({"environment": {"DATABASE_URL": "postgresql://here", "REDIS_URL": "redis://here"}})
    assert connection.prepare(["check_books", "--data", str(folder.path)]) == ["check_books"]
    assert os.environ["DATABASE_URL"] == "postgresql://here"
    assert "DATABASE_ROLE" not in os.environ


def test_a_schema_command_runs_as_the_owner(no_addresses: Path, folder: DataFolder) -> None:
    folder.publish({"environment": {"DATABASE_URL": "postgresql://here"}})
    connection.prepare(["migrate"])
    assert os.environ["DATABASE_ROLE"] == ""


@pytest.mark.parametrize("argv", [["token", "researcher"], ["migrate"]])
def test_a_command_says_when_nothing_runs(no_addresses: Path, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        connection.prepare(argv)
    assert f"nothing is running on {no_addresses}" in str(ended.value)


def test_addresses_left_by_a_killed_runner_are_not_used(no_addresses: Path, folder: DataFolder) -> None:
    folder.publish({"environment": {"DATABASE_URL": "postgresql://here"}})
    folder.unlock()
    with pytest.raises(SystemExit):
        connection.prepare(["check_books"])


def test_a_command_that_needs_no_server_gets_settings_that_load(no_addresses: Path) -> None:
    assert connection.prepare(["makemigrations", "--check"]) == ["makemigrations", "--check"]
    assert os.environ["DATABASE_URL"] == connection.OFFLINE_DATABASE
    assert len(os.environ["SECRET_KEY"]) >= 50


def test_an_address_that_is_set_wins(no_addresses: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://mine")
    connection.prepare(["check_books"])
    assert os.environ["DATABASE_URL"] == "postgresql://mine"


@pytest.mark.parametrize(
    ("argv", "rest", "data"),
    [
        (["token", "a"], ["token", "a"], None),
        (["--data", "d", "token", "a"], ["token", "a"], Path("d")),
        (["token", "--data=d", "a"], ["token", "a"], Path("d")),
        (["shell", "--", "--data", "d"], ["shell", "--", "--data", "d"], None),
    ],
)
def test_data_is_taken_out_of_the_arguments(argv: list[str], rest: list[str], data: Path | None) -> None:
    assert connection.without_data(argv) == (rest, data)
