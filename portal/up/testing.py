"""`manage.py test [--system-postgres] [pytest arguments]`: fetch what some tests drive, then run pytest.

Without arguments all tests run, in several pytest processes side by side that share the files among them
(tests/sharing.py). Each has servers of its own, started by the plugin tests/services.py, not here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from portal.up.bootstrap import CHECKOUT

# Debian package → what tells that it is there. The shell is Chromium without windows, a fifth quicker for the tests; a
# Chromium that is there already will do.
SHELL, BROWSER = "chromium-headless-shell", "chromium"
SYSTEM_PACKAGES = {
    SHELL: (SHELL, BROWSER),
    "fonts-wqy-microhei": ("/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",),
    "bubblewrap": ("bwrap",),
    "gcc": ("gcc",),
    "libc6-dev": ("/usr/include/stdio.h",),
    "prometheus": ("promtool",),
    "prometheus-alertmanager": ("prometheus-alertmanager",),
}
SKIP_SYSTEM = "GPU_COMMONS_SKIP_APT"
SHARING = (sys.executable, "-m", "pytest", "-p", "tests.sharing")
MOST_PROCESSES = 4
# Half of the tests wait for a browser or for processes: one more than there are processors keeps these busy.
PROCESSES = min((os.cpu_count() or 1) + 1, MOST_PROCESSES)


def main(argv: Sequence[str]) -> int:
    """Run all tests, or replace this process by pytest when there are arguments for it."""
    arguments = list(argv)
    if "--system-postgres" in arguments:
        arguments.remove("--system-postgres")
        os.environ["TEST_WITH_SYSTEM_POSTGRES"] = "1"
    install_system_packages()
    os.chdir(CHECKOUT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of the many processes compiles all code again
    sys.stdout.flush()
    if not arguments:
        with tempfile.TemporaryDirectory(prefix="gpu-commons-share-") as folder:
            return run_together([*SHARING, f"--share={folder}"], PROCESSES)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])


def run_together(command: Sequence[str], processes: int) -> int:
    """Run it so many times at once, and show the output of the others when the first has ended. 0 when all passed; a
    failure's own exit status when not."""
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(processes - 1)]
        others = [subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) for output in outputs]
        try:
            codes = [subprocess.run(command, check=False).returncode]
            for other, output in zip(others, outputs, strict=True):
                print("\nThe tests of another process, which ran beside these …", flush=True)
                codes.append(other.wait())
                show(output)
        finally:
            for other in others:
                if other.poll() is None:
                    other.terminate()
                    other.wait()
    return max(codes, key=abs)


def show(output: IO[bytes]) -> None:
    output.seek(0)
    shutil.copyfileobj(output, sys.stdout.buffer)
    sys.stdout.flush()


def install_system_packages() -> None:
    """Install what some tests drive (SYSTEM_PACKAGES) where this is possible; say so where it is not."""
    missing = [package for package, signs in SYSTEM_PACKAGES.items() if not any(map(is_there, signs))]
    if not missing or os.environ.get(SKIP_SYSTEM) == "1":
        return
    reason = why_not()
    if reason is None:
        print(f"Installing for the tests: {' '.join(missing)} …", flush=True)
        apt_get("update", "-qq")  # with old lists the next one may still find them
        reason = apt_get("install", "-y", "-qq", "--no-install-recommends", *map(offered, missing))
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


def offered(package: str) -> str:
    """The package, or Chromium as a whole where the system has no shell of it."""
    if package != SHELL:
        return package
    shown = subprocess.run(["apt-cache", "show", SHELL], capture_output=True, check=False)
    return SHELL if shown.returncode == 0 else BROWSER


def apt_get(*arguments: str) -> str | None:
    """None on success, else the last thing that it said."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    output = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
    return f"apt-get: {output}"
