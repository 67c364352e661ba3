"""What valid but unusual input once did wrong: where each mend stands, and the tests that fail without it.

python -m tests.fuzz.defects [TEXT]    takes each mend whose name holds TEXT out of a copy of the project, and runs its tests
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.harness import ROOT

_ODD = "tests/api/test_odd_traces.py"
_BOUNDS = "tests/store/test_bounds.py"
_HOSTILE = "tests/dashboards/test_hostile.py"


@dataclass(frozen=True)
class Defect:
    """`mend` stands once in `file`; with `without` in its place every one of `tests` fails."""

    name: str
    file: str
    mend: str
    without: str
    tests: tuple[str, ...]


DEFECTS = (
    Defect(
        "a profile_start_time that is no date: OverflowError",
        "mpprof/traces/xspace/reader.py",
        'started = limits.unix_ns(plane.stats.get("profile_start_time"))',
        'started = plane.stats.get("profile_start_time")',
        (f"{_ODD}::test_a_profile_that_began_at_no_date_is_joined_with_its_records",),
    ),
    Defect(
        "events without length at one time: max() of an empty sequence",
        "mpprof/analysis/steps/accounted_steps.py",
        "_lasting(boundaries.periods(trace, device))",
        "boundaries.periods(trace, device)",
        (
            f"{_ODD}::test_steps_of_a_device_whose_clock_stood_still_are_none",
            f"{_ODD}::test_a_step_without_length_beside_others_is_no_step",
        ),
    ),
    Defect(
        "events that only count how often something ran: another account",
        "mpprof/traces/common/walk_reference.py",
        "            if aggregate:\n",
        "            if aggregate and False:\n",
        (f"{_ODD}::test_what_lies_nowhere_in_the_training_changes_no_finding",),
    ),
    Defect(
        "planes of unknown kinds: other findings",
        "mpprof/traces/common/names.py",
        "return known or bool(ACCELERATOR.match(plane) or HOST.match(plane))",
        "return True",
        (f"{_ODD}::test_what_a_plane_of_an_unknown_kind_holds_is_no_work",),
    ),
    Defect(
        "planes named almost like a host's: read as threads of the training",
        "mpprof/traces/common/names.py",
        "|python-tracer|TPU-runtime)$",
        "|python-tracer|TPU-runtime|.*)$",
        (f"{_ODD}::test_what_a_plane_of_an_unknown_kind_holds_is_no_work",),
    ),
    Defect(
        "a dimension of 2^63-1 in run.json: a minute",
        "mpprof/store/bounded.py",
        "return type(value) is int and 0 <= value <= limits.LARGEST_DIMENSION",
        "return True",
        (f"{_BOUNDS}::test_a_dimension_that_no_tensor_has_leaves_no_shape",),
    ),
    Defect(
        "a number as the name of a class: 12 s",
        "mpprof/store/facts.py",
        'class_name=bounded.name(record, "class") or "",',
        'class_name=record.get("class") or "",',
        (f"{_BOUNDS}::test_a_class_that_is_no_name_is_none",),
    ),
    Defect(
        "thousands of GPUs in hardware.jsonl: more than a minute, read",
        "mpprof/store/step_columns.py",
        "0 <= gpu < limits.MOST_GPUS",
        "0 <= gpu",
        (f"{_BOUNDS}::test_samples_of_more_cards_than_there_are_and_lists_of_nothing",),
    ),
    Defect(
        "thousands of GPUs in hardware.jsonl: more than a minute, drawn",
        "dashboards/mpprof_dashboards/figures/steps.py",
        "for device in devices[:MOST_DEVICES]:",
        "for device in devices:",
        (f"{_BOUNDS}::test_samples_of_more_cards_than_there_are_and_lists_of_nothing",),
    ),
    Defect(
        "thousands of empty lists in a line: more than a minute",
        "mpprof/store/step_columns.py",
        "names = (each for each in value[: limits.MOST_THROTTLES] if isinstance(each, str))",
        "names = map(str, value)",
        (f"{_BOUNDS}::test_samples_of_more_cards_than_there_are_and_lists_of_nothing",),
    ),
    Defect(
        "durations of 0 in steps.jsonl: 6 s",
        "mpprof/analysis/steps/statistics.py",
        "rows = np.isfinite(time) & (time > 0) & ~_beside(steps.profiled)",
        "rows = np.isfinite(time) & ~_beside(steps.profiled)",
        (f"{_BOUNDS}::test_a_step_without_duration_counts_for_no_step_time",),
    ),
    Defect(
        "one infinite or huge duration in steps.jsonl: 6 s",
        "mpprof/store/step_columns.py",
        "elif type(value) is not int or not ABSENT <= value <= _LARGEST[key]:",
        "elif type(value) is int and not ABSENT <= value:",
        (
            f"{_BOUNDS}::test_one_odd_duration_gives_a_report",
            f"{_BOUNDS}::test_a_step_line_with_a_number_that_was_never_measured_is_left_out",
        ),
    ),
    Defect(
        "a sample of the hardware at a time that no clock shows: no bound",
        "mpprof/store/step_columns.py",
        "return type(value) is int and abs(value) <= limits.LONGEST_NS",
        "return type(value) is int and abs(value) < 1 << 63",
        (f"{_BOUNDS}::test_a_sample_at_a_time_that_no_clock_shows_is_left_out",),
    ),
    Defect(
        "modules of PyTorch beside ten thousand layers: 40 s for a trace of 1 MiB",
        "mpprof/analysis/layers/modules.py",
        "        fitting = names.keys() & _kernels(sizes.get(path, ()))",
        "        fitting = {_widths(fact) for fact in layers} & _kernels(sizes.get(path, ()))",
        ("tests/analysis/layers/test_modules.py::test_modules_of_many_layers_are_each_looked_at_once",),
    ),
    Defect(
        "a gzip file of 500,000 empty members: more than a minute for 10 MB",
        "mpprof/traces/common/gzip_stream.py",
        "                if members > most:",
        "                if members < 0:",
        ("tests/traces/test_damage.py::test_a_gzip_file_has_many_members_but_not_more_than_any_has",),
    ),
    Defect(
        "a thousand levels of directories: every page a RecursionError",
        "mpprof/folders.py",
        "waiting.append((path, level + 1, real and os.path.join(real, name)))",
        "yield from walk(path, refused)",
        (
            f"{_HOSTILE}::test_a_tree_of_a_thousand_levels_is_looked_through",
            f"{_HOSTILE}::test_that_directories_lie_beyond_the_bound_is_said",
        ),
    ),
    Defect(
        "deeply nested JSON in a callback: 500 and a traceback",
        "dashboards/mpprof_dashboards/calls.py",
        "except RecursionError:  # deeply nested",
        "except NotImplementedError:",
        (f"{_HOSTILE}::test_deeply_nested_json_is_the_callers_error",),
    ),
    Defect(
        "a component suite that there is not: 500 and a traceback",
        "dashboards/mpprof_dashboards/app.py",
        "app.server.register_error_handler(DependencyException, not_found)",
        "pass",
        (f"{_HOSTILE}::test_a_script_that_is_not_there_is_not_found",),
    ),
)


def run(tests: tuple[str, ...], without: Defect | None = None) -> subprocess.CompletedProcess[str]:
    """Run these tests of a copy of the project; a mend that is to be taken out stands there no more."""
    with tempfile.TemporaryDirectory(prefix="mpprof-defects-") as folder:
        copy = Path(folder)
        for name in ("mpprof", "dashboards", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("sample_traces", "pyproject.toml", "README.md"):
            (copy / name).symlink_to(ROOT / name)
        if without is not None:
            _take_out(copy, without)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        path = os.pathsep.join((str(copy), str(copy / "dashboards")))
        return subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )  # fmt: skip


def _take_out(copy: Path, defect: Defect) -> None:
    file = copy / defect.file
    file.write_text(file.read_text().replace(defect.mend, defect.without))
    if file.name == "walk_reference.py":  # without its compiled twin it is what reads
        for compiled in file.parent.glob("_walk*.so"):
            compiled.unlink()


if __name__ == "__main__":
    for defect in DEFECTS:
        if " ".join(sys.argv[1:]) in defect.name:
            for test in defect.tests:
                done = run((test,), defect)
                last = (done.stdout.strip().splitlines() or done.stderr.splitlines())[-1]
                print(f"{defect.name}\n    {test}: exit {done.returncode}, {last}", flush=True)
