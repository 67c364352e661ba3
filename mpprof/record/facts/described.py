"""A saved model's facts, gathered by a process of its own, which is ended when it takes too much.

`python -P -m mpprof.record.facts.described REQUEST.json ANSWER.json`: so no framework is imported here, what
its libraries print is kept from the terminal, and a file that crashes one of them ends that process only.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpprof import child, errors
from mpprof.errors import MpprofError, UnableError, UnreadableError
from mpprof.model.limits import MOST_LAYERS
from mpprof.model.run import Run
from mpprof.own_folder import own_folder
from mpprof.record.facts import model_file
from mpprof.record.facts.model_file import TRUST
from mpprof.regular import read_regular

MOST_BYTES = 4 << 30
LONGEST_S = 300.0
"""What a model that is not trusted may take. TensorFlow takes 0.6 GB and some seconds for itself; of the
model no values are drawn, so that its size does not count."""

_LARGEST_ANSWER_BYTES = 256 << 20
_LOOKED_AT_EACH_S = 0.02
_LONGEST_CHAIN = 2 * MOST_LAYERS
"""Layers one behind another: Keras calls itself for each."""


@dataclass(frozen=True, slots=True)
class Described:
    """`slots_bytes`: of the optimizer's variables as they are, None where they cannot be counted."""

    run: Run
    slots_bytes: int | None


def describe(
    path: str | os.PathLike[str],
    imports: Iterable[str] = (),
    batch_size: int | None = None,
    *,
    symbolic: bool = False,
    trust: bool = False,
) -> Described:
    """Return the facts of a saved model, as `untrained.run_of` gathers them of one at hand.

    `imports`: modules to import first, with the classes that it is made of. `trust`: load it with its weights
    and its code, and let it take what it takes. Raises `NotFoundError`, what `saved_model.loaded` raises,
    and `UnableError` where it takes too much."""
    file = Path(path)
    if not (trust and model_file.is_saved_model(file)):
        model_file.check_kind(file)
    request = {
        "model": str(file), "imports": list(imports), "batch_size": batch_size, "symbolic": symbolic,
        "trust": trust, "path": [*child.places(), os.getcwd()], "parent": os.getpid(),
    }  # fmt: skip
    with own_folder("mpprof-model-") as folder:
        asked, answer, said = (Path(folder, name) for name in ("request.json", "answer.json", "said.txt"))
        asked.write_text(json.dumps(request))
        process = started(asked, answer, said)
        too_much = _watched(process, limited=not trust)
        if too_much:
            raise UnableError(f"it takes {too_much} to look at", where=str(file), next=TRUST)
        if process.returncode or not answer.is_file():
            raise _crashed(process.returncode, said, file)
        answered = json.loads(read_regular(answer, _LARGEST_ANSWER_BYTES))
    if "error" in answered:
        raise getattr(errors, answered["error"])(
            answered["what"], where=answered["where"], next=answered["next"]
        )
    from mpprof.record.facts import untrained

    return Described(untrained.run_from(answered["record"]), answered["slots_bytes"])


def started(asked: Path, answer: Path, said: Path) -> subprocess.Popen[bytes]:
    """Return the process that reads the one file and writes the other; what it prints goes into `said`."""
    with said.open("wb") as output:
        return subprocess.Popen(
            child.command("-m", __name__, str(asked), str(answer)),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(),
        )  # fmt: skip


def _watched(process: subprocess.Popen[bytes], *, limited: bool) -> str:
    """Wait for the child, and end one that takes more than is allowed. Return what it took too much of, ""
    where it ended by itself.

    What it holds is looked at, and no limit is set for its addresses: TensorFlow and CUDA reserve many more
    than they use."""
    import psutil  # type: ignore[import-untyped]  # not needed where no model is looked at

    ends = time.monotonic() + LONGEST_S
    try:
        seen = psutil.Process(process.pid)
        while limited:
            try:
                process.wait(_LOOKED_AT_EACH_S)
                return ""
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends:
                    return f"more than {LONGEST_S:.0f} s"
                if seen.memory_info().rss > MOST_BYTES:
                    return f"more than {MOST_BYTES >> 30} GiB of memory"
        process.wait()
        return ""
    except psutil.NoSuchProcess:
        process.wait()
        return ""
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def environment() -> dict[str, str]:
    """Return this process' environment, with the Keras backend that it uses, and with GPUs whose memory is
    not taken in advance."""
    keras: Any = sys.modules.get("keras")
    backend = {"KERAS_BACKEND": str(keras.backend.backend())} if hasattr(keras, "backend") else {}
    return child.environment(
        [], TF_FORCE_GPU_ALLOW_GROWTH="true", XLA_PYTHON_CLIENT_PREALLOCATE="false", **backend
    )


def _crashed(code: int, said: Path, file: Path) -> MpprofError:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = f": {lines[-1][:300]}" if lines else ""
    return UnreadableError(
        f"the process that looked at it ended with {how}{last}", where=str(file),
        next="Save it anew: model.save('model.keras')",
    )  # fmt: skip


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from mpprof.record.facts import saved_model, slots, untrained

    path, trust = Path(request["model"]), request["trust"]
    try:
        with saved_model.loaded(path, request["imports"], trust=trust) as model:
            record = untrained.record_of(model, request["batch_size"], symbolic=request["symbolic"])
            told = record["fits"][-1].get("optimizer", {}).get("slots") is not None
            counted = None if told or not request["symbolic"] else slots.counted_slots_bytes(model)
    except MpprofError as error:
        kind = type(error).__name__
        return {"error": kind, "what": error.what, "where": error.where, "next": error.next}
    return {"record": record, "slots_bytes": counted}


def main(request_path: str, answer_path: str) -> None:
    request = json.loads(Path(request_path).read_text())
    child.end_with_parent(request["parent"])
    sys.path[:] = request["path"]
    gc.disable()  # a third of the time of an import of TensorFlow
    sys.setrecursionlimit(_LONGEST_CHAIN)
    Path(answer_path).write_text(json.dumps(_answer(request)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
