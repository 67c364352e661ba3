"""The compiled walk built to watch itself: Cython's bounds checks, AddressSanitizer, UndefinedBehaviorSanitizer."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

from tests.paths import ROOT

SOURCE = ROOT / "mpprof" / "traces" / "common" / "_walk.pyx"
_FLAGS = ("-shared", "-fPIC", "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")  # fmt: skip


def compiler() -> str | None:
    """A gcc with the sanitizers' libraries; None where there is none."""
    found = shutil.which("gcc")
    return found if found and Path(_library(found)).is_absolute() else None


def _library(gcc: str) -> str:
    said = subprocess.run([gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def build(folder: Path) -> Path:
    """The extension in this folder, with every check on."""
    gcc = compiler()
    assert gcc is not None
    source, target = folder / "_walk.c", folder / f"_walk{sysconfig.get_config_var('EXT_SUFFIX')}"
    checks = [f"-X{check}=True" for check in ("boundscheck", "wraparound", "initializedcheck")]
    subprocess.run(
        [sys.executable, "-m", "cython", "-3", *checks, str(SOURCE), "-o", str(source)], check=True
    )
    include = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
    subprocess.run([gcc, *_FLAGS, *include, str(source), "-o", str(target)], check=True)
    return target


def environment() -> dict[str, str]:
    """Python's own allocator would hide a read beyond the end of a small object."""
    gcc = compiler()
    assert gcc is not None
    options = "detect_leaks=0:quarantine_size_mb=8:allocator_may_return_null=1"
    return {"LD_PRELOAD": _library(gcc), "ASAN_OPTIONS": options, "PYTHONMALLOC": "malloc"}
