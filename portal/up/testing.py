"""`manage.py test [--system-postgres] [pytest arguments]`: fetch what some tests drive, then run pytest.

Without arguments all tests run, in two pytest processes side by side: pages and books in one, what starts processes and
browsers in the other. Each has servers of its own, started by the plugin tests/services.py, not here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from portal.up.bootstrap import CHECKOUT

# Debian package → what tells that it is there.
SYSTEM_PACKAGES = {
    "chromium": ("chromium",),
    "fonts-wqy-microhei": ("/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",),
    "bubblewrap": ("bwrap",),
    "gcc": ("gcc",),
    "libc6-dev": ("/usr/include/stdio.h",),
}
SKIP_SYSTEM = "GPU_COMMONS_SKIP_APT"


# The half whose tests drive no other processes; the rest is what stands beside it.
PAGES_AND_BOOKS = ("tests/bench", "tests/ledger", "tests/portal")
NOT_OF_THEM = "tests/portal/up"


def main(argv: Sequence[str]) -> int:
    """Run all tests, or replace this process by pytest when there are arguments for it."""
    arguments = list(argv)
    if "--system-postgres" in arguments:
        arguments.remove("--system-postgres")
        os.environ["TEST_WITH_SYSTEM_POSTGRES"] = "1"
    install_system_packages()
    os.chdir(CHECKOUT)
    sys.stdout.flush()
    if not arguments:
        return run_halves(*halves())
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])


def halves() -> tuple[list[str], list[str]]:
    """The arguments of both pytest processes; together they name every folder of tests once."""
    folders = sorted(f"tests/{folder.name}" for folder in (CHECKOUT / "tests").iterdir() if folder.is_dir())
    rest = [folder for folder in folders if folder not in PAGES_AND_BOOKS and has_tests(folder)]
    return [*PAGES_AND_BOOKS, f"--ignore={NOT_OF_THEM}"], [NOT_OF_THEM, *rest]


def has_tests(folder: str) -> bool:
    return any((CHECKOUT / folder).rglob("test_*.py"))


def run_halves(first: Sequence[str], second: Sequence[str]) -> int:
    """Run both; the output of the second is shown when the first has ended. 0 when both passed."""
    command = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryFile() as output:
        beside = subprocess.Popen([*command, *second], stdout=output, stderr=subprocess.STDOUT)
        try:
            codes = [subprocess.run([*command, *first], check=False).returncode]
            print(f"\nThe other tests ({' '.join(second)}) run beside these …", flush=True)
            codes.append(beside.wait())
        finally:
            if beside.poll() is None:
                beside.terminate()
                beside.wait()
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
    return max(codes, key=abs)


def install_system_packages() -> None:
    """Install the browser, its fonts, the sandbox and the compiler where this is possible; say so where it is not."""
    missing = [package for package, signs in SYSTEM_PACKAGES.items() if not any(map(is_there, signs))]
    if not missing or os.environ.get(SKIP_SYSTEM) == "1":
        return
    reason = why_not()
    if reason is None:
        print(f"Installing for the tests: {' '.join(missing)} …", flush=True)
        reason = apt_get(missing)
    if reason is not None:
        print(f"Not installed: {' '.join(missing)} ({reason}). Tests that need them are skipped, each with its reason.")


def is_there(sign: str) -> bool:
    """A path that exists, or a program in PATH."""
    return Path(sign).exists() if sign.startswith("/") else shutil.which(sign) is not None


def why_not() -> str | None:
    """Why packages can't be installed here; None when they can."""
    if shutil.which("apt-get") is None:
        return "this system has no apt-get"
    if os.geteuid() != 0:
        return "only root may install packages"
    return None


def apt_get(packages: Sequence[str]) -> str | None:
    """Install; None on success, else the last thing that apt-get said."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    output = ""
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        output = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        if arguments[0] == "install" and done.returncode != 0:
            return f"apt-get: {output}"
    return None
