"""The table of file and function sizes: fails over 600 lines a file, lists functions over 60.  No arguments."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AREAS = ("shared", "services", "kernels", "tests", "benchmarks", "examples", "protos")
GENERATED = ROOT / "shared" / "octavo" / "pb"
MAX_FILE_LINES = 600
LONG_FUNCTION_LINES = 60


def python_files(area: Path) -> list[Path]:
    return [path for path in sorted(area.rglob("*.py")) if GENERATED not in path.parents]


def num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def percentile(sizes: list[int], share: float) -> int:
    """The smallest of the sorted `sizes` that at least `share` of them do not exceed."""
    return sizes[max(0, -(-int(len(sizes) * share * 100) // 100) - 1)]


def long_functions(path: Path) -> list[tuple[int, str]]:
    """(lines, place) of each function over the limit, its decorators not counted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    sizes = [((node.end_lineno or node.lineno) - node.lineno + 1, node) for node in functions]
    place = path.relative_to(ROOT)
    return [(size, f"{place}:{node.lineno} {node.name}") for size, node in sizes if size > LONG_FUNCTION_LINES]


def main() -> int:
    too_long: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    print(f"{'':<12} {'files':>6} {'lines':>7} {'median':>7} {'p90':>5} {'max':>5}")
    for name in AREAS:
        files = python_files(ROOT / name)
        if not files:
            continue
        sizes = sorted(map(num_lines, files))
        median, p90 = percentile(sizes, 0.5), percentile(sizes, 0.9)
        print(f"{name:<12} {len(sizes):>6} {sum(sizes):>7} {median:>7} {p90:>5} {sizes[-1]:>5}")
        for path in files:
            functions += long_functions(path)
            if num_lines(path) > MAX_FILE_LINES:
                too_long.append((num_lines(path), str(path.relative_to(ROOT))))
    for size, place in sorted(functions, reverse=True):
        print(f"function of {size} lines: {place}")
    for size, place in too_long:
        print(f"file of {size} lines, over {MAX_FILE_LINES}: {place}", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
