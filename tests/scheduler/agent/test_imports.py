"""The agent runs on nodes that have only Python and pynvml."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scheduler.agent.conftest import ROOT

MODULES = sorted((ROOT / "scheduler" / "agent").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_only_the_standard_library_and_the_agent(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert all(name.startswith("scheduler.agent") for name in foreign), foreign


def test_nothing_else_is_loaded_when_it_runs() -> None:
    code = (
        "import sys, scheduler.agent.__main__\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('django', 'ledger', 'portal', 'celery', 'numpy')])\n"
        "print(sorted(n for n in sys.modules if n.startswith('scheduler.') and not n.startswith('scheduler.agent')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
