"""Draws valid Kineto traces, as versions of torch write them, with what the format allows and few writers do."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

from mpprof.traces.chrome.kineto import WORK
from tests.fuzz.grammar import words
from tests.traces.kineto import BACKWARD, DEVICE, HOST, MAIN, Kineto

Document = dict[str, Any]
Change = Callable[[random.Random, Document], None]

BASES = (None, 0, 1, 1_700_000_000_000_000_000, 1_700_000_000_000_000_000, 2**62, 2**63 - 1, -1, 10**30)
TYPES = ("c10::Half", "float", "c10::BFloat16", "Scalar", "", "long int", "TensorList")
DIMS = ([32, 64], [64, 16], [], [0], [2**63 - 1, 2], [1] * 9, [[32, 64], [64, 16]])


def made(dice: random.Random) -> Document:
    """A whole document."""
    odd = dice.choice((0.0, 0.0, 0.03, 0.2))
    trace = Kineto(base_ns=dice.choice(BASES) if dice.random() < 0.3 else 1_700_000_000_000_000_000)
    start = dice.choice((0, 10, 1_000_000, 1_700_000_000_000_000))
    now = float(start)
    kernels = [dice.choice(words.KERNELS) for _ in range(dice.choice((1, 4, 9)))]
    marked, profiled = dice.random() < 0.8, dice.random() < 0.3
    threads = dice.choice(((MAIN,), (MAIN, BACKWARD), (MAIN, BACKWARD, 7)))
    modules, cards = dice.random() < 0.3, dice.choice((1, 1, 2, 3))
    for step in range(dice.choice((0, 1, 3, 4))):
        begin = now
        now += dice.randrange(1, 40)
        for kernel in kernels:
            shapes = {
                "Input Dims": [dice.choice(DIMS) for _ in range(dice.choice((0, 2, 3)))],
                "Input type": [dice.choice(TYPES) for _ in range(dice.choice((0, 2, 3)))],
                "Sequence number": step,
            }
            length, thread = dice.choice((0, 5, 60)), dice.choice(threads)
            if modules:
                now += 2  # those before have ended
                _in_modules(dice, trace, now, length, shapes)
            if dice.random() < 0.3:
                trace.host("python_function", "nn.Module: Dense_1", now, length, thread)
            if thread == BACKWARD:
                gradient = "autograd::engine::evaluate_function: AddmmBackward0"
                trace.op(gradient, now, length, thread, **{"Sequence number": step})
            trace.op(
                dice.choice(("aten::addmm", "aten::mm", "aten::conv2d", words.name(dice))),
                now,
                length,
                thread,
                **shapes,
            )
            category = "gpu_memcpy" if kernel.startswith("Mem") else "kernel"
            trace.launch(
                kernel, now + length / 2, now + 40.125, dice.choice((0, round(dice.uniform(0.1, 30), 3))), thread, cat=category, stream=dice.choice((7, 7, 20)),
                device=dice.randrange(cards), grid=[dice.choice((1, 640)), 1, 1], block=[128, 1, 1], bytes=dice.choice((0, 4096, 2**63)),
            )  # fmt: skip
            now += length + dice.choice((0, 1, 30))
        if profiled:
            trace.memory(now, 4096 + step, dice.choice((2048, -2048)), 10_000)
        now += dice.randrange(1, 99)
        if marked:
            trace.host("user_annotation", f"ProfilerStep#{step + 4}", begin, now - begin)
        now += dice.choice((0, 25))
    for event in trace.events:
        if dice.random() < odd:
            _unusual(dice, event)
    for thread in threads:
        if dice.random() < 0.5:
            label = {"ph": "M", "name": "thread_name", "pid": HOST, "tid": thread, "ts": 0}
            trace.events.append({**label, "args": {"name": dice.choice(words.THREADS)}})
    document = trace.document()
    if not odd and dice.random() < 0.5:
        _number(document)
    if dice.random() < 0.1:
        document["deviceProperties"] = dice.choice(
            ([], [{}], [{"id": 0}], None, _alike(cards), [{"id": 0, "name": "名前", "numSms": -1}])
        )
    return document


def _in_modules(dice: random.Random, trace: Kineto, now: float, length: float, shapes: Document) -> None:
    """Frames or ranges of modules round what follows: nested, called again, of classes that layers have, with the shapes
    that tell layers of one class apart."""
    widths = [[32, dice.choice((16, 64))], [dice.choice((16, 64)), 10]]
    shapes |= {"Input Dims": widths, "Input type": ["float", "float"]}
    path = (
        "Net_0",
        *dice.choice((("Dense_1",), ("Encoder_0", "Dense_2"), ("Block_3",) * 30, ("dense_1",), ("é/ñ_1",))),
    )
    kind = dice.choice(("python_function", "user_annotation"))
    for depth, module in enumerate(path):
        trace.host(kind, f"nn.Module: {module}", now - 0.5 + depth / 1000, length + 1 - depth / 500)


def _alike(cards: int) -> list[Document]:
    """Cards of one name."""
    return [
        {"id": at, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 * 10**9, "numSms": 132}
        for at in range(cards)
    ]


def _number(document: Document) -> None:
    """Ops by a number that grows as they begin, which their calls carry, too: as PyTorch writes them."""
    document["_numbered"], number = True, 0
    for event in document["traceEvents"]:
        number += event.get("cat") == "cpu_op"
        if event.get("cat") in ("cpu_op", "cuda_runtime"):
            event["args"]["External id"] = number


def _unusual(dice: random.Random, event: Document) -> None:
    match dice.randrange(8):
        case 0:
            event["dur"] = dice.choice((0, -1, 1e18, "5", None, 2**63))
        case 1:
            event["ts"] = dice.choice((-1, 0, 1e18, "12.5", None, 2**63))
        case 2:
            event["name"] = words.name(dice)
        case 3:
            event["cat"] = dice.choice(("", "overhead", "Trace", "kernel,gpu", "cuda_driver", "xpu_runtime"))
        case 4:
            event["args"] = dice.choice(
                ({}, [], None, {"correlation": "7"}, {"correlation": 2**70}, {"stream": "x", "device": -1})
            )
        case 5:
            event["tid"] = dice.choice(("main", -7, 2**63, None))
        case 6:
            event["pid"] = dice.choice(("GPU 0", HOST, DEVICE, 77))
        case _:
            event.pop(dice.choice(("dur", "args", "cat", "tid", "pid")), None)


def written(document: Document) -> dict[str, bytes]:
    indent, cut = document.get("_indent"), document.get("_cut")
    kept = {key: value for key, value in document.items() if key not in ("_indent", "_cut", "_numbered")}
    text = json.dumps(kept, indent=indent).encode()
    if cut is not None:
        at = int(cut * len(text))
        text = gzip.compress(text[:at], mtime=0) + gzip.compress(text[at:], mtime=0)
    return {"host.pt.trace.json": text}


# --- changes after which it says the same ------------------------------------------------------------------


def events_shuffled(dice: random.Random, document: Document) -> None:
    """But for events of one time where ops have no number: of these the file's order says which lies in which."""
    if "_numbered" in document:
        dice.shuffle(document["traceEvents"])
        return
    place: dict[str, float] = {}
    document["traceEvents"].sort(key=lambda e: place.setdefault(_instant(e), dice.random()))


def _instant(event: Document) -> str:
    try:
        return str(float(event["ts"]))
    except (KeyError, TypeError, ValueError):
        return ""


def keys_shuffled(dice: random.Random, document: Document) -> None:
    for event in document["traceEvents"]:
        _reordered(dice, event)


def _reordered(dice: random.Random, owner: Document) -> None:
    items = list(owner.items())
    dice.shuffle(items)
    owner.clear()
    owner.update(items)


def keys_unknown(dice: random.Random, document: Document) -> None:
    document["_unknown"] = {"a": [1, {"b": None}]}
    for event in document["traceEvents"]:
        if dice.random() < 0.3:
            event["_unknown"] = dice.choice((1, "x", [], {"ts": 5}))
        if isinstance(event.get("args"), dict) and dice.random() < 0.3:
            event["args"]["_unknown"] = dice.choice((1, "x", [], {"correlation": 5}))


def events_unknown(dice: random.Random, document: Document) -> None:
    for _ in range(dice.choice((1, 5))):
        more = {
            "ph": dice.choice(("N", "D", "zz")),
            "name": words.name(dice),
            "pid": 9,
            "tid": 9,
            "ts": 5,
            "args": {},
        }
        document["traceEvents"].insert(dice.randrange(len(document["traceEvents"]) + 1), more)


def correlations_renumbered(dice: random.Random, document: Document) -> None:
    """Where each is a small number: "7" and 7 are one id."""
    known = [
        event["args"].get("correlation", 1)
        for event in document["traceEvents"]
        if isinstance(event.get("args"), dict)
    ]
    if not all(type(id) is int and 0 < id < 1 << 20 for id in known):
        return
    by = dice.randrange(1, 1 << 20)
    for event in document["traceEvents"]:
        args = event.get("args")
        if (
            isinstance(args, dict)
            and type(args.get("correlation")) is int
            and 0 < args["correlation"] < 1 << 20
        ):
            args["correlation"] += by


def clock_shifted(dice: random.Random, document: Document) -> None:
    """The base lies elsewhere; what happened when stays."""
    stamps = [event.get("ts") for event in document["traceEvents"]]
    base = document.get("baseTimeNanoseconds")
    if base != 1_700_000_000_000_000_000 or not all(
        type(at) in (int, float) and 0 <= at < 2**40 for at in stamps
    ):
        return
    by = dice.randrange(1, 10**6)
    document["baseTimeNanoseconds"] -= by * 1000
    for event in document["traceEvents"]:
        event["ts"] += by


def cards_listed_otherwise(dice: random.Random, document: Document) -> None:
    """Each by its own number, wherever it stands."""
    listed = document.get("deviceProperties")
    if isinstance(listed, list):
        dice.shuffle(listed)


def spaced(dice: random.Random, document: Document) -> None:
    document["_indent"] = dice.choice((0, 1, 4))


def header_last(dice: random.Random, document: Document) -> None:
    document["traceEvents"] = document.pop("traceEvents")
    _reordered(dice, document)


def members_apart(dice: random.Random, document: Document) -> None:
    """Packed with gzip in two members, which are one file."""
    document["_cut"] = dice.random()


def threads_renamed(dice: random.Random, document: Document) -> None:
    """Processes and threads of the host have other ids, in another order."""
    on_host = [event for event in document["traceEvents"] if _lies_on_host(event)]
    for key in ("pid", "tid"):
        ids = list({repr(id): id for event in on_host if type(id := event.get(key)) in (int, str)})
        names = dice.sample(range(1, 1 << 20), len(ids))
        new = dict(zip(ids, names, strict=True))
        for event in on_host:
            event[key] = new.get(repr(event.get(key)), event.get(key))


def _lies_on_host(event: Document) -> bool:
    category = str(event.get("cat", "")).lower()
    return "pid" in event and category not in WORK and category != "gpu_user_annotation"


CHANGES: tuple[Change, ...] = (
    events_shuffled, keys_shuffled, keys_unknown, events_unknown, correlations_renumbered, clock_shifted, spaced, header_last,
    members_apart, threads_renamed, cards_listed_otherwise,
)  # fmt: skip
