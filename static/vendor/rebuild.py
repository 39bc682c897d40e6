#!/usr/bin/env python3
"""Builds the files under static/vendor from their packages, or checks them.

    python3 static/vendor/rebuild.py           npm ci in a temporary folder (npm checks package-lock.json's hashes), build
                                               what pages use of each package (*.build.mjs), write SHA256SUMS
    python3 static/vendor/rebuild.py --check   offline: every file here has the hash that SHA256SUMS says

Standard library alone; it builds the same bytes each time. To be run when a page uses a class of Tabler for the first
time (a test says so). A new version: change package.json, BUILT and the paths in templates, and run
`npm install --package-lock-only --omit-lockfile-registry-resolved` here first.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUMS = HERE / "SHA256SUMS"
OWN = {"SHA256SUMS", "rebuild.py"}
SHARED = "terms.mjs"
BUILT = {"tabler.build.mjs": "tabler-1.6.1", "plotly.build.mjs": "plotly-4.1.1"}  # script -> the folder that it fills


def main() -> int:
    parser = argparse.ArgumentParser(description="Rebuild or check the vendored files.")
    parser.add_argument("--check", action="store_true", help="compare with SHA256SUMS, write nothing, need no network")
    if parser.parse_args().check:
        wrong = differences()
        print("\n".join(wrong) if wrong else f"{len(sums())} files are as SHA256SUMS says")
        return 1 if wrong else 0
    rebuild()
    return 0


def sums() -> dict[str, str]:
    """The hash of every file that is kept here, by its path."""
    paths = sorted(path for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = [path.relative_to(HERE).as_posix() for path in paths]
    return {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in names if name not in OWN}


def differences() -> list[str]:
    lines = (line.split("  ", 1) for line in SUMS.read_text().splitlines())
    expected = {name: digest for digest, name in lines}
    found = sums()
    return (
        [f"{name}: missing" for name in sorted(expected.keys() - found.keys())]
        + [f"{name}: not in SHA256SUMS" for name in sorted(found.keys() - expected.keys())]
        + [f"{name}: changed" for name in sorted(expected.keys() & found.keys()) if expected[name] != found[name]]
    )


def rebuild() -> None:
    with tempfile.TemporaryDirectory(prefix="vendor-") as folder:
        for name in ("package.json", "package-lock.json", SHARED, *BUILT):
            shutil.copy(HERE / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=folder, check=True)
        for script, target in BUILT.items():
            Path(folder, target).mkdir()
            subprocess.run(["node", script, target, str(HERE.parents[1])], cwd=folder, check=True)
            shutil.rmtree(HERE / target, ignore_errors=True)
            shutil.move(Path(folder, target), HERE / target)
    SUMS.write_text("".join(f"{digest}  {name}\n" for name, digest in sums().items()))
    print(f"wrote {', '.join(BUILT.values())} and SHA256SUMS")


if __name__ == "__main__":
    sys.exit(main())
