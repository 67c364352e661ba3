"""Ownership: which layer and phase an op belongs to, from names as TensorFlow and JAX write them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from mpprof.analysis.layers.attribution import attribute
from mpprof.analysis.layers.matching import matcher
from mpprof.analysis.layers.scopes import parse
from mpprof.model.run import ModelFacts
from mpprof.model.trace import HloInstruction, Op
from tests.analysis.pieces import layer, model, trace_of

NESTED = model("dense", "dense_1", "my_dense", "encoder", "encoder/dense", "encoder/dense_1", "shared")


def owners(names: list[str], facts: ModelFacts | None) -> list[tuple[str | None, str]]:
    found = attribute(trace_of([Op(name, "") for name in names]), facts)
    return [(found.layer_of(row), found.phase_of(row)) for row in range(len(names))]


def test_jax_scopes_are_taken_as_they_stand() -> None:
    assert owners(
        [
            "jit(train_step)/jvp(dense)/dot_general",
            "jit(train_step)/transpose(jvp(dense_1))/dot_general",
            "jit(train_step)/jvp(my_dense)/add",
            "jit(train_step)/transpose(jvp(encoder))/dense_1/dot_general",
            "jit(train_step)/adam/mul",
            "jit(train_step)/cond/branch_1_fun/adam/sub",
            "jit(train_step)/reduce_and",
        ],
        NESTED,
    ) == [
        ("dense", "forward"),
        ("dense_1", "backward"),
        ("my_dense", "forward"),
        ("encoder/dense_1", "backward"),
        (None, "optimizer"),
        (None, "optimizer"),
        (None, "loss_scale"),
    ]


class Counted(str):
    """A scope that counts what it is held against."""

    asked = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.asked += 1
        return str.__eq__(self, other)


def test_a_scope_is_not_held_against_each_of_thousands_of_layers() -> None:
    facts = model(*(f"of_user_{n}" for n in range(3_000)))
    scopes = [replace(parse(f"jit(f)/jvp(a)/of_user_{n}/add"), leaf=str(n)) for n in range(50)]
    scopes = [replace(scope, path=tuple(map(Counted, scope.path))) for scope in scopes]
    found = matcher(scopes, facts)
    assert [found(scope) for scope in scopes] == [(f"of_user_{n}", True) for n in range(50)]
    assert Counted.asked < 50 * 100


@pytest.mark.parametrize("facts", [NESTED, None])
def test_the_equation_of_an_einsum_is_no_layer(facts: ModelFacts | None) -> None:
    """Seen in a JAX trace of an MI300: `jit(loss_fn)/transpose(jvp(bsd,de->bse))/dot_general`."""
    assert owners(
        [
            "jit(loss_fn)/jvp(bsd,de->bse)/dot_general",
            "jit(loss_fn)/transpose(jvp(bsd,de->bse))/dot_general",
            "jit(f)/jvp(encoder)/dense/...qd,kd->...qk/dot_general",
            "jit(f)/jvp(encoder)/dense/ij->ji/transpose",
        ],
        facts,
    ) == [(None, "forward"), (None, "backward"), ("encoder/dense", "forward"), ("encoder/dense", "forward")]
    assert parse("jit(f)/in->out/add").path == ("in->out",)


def test_tensorflow_numbers_of_scopes_entered_twice_are_undone() -> None:
    """Keras 3 under TensorFlow: the layer `dense` works under `dense_1`, and `dense_1` under `dense_1_2`."""
    root = "StatefulPartitionedCall/functional_1"
    back = "StatefulPartitionedCall/gradient_tape/functional_1"
    assert owners(
        [
            f"{root}/dense_1/MatMul",
            f"{root}/dense_1_2/MatMul",
            f"{root}/my_dense_1/BiasAdd",
            f"{back}/encoder_1/dense_1/MatMul/MatMul_1",
            f"{back}/encoder_1/dense_1_2/MatMul/MatMul",
            f"{root}/shared_1/MatMul",
            f"{root}/shared_3/MatMul",
        ],
        NESTED,
    ) == [
        ("dense", "forward"),
        ("dense_1", "forward"),
        ("my_dense", "forward"),
        ("encoder/dense", "backward"),
        ("encoder/dense_1", "backward"),
        ("shared", "forward"),
        ("shared", "forward"),
    ]


def test_plain_names_are_not_undone() -> None:
    assert owners(
        ["model/dense/MatMul", "model/dense_1/MatMul", "gradient_tape/model/dense_1/MatMul/MatMul_1"],
        model("dense", "dense_1", name="model"),
    ) == [("dense", "forward"), ("dense_1", "forward"), ("dense_1", "backward")]


@pytest.mark.parametrize("scope", ["dens", "denser", "my_dense_layer", "dense_x"])
def test_substrings_are_no_match(scope: str) -> None:
    assert owners([f"model/{scope}/MatMul"], model("dense", "my_dense", name="model")) == [(None, "forward")]


@pytest.mark.parametrize(
    ("name", "type", "phase"),
    [
        ("StatefulPartitionedCall/adam/Mul_79", "Mul", "optimizer"),
        ("Adam/Adam/update_dense/kernel/ResourceApplyAdam", "ResourceApplyAdam", "optimizer"),
        ("StatefulPartitionedCall/cond/then/_110/cond/adam/truediv_37", "RealDiv", "optimizer"),
        ("StatefulPartitionedCall/cond/then/_110/cond/truediv_2", "RealDiv", "loss_scale"),
        ("StatefulPartitionedCall/All_27", "All", "loss_scale"),
        ("loss_scale_optimizer/IsFinite", "IsFinite", "loss_scale"),
        ("StatefulPartitionedCall/compile_loss/mse/Sum", "Sum", "forward"),
        ("StatefulPartitionedCall/gradient_tape/compile_loss/mse/Tile", "Tile", "backward"),
        ("IteratorGetNext", "IteratorGetNext", "input"),
        ("StatefulPartitionedCall/AssignVariableOp_4", "AssignVariableOp", "other"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "", "backward"),
    ],
)
def test_phase_of_what_no_layer_owns(name: str, type: str, phase: str) -> None:
    found = attribute(trace_of([Op(name, type)]), NESTED)
    assert (found.layer_of(0), found.phase_of(0)) == (None, phase)


def test_without_a_model_the_scope_itself_is_the_layer() -> None:
    names = [
        "StatefulPartitionedCall/model_1/encoder_1/dense_1/MatMul",
        "StatefulPartitionedCall/gradient_tape/model_1/encoder_1/dense_1/MatMul/MatMul",
        "StatefulPartitionedCall/model_1/batch_normalization_1/moments/mean",
        "StatefulPartitionedCall/Cast_3",
        "jit(train_step)/jvp(encoder)/dense/dot_general",
    ]
    assert [owner for owner, _ in owners(names, None)] == [
        "encoder_1/dense_1",
        "encoder_1/dense_1",
        "batch_normalization_1",
        None,
        "encoder/dense",
    ]


def instruction(name: str, opcode: str, op_name: str, **more: object) -> HloInstruction:
    return HloInstruction("jit_step", name, opcode, op_name, "f32", (8, 8), (), (), **more)  # type: ignore[arg-type]


def hlo(one: HloInstruction) -> Op:
    return Op(one.op_name or one.name, one.opcode, one)


def test_a_fusion_goes_to_its_largest_share_and_says_the_shares() -> None:
    inside = (
        instruction("add", "add", "jit(f)/jvp(dense)/add"),
        instruction("max", "maximum", "jit(f)/jvp(dense)/max"),
        instruction("sub", "subtract", "jit(f)/jvp(my_dense)/sub"),
        instruction("p", "parameter", ""),
    )
    found = attribute(trace_of([hlo(instruction("fusion", "fusion", "", called=inside))]), NESTED)
    assert found.layer_of(0) == "dense"
    assert [(span.layer, pytest.approx(span.ratio)) for span in found.spans[0]] == [
        ("dense", 2 / 3),
        ("my_dense", 1 / 3),
    ]


def test_a_matrix_product_decides_a_fusion_and_a_gradient_its_phase() -> None:
    inside = (
        instruction("dot", "dot", "jit(f)/transpose(jvp(dense))/dot_general"),
        *(instruction(f"mul{i}", "multiply", "jit(f)/jvp(my_dense)/mul") for i in range(5)),
    )
    found = attribute(trace_of([hlo(instruction("fusion", "fusion", "", called=inside))]), NESTED)
    assert (found.layer_of(0), found.phase_of(0)) == ("dense", "backward")


def test_unnamed_instructions_take_the_owner_of_their_user() -> None:
    copy = instruction("copy", "copy", "", operands=("param",))
    rewritten = instruction("convolution", "convolution", "", operands=("copy",))
    user = instruction("convert", "convert", "jit(f)/transpose(jvp(conv))/convert", operands=("convolution",))
    norm = instruction("norm", "multiply", "jit(f)/transpose(jvp(norm))/mul", operands=("convolution",))
    named = instruction("conv", "convolution", "jit(f)/jvp(conv)/conv_general_dilated")
    ops = [hlo(one) for one in (copy, rewritten, norm, user, named)]
    found = attribute(trace_of(ops), model(layer("conv", "Conv2D"), layer("norm", "BatchNormalization")))
    assert [found.layer_of(row) for row in range(3)] == ["conv", "conv", "norm"]


def test_the_order_of_ops_decides_no_owner() -> None:
    """Ops stand in the order in which a file's events name them: any other says the same."""
    facts = model(layer("a"), layer("b"), layer("c"), layer("norm", "BatchNormalization"))
    ops = [
        hlo(instruction("far", "copy", "", operands=("param",))),
        hlo(instruction("near", "convert", "", operands=("far",))),
        hlo(instruction("twice", "copy", "", operands=("near",))),
        hlo(instruction("in.b", "add", "jit(f)/jvp(b)/add", operands=("near", "twice"))),
        hlo(instruction("in.a", "add", "jit(f)/jvp(a)/add", operands=("near", "twice", "far"))),
        hlo(instruction("back.a", "add", "jit(f)/transpose(jvp(a))/add", operands=("twice",))),
        hlo(instruction("adam", "add", "jit(f)/adam/add", operands=("near", "far", "twice"))),
        hlo(instruction("gradient", "convolution", "", operands=("in.c", "back.a"))),
        hlo(instruction("in.c", "convolution", "jit(f)/jvp(c)/conv_general_dilated")),
        hlo(instruction("uses", "add", "jit(f)/jvp(norm)/add", operands=("gradient",))),
    ]

    def owners_of(order: Sequence[Op]) -> dict[str, tuple[str | None, str]]:
        found = attribute(trace_of(order), facts)
        return {op.name: (found.layer_of(row), found.phase_of(row)) for row, op in enumerate(order)}

    expected = owners_of(ops)
    assert expected["near"] == ("a", "forward")
    assert expected["gradient"] == ("c", "backward")
    for seed in range(40):
        assert owners_of(random.Random(seed).sample(ops, len(ops))) == expected


def test_an_unnamed_instruction_belongs_to_the_user_with_the_most_work() -> None:
    convert = instruction("convert", "convert", "", operands=("param",))
    small = instruction("small", "add", "jit(f)/jvp(a)/add", operands=("convert",))
    large = replace(instruction("large", "add", "jit(f)/jvp(b)/add", operands=("convert",)), shape=(64, 64))
    found = attribute(trace_of([hlo(convert), hlo(small), hlo(large)]), model(layer("a"), layer("b")))
    assert found.layer_of(0) == "b"


def test_instructions_of_one_name_in_two_programs_are_two() -> None:
    """JAX compiles a function again for other shapes: the program has the same name and instructions."""
    ops = [
        hlo(replace(one, program=program))
        for program, scope in ((1, "jit(f)/jvp(a)/add"), (2, "jit(f)/jvp(b)/add"))
        for one in (instruction("copy", "copy", ""), instruction("add", "add", scope, operands=("copy",)))
    ]
    found = attribute(trace_of(ops), model(layer("a"), layer("b")))
    assert [found.layer_of(row) for row in range(4)] == ["a", "a", "b", "b"]


def test_nothing_is_nothing() -> None:
    found = attribute(trace_of([]), None)
    assert found.layers == ()
    assert (found.layer_of(-1), found.phase_of(-1)) == (None, "other")


def test_hostile_names_end() -> None:
    for name in (
        "j(" * 5000 + ")" * 5000,
        "a/(" * 5000,
        ")" * 100,
        "/" * 5000,
        "jit(" * 9 + "/" * 9 + ")" * 9,
    ):
        assert parse(name).phase == "other"
