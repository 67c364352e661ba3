"""How the process of a command is set up."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_COLUMNS = """
import resource, sys
import numpy as np
from mpprof.cli.__main__ import keep_freed_memory
if sys.argv[1:]:
    keep_freed_memory()
for _ in range(20):
    columns = [np.ones(400_000) for _ in range(10)]
    del columns
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_the_memory_of_a_freed_column_serves_the_next_one() -> None:
    assert _page_faults("kept") < _page_faults() / 2


def _page_faults(*arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _COLUMNS, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


_MODULES = """
import sys
from mpprof.cli import main
assert main(["report", *sys.argv[1:]]) == 0
print(*sys.modules, file=sys.stderr)
"""


def test_a_report_imports_only_what_it_needs() -> None:
    """Half of the report of a small trace is its start."""
    trace = "sample_traces/h100-mixed-bfloat16"
    command = [sys.executable, "-c", _MODULES, trace, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    others = ("socket", "asyncio", "numpy.ma", "numpy.random", "mpprof.record", "mpprof.api.one_run",
              "mpprof.analysis.breakdown.tables", "mpprof.report.text", "mpprof_dashboards")  # fmt: skip
    assert not set(done.stderr.split()) & set(others)


_INTERRUPTS = """
import sys
class Interrupts:
    def find_spec(name, *_):
        if name == sys.argv[-1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts)
"""


@pytest.mark.parametrize("module", ["mpprof.cli", "mpprof.cli.__main__", "mpprof.cli.verify"])
def test_an_interrupt_while_modules_are_imported_ends_the_command_quietly(module: str) -> None:
    code = f"{_INTERRUPTS}\nfrom mpprof.__main__ import run\nrun()"
    done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mpprof: interrupted\n")
