"""Draws traces whose kernels name instructions of compiled modules, of any opcode, type and shape."""

from __future__ import annotations

import random

from tests.builders.hlo import PROGRAM, Instruction, Tensor, metadata_plane
from tests.fuzz.grammar import same_xplane, words
from tests.fuzz.grammar.xplane import Scene
from tests.fuzz.grammar.xplane_tree import Space, parse_plane

OPCODES = (
    "dot", "convolution", "fusion", "custom-call", "convert", "add", "while", "reduce", "transpose", "all-reduce", "bitcast",
    "get-tuple-element", "dynamic-slice", "rng", "no such opcode", "",
)  # fmt: skip
TYPES = ("f16", "f32", "bf16", "s32", "pred")
SIZES = (0, 1, 7, 8, 64, 112, 1000, 2**31, 2**62)
CALLS = (
    "",
    "",
    "__cublas$gemm",
    "__cublas$lt$matmul",
    "__cudnn$convForward",
    "__cudnn$convBackwardFilter",
    "topk",
    "名前",
)


def made(dice: random.Random) -> Space:
    """A whole file: a GPU, and beside it one module or several of the same name."""
    scene = Scene(dice)
    instructions = [
        _instruction(dice, f"{dice.choice(OPCODES) or 'x'}.{n}", 0) for n in range(dice.choice((1, 4, 12)))
    ]
    device = scene.plane(
        "/device:GPU:0", device_vendor="Nvidia", compute_cap_major=8, compute_cap_minor=0, core_count=108
    )
    stream = scene.line(device, 7, "Stream #7(Compute)")
    host = scene.plane("/host:CPU")
    python = scene.line(host, 1, "python")
    for step in range(dice.choice((1, 3))):
        begin = scene.now_ns
        for each in instructions:
            scene.now_ns += dice.choice((0, 1, 500))
            name = dice.choice((each.name, each.name, f"{each.name}.clone", words.name(dice)))
            ns = scene.between(1, 10**6)
            scene.put(
                device,
                stream,
                f"{each.name}_kernel",
                scene.now_ns,
                ns,
                hlo_op=name,
                hlo_module="jit_step",
                program_id=PROGRAM,
            )
            scene.now_ns += ns
        scene.put(host, python, "train", begin, scene.now_ns - begin, step_num=step, n__r=1)
    scene.space.planes.append(parse_plane(metadata_plane("jit_step", instructions)))
    return scene.space


def _instruction(dice: random.Random, name: str, level: int) -> Instruction:
    inside = level < 3 and dice.random() < 0.3
    return Instruction(
        name,
        "fusion" if inside else dice.choice(OPCODES),
        _tensor(dice),
        tuple(_tensor(dice) for _ in range(dice.choice((0, 1, 2, 2, 5)))),
        dice.choice((*words.OPS, "jit(step)/jit(main)/transpose(jvp(dense))/dot_general", words.name(dice))),
        dice.choice(CALLS),
        tuple(_instruction(dice, f"{name}.{n}", level + 1) for n in range(dice.choice((1, 3))))
        if inside
        else (),
        dice.choice((None, None, 0, 1, 9)),
    )


def _tensor(dice: random.Random) -> Tensor:
    return dice.choice(TYPES), tuple(dice.choice(SIZES) for _ in range(dice.choice((0, 1, 2, 4, 9))))


def written(space: Space) -> dict[str, bytes]:
    return {"host.xplane.pb": space.to_bytes()}


def module_added(dice: random.Random, space: Space) -> None:
    """Another program, of which no kernel runs."""
    other = parse_plane(metadata_plane("jit_other", [_instruction(dice, "other.1", 0)]))
    for plane in space.planes:
        if plane.name == "/host:metadata" and len(plane.names) == 1:
            (named,) = other.names.values()
            plane.names[PROGRAM + 1] = named


# Its host has markers and nothing else: any other event would be news.
CHANGES = (
    *(change for change in same_xplane.CHANGES if change is not same_xplane.instants_added),
    module_added,
)
