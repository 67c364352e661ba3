"""Gradients of activations and of weights, told from each other by the op that lets go of them."""

from __future__ import annotations

import pytest

from mpprof.analysis.memory import composition
from mpprof.model.account import Phase
from mpprof.model.memory import PeakParts
from mpprof.model.run import Run
from mpprof.model.trace import HostKind
from tests.builders import cases as c
from tests.builders.trace import TraceBuilder

SHAPE = "[32,1000]"


def parts(
    users: list[Phase | None], *, of_weights: str = "", shape: str = SHAPE, run: Run | None = None
) -> PeakParts:
    """A dense layer in 16 bits at batch 32, and a float32 gradient of 100 bytes for each of `users`: the phase
    of the last op that the thread which frees it began; None: an executor on which no op ran. `of_weights`:
    the shape of one more gradient, which an update lets go of."""
    b, live = TraceBuilder(), 0
    named: list[tuple[Phase | None, str]] = [(user, shape) for user in users]
    named += [("optimizer", of_weights)] if of_weights else []
    b.allocation(1, 500, 500, address=1, op="d/MatMul", layer="d", phase="forward", dtype="half",
                 region="output", shape="[32,64]")  # fmt: skip
    live = 500
    for at, (_, axes) in enumerate(named):
        live += 100
        b.allocation(10 + at, 100, live, address=10 + at, op="d/grad", layer="d", phase="backward",
                     dtype="float", shape=axes, region="output", thread="executor")  # fmt: skip
    for at, (user, _) in enumerate(named):
        live -= 100
        if user is not None:
            b.kernel("k", 1, 2, op=f"{user}/op", phase=user)
            b.event(HostKind.OP, 100 + 10 * at, 101 + 10 * at, thread=f"executor {at}", op=f"{user}/op")
        b.event(HostKind.OP, 100 + 10 * at, 101 + 10 * at, thread="another", op="d/grad")
        b.event(HostKind.OP, 109 + 10 * at, 110 + 10 * at, thread=f"executor {at}", op="d/grad")
        b.allocation(105 + 10 * at, 100, live, address=10 + at, free=True, thread=f"executor {at}")
    found = composition.at_peak(b.build(), b.ownership(), run)
    assert found.parts is not None
    return found.parts


@pytest.mark.parametrize(
    ("user", "flowing", "undecided"),
    [("backward", 100, 0), ("forward", 100, 0), ("optimizer", 0, 0), ("other", 0, 100), (None, 0, 100)],
)
def test_the_op_that_lets_go_of_it_tells(user: Phase | None, flowing: int, undecided: int) -> None:
    """It is the last one that the freeing thread began before; what other threads do, or what it begins later,
    tells nothing."""
    found = parts([user])
    assert sum(found.wide(found.flowing).values()) == flowing
    assert found.undecided_bytes == undecided


def test_a_sum_is_an_activations_gradient_where_weights_have_other_shapes() -> None:
    found = parts(["other"], of_weights="[32,999]")
    assert (found.wide(found.flowing), found.undecided_bytes) == ({"d": 100}, 0)
    same = parts(["other"], of_weights=SHAPE)
    assert (same.wide(same.flowing), same.undecided_bytes) == ({}, 100)


@pytest.mark.parametrize(("parameters", "undecided"), [(31_999, 0), (32_000, 100)])
def test_what_is_larger_than_any_layers_weights_is_of_none(parameters: int, undecided: int) -> None:
    run = c.run(c.facts(layers=[c.layer("d", parameters=parameters)], fits=(c.fit(batch_size=32),)))
    assert parts([None], run=run).undecided_bytes == undecided


def test_an_op_that_launches_a_kernel_or_allocates_ran_too() -> None:
    """As in traces of TensorFlow 2.5 on a GPU, whose executor's threads have launches and no events of ops."""
    b = TraceBuilder()
    told = {"dtype": "float", "shape": SHAPE, "region": "output", "thread": "executor", "layer": "d"}
    b.allocation(1, 500, 500, address=1, op="d/MatMul", phase="forward", **told | {"dtype": "half"})
    for at in (2, 3):
        b.allocation(at, 100, 300 + 100 * at, address=at, op="d/grad", phase="backward", **told)
    b.kernel("ApplyAdam", 20, 30, op="Adam", phase="optimizer", launch=(11, 12), thread="executor")
    b.allocation(13, 100, 600, address=2, free=True, thread="executor")
    b.allocation(14, 100, 700, address=4, op="e/grad", phase="backward", **told | {"layer": "e"})
    b.allocation(15, 100, 600, address=3, free=True, thread="executor")
    found = composition.at_peak(b.build(), b.ownership())
    # At the peak, after (3): the update lets go of the first, the op that allocates for `e` of the second.
    assert (found.parts.wide(found.parts.flowing), found.parts.undecided_bytes) == ({"d": 100}, 0)
