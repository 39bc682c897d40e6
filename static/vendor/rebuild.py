#!/usr/bin/env python3
"""Rebuilds the files under static/vendor from their packages, or checks them.

    python3 static/vendor/rebuild.py           npm ci in a temporary folder (npm checks package-lock.json's hashes),
                                               copy the few files that pages use, build a Plotly that has only the
                                               kinds of chart that they use (plotly.build.mjs), write SHA256SUMS
    python3 static/vendor/rebuild.py --check   offline: every file here has the hash that SHA256SUMS says

Standard library alone. It never edits what it copies, and builds the same bytes each time. A new version: change
package.json, FILES or BUILT and the paths in templates, and run
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
SCRIPT = "plotly.build.mjs"
BUILT = "plotly-4.1.1"  # the folder that SCRIPT fills
FILES = {  # file in the package -> file here
    "@tabler/core/dist/css/tabler.min.css": "tabler-1.6.1/tabler.min.css",
    "@tabler/core/dist/js/tabler.min.js": "tabler-1.6.1/tabler.min.js",
}


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
        for name in ("package.json", "package-lock.json", SCRIPT):
            shutil.copy(HERE / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=folder, check=True)
        for source, target in FILES.items():
            (HERE / target).parent.mkdir(exist_ok=True)
            shutil.copyfile(Path(folder, "node_modules", source), HERE / target)
        (HERE / BUILT).mkdir(exist_ok=True)
        subprocess.run(["node", SCRIPT, str(HERE / BUILT)], cwd=folder, check=True)
    SUMS.write_text("".join(f"{digest}  {name}\n" for name, digest in sums().items()))
    print(f"wrote {len(FILES)} files, {BUILT} and SHA256SUMS")


if __name__ == "__main__":
    sys.exit(main())
