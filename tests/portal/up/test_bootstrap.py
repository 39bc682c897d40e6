"""From a bare Python to `.venv`: when it installs, when it does not, and what it says."""

import ast
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import manage
from portal.up import bootstrap
from portal.up.bootstrap import BASE, CHECKOUT, TESTS, BootstrapError, Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A checkout whose `.venv` has a Python and both requirements files."""
    (tmp_path / "tests").mkdir()
    (tmp_path / BASE).write_text("a==1\n")
    (tmp_path / TESTS).write_text("a==1\nb==1\n")
    one = Environment(tmp_path)
    one.python.parent.mkdir(parents=True)
    one.python.symlink_to(sys.executable)
    return one


def test_nothing_is_installed_before_the_stamp(environment: Environment) -> None:
    assert not environment.is_current(BASE)


def test_a_stamp_holds_until_its_file_changes(environment: Environment) -> None:
    environment.record(BASE)
    assert environment.is_current(BASE)
    assert not environment.is_current(TESTS)
    (environment.checkout / BASE).write_text("a==2\n")
    assert not environment.is_current(BASE)


def test_the_requirements_of_the_tests_satisfy_up_too(environment: Environment) -> None:
    environment.record(TESTS)
    assert environment.is_current(TESTS)
    assert environment.is_current(BASE)


@pytest.mark.parametrize(
    ("command", "name"),
    [("up", BASE), ("check_books", BASE), ("help", BASE), ("test", TESTS), ("bench", TESTS), ("screenshots", TESTS)],
)
def test_a_command_gets_the_packages_that_it_uses(command: str, name: str) -> None:
    assert bootstrap.REQUIREMENTS[bootstrap.kind_of(command)] == name


def test_installing_the_base_again_makes_the_tests_install_again(environment: Environment) -> None:
    environment.record(TESTS)
    environment.record(BASE)
    assert not environment.is_current(TESTS)


def test_a_python_that_is_gone_makes_it_install_again(environment: Environment) -> None:
    environment.record(BASE)
    environment.python.unlink()
    assert not environment.is_current(BASE)


def test_an_interrupted_installation_starts_over(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    created = []
    monkeypatch.setattr(bootstrap, "create", created.append)
    monkeypatch.setattr(Environment, "is_usable", lambda self: not self.mark.exists())

    def fail(*_: object) -> None:
        raise BootstrapError("the network is gone")

    environment.record(BASE)
    (environment.checkout / BASE).write_text("a==2\n")
    monkeypatch.setattr(bootstrap, "pip", fail)
    with pytest.raises(BootstrapError):
        bootstrap.install(environment, BASE)
    assert not created
    assert not environment.is_current(BASE)

    monkeypatch.setattr(bootstrap, "pip", lambda *_: None)
    monkeypatch.setattr(bootstrap, "precompile", lambda *_: None)
    bootstrap.install(environment, BASE)
    assert created == [environment]
    assert environment.is_current(BASE)


def test_two_installers_take_turns(tmp_path: Path) -> None:
    order: list[str] = []

    def other() -> None:
        with bootstrap.only_one_installer(tmp_path):
            order.append("second")

    with bootstrap.only_one_installer(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_a_python_without_venv_gets_the_name_of_the_package(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BootstrapError, match="apt-get install python3"):
        bootstrap.create(environment)


def test_an_old_python_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 9, 2))
        with pytest.raises(SystemExit) as ended:
            manage.main(["up"])
    assert "needs Python 3.11 or newer; this is Python 3.9.2" in str(ended.value)


def test_an_old_python_can_read_manage_py() -> None:
    ast.parse((CHECKOUT / "manage.py").read_text(), feature_version=(3, 4))


def test_a_fresh_checkout_makes_its_venv_once_and_runs_inside_it(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "manage.py", tmp_path / "manage.py")
    shutil.copytree(CHECKOUT / "portal" / "up", tmp_path / "portal" / "up")
    (tmp_path / BASE).write_text("# nothing is needed here\n")
    (tmp_path / "portal" / "__init__.py").write_text("")  # the real one imports Celery, which is not installed here
    (tmp_path / "portal" / "up" / "connection.py").write_text("import sys\ndef prepare(argv): sys.exit(sys.prefix)\n")
    env = {name: value for name, value in os.environ.items() if name != bootstrap.SKIP}

    def run() -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(tmp_path / "manage.py"), "anything"]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)

    first = run()
    assert "Creating .venv" in first.stdout
    assert "Installing 0 packages from requirements.txt" in first.stdout
    assert first.stderr.strip() == str(tmp_path / ".venv")
    second = run()
    assert second.stdout == ""
    assert second.stderr.strip() == str(tmp_path / ".venv")
