"""How large the project is, room by room, against its budgets; exit 1 where one is exceeded.

    python tools/size.py

A statement is one of Python's, docstrings left out: joined lines, shorter names and lost docstrings save
none. A budget is raised by a line of this file, in the commit that needs it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = "sample_traces/v100-float32-island"

STATEMENTS = {
    "mpprof": 590,
    "mpprof/analysis": 10_810,
    "mpprof/api": 1_520,
    "mpprof/cli": 2_360,
    "mpprof/diagnosis": 7_980,
    "mpprof/forecasts": 2_460,
    "mpprof/launch": 950,
    "mpprof/model": 2_880,
    "mpprof/numbers": 1_940,
    "mpprof/record": 6_160,
    "mpprof/report": 4_080,
    "mpprof/runs": 450,
    "mpprof/store": 1_140,
    "mpprof/traces": 5_940,
    "mpprof/trial": 1_220,
    "dashboards/mpprof_dashboards": 4_700,
}
"""By room; "mpprof" is the files beside the rooms."""

COUNTS = {
    "class names of the model in two places": 5,
    "grammars of a run's answer": 1,
    "engines of attainable time": 1,
    "files beside the rules and remedies that name a code": 3,
    "own modules of a report": 287,
    "own functions run by a report": 1_490,
    "own frames at the deepest": 22,
}

CALIBRATION = "mpprof.analysis.attainable.calibration"
"""The table of measured rates: what reads it is an engine of its own, and one is wanted."""

_PROBE = """
import inspect, io, sys
LOOPS = "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"
names, depth, deepest = set(), 0, 0
def seen(frame, event, argument):
    global depth, deepest
    if event in ("call", "return") and "/mpprof/" in frame.f_code.co_filename:
        if inspect.CO_OPTIMIZED & frame.f_code.co_flags and frame.f_code.co_name not in LOOPS:
            names.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
        depth += 1 if event == "call" else -1
        deepest = max(deepest, depth)
from mpprof.cli import main
out, sys.stdout = sys.stdout, io.StringIO()
sys.setprofile(seen)
main(["report", sys.argv[1], "--no-cache"])
sys.setprofile(None)
sys.stdout = out
print(sum(name.partition(".")[0] == "mpprof" for name in sys.modules), len(names), deepest)
"""


def sources() -> dict[str, ast.Module]:
    """Return every tracked Python file of both packages, parsed, by its path."""
    listed = _printed("git", "ls-files", "mpprof/*.py", "dashboards/*.py").split()
    return {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in listed}


def _printed(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def statements(tree: ast.Module) -> int:
    """Return how many statements a file has, without docstrings and other bare texts."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree))


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def room(path: str) -> str:
    """Return the room of a file: a package below `mpprof`, or the page."""
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def classes_in_two_places(trees: dict[str, ast.Module]) -> set[str]:
    """Return the names of classes of the model that stand in a second file of it, of the reports or of the
    public functions."""
    places: dict[str, list[str]] = {}
    for path, tree in trees.items():
        if path.startswith(("mpprof/model/", "mpprof/report/", "mpprof/api/")):
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    name = node.name.removesuffix("Document").removesuffix("Dict")
                    places.setdefault(name, []).append(path)
    return {
        name
        for name, paths in places.items()
        if len(paths) > 1 and any(path.startswith("mpprof/model/") for path in paths)
    }


def grammars(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield the files that make an answer: one is wanted."""
    for path, tree in trees.items():
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        if any(isinstance(called, ast.Name) and called.id == "Answer" for called in calls):
            yield path


def name_a_code(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield the files beside the rules and the remedies in which a cause's code stands."""
    for path, tree in trees.items():
        if "/rules/" not in path and "/remedies/" not in path:
            texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            if any(isinstance(text, str) and re.fullmatch(r"MP\d{3}", text) for text in texts):
                yield path


def engines(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield the files that compute from the table of measured rates what a piece of work could take."""
    above, _, name = CALIBRATION.rpartition(".")
    for path, tree in trees.items():
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if any(node.module == CALIBRATION or (node.module == above and name in {n.name for n in node.names})
               for node in imports):  # fmt: skip
            yield path


def run_by_a_report() -> tuple[int, int, int]:
    """Return the own modules that a report of one sample loads, the functions that it runs, and how deep.

    Bodies of modules and classes are no functions, nor are comprehensions, which have frames of their own in
    some versions of Python only."""
    printed = _printed(sys.executable, "-c", _PROBE, SAMPLE)
    modules, functions, deepest = map(int, printed.split()[-3:])
    return modules, functions, deepest


def measured() -> Iterator[tuple[str, int, int]]:
    """Yield each figure: what it is, how many there are, and its budget."""
    trees = sources()
    by_room: Counter[str] = Counter()
    for path, tree in trees.items():
        by_room[room(path)] += statements(tree)
    for name, budget in STATEMENTS.items():
        yield f"statements of {name}", by_room.pop(name, 0), budget
    for name, count in by_room.items():
        yield f"statements of {name}, which has no budget", count, 0
    found = (
        len(classes_in_two_places(trees)),
        len(list(grammars(trees))),
        len(list(engines(trees))),
        len(list(name_a_code(trees))),
        *run_by_a_report(),
    )
    for (name, budget), count in zip(COUNTS.items(), found, strict=True):
        yield name, count, budget


def main() -> int:
    """Print each figure beside its budget; return 1 where one is above it."""
    above = 0
    for name, count, budget in measured():
        above += count > budget
        print(f"{count:>7,} of {budget:>7,}  {name}{'  ABOVE ITS BUDGET' if count > budget else ''}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
