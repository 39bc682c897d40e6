"""Makes `.venv` from the hash-pinned requirements and starts manage.py again inside it.

Standard library only: it runs before anything is installed. It must not import the rest of the portal.
A stamp in `.venv` holds the hashes of what was installed, so a changed file installs again; a mark that is set while
pip works makes an interrupted installation start over.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BASE = "requirements.txt"
TESTS = "tests/requirements.txt"
REQUIREMENTS = {"run": BASE, "test": TESTS}
WITH_TESTS = ("test", "bench", "screenshots")  # commands that use packages which only tests need
SKIP = "GPU_COMMONS_PYTHON_OK"


class BootstrapError(Exception):
    """Installing cannot go on; the message says what to do."""


class Environment:
    """The virtual environment of one checkout and the stamp that says what is in it."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.folder = checkout / ".venv"
        self.python = self.folder / "bin" / "python"
        self.stamp = self.folder / "gpu-commons.json"
        self.mark = self.folder / "gpu-commons.installing"

    def digest(self, name: str) -> str:
        """SHA-256 of a requirements file together with the Python version that it was installed for."""
        version = ".".join(str(part) for part in sys.version_info[:2])
        return hashlib.sha256(version.encode() + (self.checkout / name).read_bytes()).hexdigest()

    def is_current(self, name: str) -> bool:
        """Whether the installed packages are those of this requirements file."""
        if self.mark.exists() or not self.python.exists():
            return False
        try:
            installed = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return False
        return isinstance(installed, dict) and installed.get(name) == self.digest(name)

    def record(self, name: str) -> None:
        """Write the stamp. tests/requirements.txt holds all of requirements.txt, so it satisfies both."""
        names = {name, BASE}
        temporary = self.stamp.with_suffix(".new")
        temporary.write_text(json.dumps({one: self.digest(one) for one in sorted(names)}, indent=1))
        os.replace(temporary, self.stamp)
        self.mark.unlink(missing_ok=True)

    def is_usable(self) -> bool:
        """Whether there is a virtual environment with a pip that runs, not left over from an interrupted run."""
        if self.mark.exists() or not self.python.exists():
            return False
        probe = subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True, check=False)
        return probe.returncode == 0


def inside(folder: Path) -> bool:
    """Whether this interpreter is the virtual environment in `folder`."""
    return Path(sys.prefix).resolve() == folder.resolve() and sys.prefix != sys.base_prefix


def allowed_outside() -> bool:
    """Whether the caller asked to use its own environment, and that one has what is needed."""
    return os.environ.get(SKIP) == "1" and importlib.util.find_spec("django") is not None


def kind_of(command: str) -> str:
    """Which of REQUIREMENTS a command of manage.py needs."""
    return "test" if command in WITH_TESTS else "run"


def enter(kind: str, argv: Sequence[str]) -> None:
    """Return when running inside a complete environment; otherwise install and replace this process."""
    if allowed_outside():
        return
    environment = Environment(CHECKOUT)
    name = REQUIREMENTS[kind]
    try:
        if not environment.is_current(name):
            with only_one_installer(CHECKOUT):
                if not environment.is_current(name):  # the other one may have finished it meanwhile
                    install(environment, name)
            if inside(environment.folder):
                restart(environment, argv)
    except BootstrapError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Interrupted; the next run installs again from the start.")
    if not inside(environment.folder):
        restart(environment, argv)


def restart(environment: Environment, argv: Sequence[str]) -> None:
    """Replace this process by the same command inside the virtual environment."""
    sys.stdout.flush()
    python = str(environment.python)
    os.execv(python, [python, str(environment.checkout / "manage.py"), *argv])


@contextlib.contextmanager
def only_one_installer(checkout: Path) -> Iterator[None]:
    """Hold a lock on the checkout itself: `.venv` is wiped at times, and a lock file in it with it."""
    handle = os.open(checkout, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another run is installing into .venv; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def install(environment: Environment, name: str) -> None:
    """Create the virtual environment where needed and install one requirements file by hash."""
    started = time.monotonic()
    path = environment.checkout / name
    if not path.is_file():
        raise BootstrapError(f"{path} is missing: the checkout is incomplete.")
    if not environment.is_usable():
        create(environment)
    environment.mark.touch()
    count = sum(1 for line in path.read_text().splitlines() if line[:1].isalnum())
    say(f"Installing {count} packages from {name} into .venv (pinned, checked by hash) …")
    pip(environment, path)
    precompile(environment)
    environment.record(name)
    say(f"Installed in {time.monotonic() - started:.0f} s.")


def create(environment: Environment) -> None:
    """Create `.venv` afresh; what an interrupted run left is cleared."""
    if any(importlib.util.find_spec(module) is None for module in ("venv", "ensurepip")):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise BootstrapError(
            f"This Python ({sys.executable}) has no `venv`/`ensurepip`, so .venv cannot be made.\n"
            f"On Debian or Ubuntu: apt-get install python{version}-venv; then run the same command again."
        )
    # Run as `.venv/bin/python manage.py`, this interpreter is the one about to be cleared: use the one behind it.
    python = str(getattr(sys, "_base_executable", None) or sys.executable)
    say(f"Creating .venv with {python} …")
    arguments = [python, "-m", "venv", "--clear", str(environment.folder)]
    if subprocess.run(arguments, check=False).returncode != 0:
        raise BootstrapError("Creating .venv failed; the message is above. Is the checkout writable, the disk full?")


def pip(environment: Environment, path: Path) -> None:
    """Install by hash; the byte code is compiled afterwards, on all cores."""
    arguments = [str(environment.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    arguments += ["--quiet", "--progress-bar", "off", "--no-compile", "--require-hashes", "-r", str(path)]
    done = subprocess.run(
        arguments, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise BootstrapError(
            "\n".join(lines[-20:]) + f"\nInstalling {path.name} failed; pip's own words are above. "
            "The package index must be reachable once; run the same command again to go on."
        )


# plotly has thousands of generated modules of which few are imported; mypy and hypothesis are used by tests only.
NOT_COMPILED = r"/(plotly|mypy|mypyc|hypothesis|faker|pip|setuptools|drf_spectacular_sidecar|numpy/.*tests)/"


def precompile(environment: Environment) -> None:
    """Write byte code with all cores, so that eight services don't each compile Django at their first start."""
    libraries = sorted((environment.folder / "lib").glob("python3*/site-packages"))
    command = [str(environment.python), "-m", "compileall", "-q", "-j", "0", "-x", NOT_COMPILED]
    # A package may ship a file for another Python version; what cannot be compiled is compiled at import or never.
    subprocess.run([*command, *map(str, libraries)], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def say(text: str) -> None:
    """One line to the person at the terminal, at once."""
    print(text, flush=True)
