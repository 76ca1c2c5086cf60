"""The layout that imports, wheels and type checkers rely on."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE_ROOTS = [ROOT / "shared", ROOT / "services", ROOT / "kernels"]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}


def test_octavo_is_a_namespace_package() -> None:
    assert [str(r) for r in SOURCE_ROOTS if (r / "octavo" / "__init__.py").exists()] == []


def test_no_module_is_in_two_source_roots() -> None:
    names = [m.name for root in SOURCE_ROOTS for m in pkgutil.iter_modules([str(root / "octavo")])]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("package", ["gateway", "router", "worker", "client", "rpc", "text", "hub", "cli", "transfer"])
def test_light_packages_load_neither_torch_nor_transformers(package: str) -> None:
    if importlib.util.find_spec(f"octavo.{package}") is None:
        pytest.fail(f"octavo.{package} is missing")
    program = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module('octavo.{package}')\n"
        "for m in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    if not m.name.endswith('__main__'):\n"
        "        importlib.import_module(m.name)\n"
        "print([n for n in ('torch', 'transformers') if n in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], env=ENV, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


def test_every_package_says_what_it_is() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for root in SOURCE_ROOTS
        for p in root.rglob("*.py")
        if "pb" not in p.parts and not p.read_text().lstrip().startswith(('"""', "#!"))
    ]
    assert silent == []


def test_test_files_have_names_of_their_own() -> None:
    names = [p.name for p in (ROOT / "tests").rglob("*.py") if p.name != "conftest.py"]
    assert [name for name, count in Counter(names).items() if count > 1] == []
