"""Every command and every page once, with nothing installed but mpprof: `python tests/smoke.py`, as `make wheel` does.

Where a command needs what is not there (TensorFlow, Keras, Nsight Compute) it must say so in one line. With --plain:
a report by the wheel that holds no compiled walk."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.request
from importlib.metadata import distributions
from pathlib import Path

from mpprof_dashboards.pages import PAGES

import mpprof
from mpprof.cli import NAMES
from mpprof.traces.common import walk

CHECKOUT = Path(__file__).resolve().parents[1]
SAMPLES = CHECKOUT / "sample_traces"
RUN, BASELINE = str(SAMPLES / "v100-convnet-mixed-float16"), str(SAMPLES / "v100-convnet-float32")

LINES: dict[str, tuple[list[str], int, str]] = {
    "run": (["-m", "this"], 0, "this imported no framework"),
    "report": ([RUN, "--baseline", BASELINE], 0, "Tensor Core"),
    "ls": ([str(SAMPLES)], 0, "mixed_float16"),
    "survey": ([RUN, BASELINE, "--workers", "1"], 0, "2 runs analysed"),
    "check": ([RUN, "--bounds", "nowhere.toml"], 2, "nowhere.toml"),
    "compare": ([BASELINE, RUN], 0, "1."),
    "ops": ([RUN], 0, "tensor_core"),
    "kernels": ([RUN], 0, "tensor_core"),
    "products": ([RUN], 0, "conv_fprop"),
    "layers": ([RUN], 0, "dense"),
    "memory": ([RUN], 0, "live between steps"),
    "classify": (["volta_sgemm_64x64_nt"], 0, "cuda_core"),
    "explain": (["MP401"], 0, "multiple of 8"),
    "doctor": ([], 0, "trace reader"),
    "bundle": ([RUN, "-o", "{folder}/run.zip"], 0, ""),
    "counters": (["nowhere.csv"], 2, "nowhere.csv"),
    "verify": (["--", "true"], 2, "ncu"),
    "audit": (["{folder}/model.keras"], 2, "model.save"),
    "forecast": (["nowhere.keras", "--card", "h100"], 2, "nowhere.keras"),
    "demo": (["--no-serve"], 2, "TensorFlow"),
}
"""By command: its arguments, the exit code, and what the output holds."""
HELP = (["--help"], 0, "usage")
"""Of a command that has no line here, and of `serve`, whose pages are asked for one by one."""
PLAIN = {**{name: LINES[name] for name in ("report", "compare")}, "doctor": ([], 0, "plain Python")}
FRAMEWORKS = ("tensorflow", "tensorflow-cpu", "keras", "jax", "torch")


def main() -> None:
    """Raises AssertionError with the command and what it printed."""
    assert not Path(mpprof.__file__).is_relative_to(CHECKOUT / "mpprof"), (
        "this is the checkout, not the package"
    )
    there = [each.name for each in distributions() if each.name.lower() in FRAMEWORKS]
    assert not there, f"installed besides: {there}"
    plain = "--plain" in sys.argv[1:]
    assert walk.COMPILED is not plain, f"compiled walk: {walk.COMPILED}"
    if plain:
        for command, line in PLAIN.items():
            check(command, *line)
        print(f"{len(PLAIN)} commands answer without the compiled walk")
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.keras").touch()
        for command in NAMES:
            arguments, code, holds = LINES.get(command, HELP)
            check(command, [one.replace("{folder}", folder) for one in arguments], code, holds)
    check_pages()
    print(f"{len(NAMES)} commands and {len(PAGES)} pages answer")


def check(command: str, arguments: list[str], code: int, holds: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mpprof", command, *arguments], capture_output=True, text=True, timeout=300
    )
    said = f"mpprof {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == code, said
    assert holds in done.stdout + done.stderr, said
    assert "Traceback" not in done.stderr, said
    if code:
        assert len(done.stderr.strip().splitlines()) == 1, said


def check_pages() -> None:
    command = [sys.executable, "-m", "mpprof", "serve", str(SAMPLES), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        port = line.partition("http://127.0.0.1:")[2].partition("/")[0].strip()
        for page in PAGES:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{page.path}", timeout=60) as answer:
                assert answer.status == 200, page.path
        server.terminate()


if __name__ == "__main__":
    main()
