"""Layers of two runs: names that Keras gave are paired by class, size and order, the user's own by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.comparison import layer_names
from mpprof.analysis.comparison.layer_names import (
    LayerNames,
    is_auto_named,
    pair_layers,
    snake_case,
    unnumbered_op,
)
from mpprof.model.run import LayerFacts
from tests.analysis.pieces import layer


def dense(name: str, parameters: int | None = 10) -> LayerFacts:
    return layer(name, "Dense", parameters=parameters)


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("Dense", "dense"),
        ("Conv2DTranspose", "conv2d_transpose"),
        ("BatchNormalization", "batch_normalization"),
        ("LSTMCell", "lstm_cell"),
        ("PReLU", "p_re_lu"),
        ("MultiHeadAttention", "multi_head_attention"),
        ("_Own", "__own"),
    ],
)
def test_the_names_that_keras_makes_of_classes(class_name: str, name: str) -> None:
    assert snake_case(class_name) == name


@pytest.mark.parametrize(
    ("name", "class_name", "auto"),
    [
        ("dense", "Dense", True),
        ("encoder/dense_12", "Dense", True),
        ("head", "Dense", False),
        ("dense_out", "Dense", False),
        ("input_3", "InputLayer", True),  # Keras 2
        ("input_layer_3", "InputLayer", True),
        ("model_1", "Functional", True),  # Keras 2
        ("tf.math.add_1", "TFOpLambda", True),  # Keras 2
        ("bidirectional/forward_lstm_1", "LSTM", True),
    ],
)
def test_which_names_are_keras_own(name: str, class_name: str, auto: bool) -> None:
    assert is_auto_named(layer(name, class_name)) is auto


def test_a_model_that_is_built_again_has_the_same_layers_under_other_numbers() -> None:
    before = [dense("dense_1"), layer("sequential", "Sequential"), dense("sequential/dense"), dense("head")]
    after = [
        dense("dense_4"),
        layer("sequential_1", "Sequential"),
        dense("sequential_1/dense_3"),
        dense("head"),
    ]
    assert pair_layers(before, after) == LayerNames(
        {
            "dense_1": "dense_4",
            "sequential": "sequential_1",
            "sequential/dense": "sequential_1/dense_3",
            "head": "head",
        }
    )


def test_a_layer_that_one_run_has_beyond_the_other_disturbs_no_pair() -> None:
    before = [dense("dense", 10), dense("dense_1", 20), dense("dense_2", 30)]
    after = [
        dense("dense_3", 10),
        layer("activation", "Activation"),
        dense("dense_4", 20),
        dense("dense_5", 30),
    ]
    found = pair_layers(before, after)
    assert found.counterparts == {"dense": "dense_3", "dense_1": "dense_4", "dense_2": "dense_5"}
    assert found.only_to == {"activation": "the other run has no Activation there"}


def test_what_could_be_any_of_several_is_not_guessed() -> None:
    found = pair_layers(
        [dense("dense"), dense("dense_1")], [dense("dense_2"), dense("dense_3"), dense("dense_4")]
    )
    assert found.counterparts == {}
    reason = "the other run has Dense with 10 parameters there, but any of 3 could be it"
    assert found.only_from == {"dense": reason, "dense_1": reason}
    assert len(found.only_to) == 3


def test_layers_that_changed_places_are_not_paired_across() -> None:
    found = pair_layers(
        [dense("dense", 10), dense("dense_1", 20)], [dense("dense_2", 20), dense("dense_3", 10)]
    )
    assert found.counterparts == {}
    assert "its place among the other layers differs" in found.only_from["dense"]


def test_a_layer_that_was_padded_is_told_apart_from_the_pairs() -> None:
    before = [dense("dense", 100), dense("dense_1", 337), layer("softmax", "Softmax")]
    after = [dense("dense_2", 100), dense("dense_3", 344), layer("softmax_1", "Softmax")]
    found = pair_layers(before, after)
    assert found.counterparts == {"dense": "dense_2", "softmax": "softmax_1"}
    assert found.resized == {"dense_1": "dense_3"}
    assert found.only_from == {"dense_1": "the other run has no Dense with 337 parameters there"}


@pytest.mark.parametrize(
    "after",
    [
        [dense("dense_2", 100), dense("dense_3", 500)],  # much larger
        [dense("dense_2", 100), layer("conv2d", "Conv2D", parameters=340)],
        [dense("dense_2", 340), dense("dense_3", 105)],  # two layers that changed places
        [dense("dense_2", 100), dense("dense_3", 340), dense("dense_4", 341)],
        [dense("dense_2", 100), dense("dense_3", None)],
    ],
)
def test_what_may_be_another_layer_is_not_taken_for_one_that_was_resized(after: list[LayerFacts]) -> None:
    assert pair_layers([dense("dense", 100), dense("dense_1", 337)], after).resized == {}


def test_what_lies_in_a_resized_layer_is_resized_with_it() -> None:
    before = [layer("sequential", "Sequential", parameters=437), dense("sequential/dense", 100),
              dense("sequential/dense_1", 337)]  # fmt: skip
    after = [layer("sequential_1", "Sequential", parameters=444), dense("sequential_1/dense_2", 100),
             dense("sequential_1/dense_3", 344)]  # fmt: skip
    found = pair_layers(before, after)
    assert found.counterparts == {}
    assert found.resized == dict(
        zip([one.name for one in before], [other.name for other in after], strict=True)
    )
    assert found.only_from["sequential/dense"] == "inside sequential, which has no counterpart"
    assert found.only_to["sequential_1/dense_2"] == "inside sequential_1, which has no counterpart"


def test_names_of_the_users_pair_by_name_alone_wherever_they_stand() -> None:
    found = pair_layers([dense("a"), dense("b")], [dense("b"), dense("c")])
    assert found.counterparts == {"b": "b"}
    assert found.only_from == {"a": "the other run has no layer 'a' there"}


def test_what_lies_in_a_layer_without_counterpart_has_none() -> None:
    found = pair_layers(
        [layer("encoder", "Encoder", parameters=4), dense("encoder/x/dense")], [dense("dense_1")]
    )
    # an Encoder's own name is "encoder", so it is Keras' and no user's
    assert found.only_from == {
        "encoder": "the other run has no Encoder with 4 parameters there",
        "encoder/x/dense": "inside encoder/x, which has no counterpart",
    }


def test_a_parent_that_is_not_listed_goes_by_its_name() -> None:
    names = [f"block_{block}/{part}" for block in (0, 1) for part in ("query", "key")]
    found = pair_layers([dense(name) for name in names], [dense(name) for name in reversed(names)])
    assert {name: found.counterparts[name] for name in names} == {name: name for name in names}


def test_an_unpaired_layer_is_never_taken_for_the_one_of_the_same_name() -> None:
    names = pair_layers([dense("dense", 10)], [dense("dense", 20)])
    assert names.of_baseline("dense") == "dense (baseline's)"
    assert names.of_baseline("of no record") == "of no record"


def test_scopes_lose_their_numbers_and_ops_keep_theirs() -> None:
    op = "Call/gradient_tape/functional_3_1/dense_2_1/MatMul/MatMul_1"
    expected = "Call/gradient_tape/functional/dense/MatMul/MatMul_1"
    assert unnumbered_op(op, "dense_2", frozenset({"functional"})) == expected
    jax = "jit(step)/transpose(jvp(dense_1))/dot_general"
    assert unnumbered_op(jax, "dense_1", frozenset()) == "jit(step)/transpose(jvp(dense))/dot_general"


def test_many_layers_are_paired_in_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand layers none is held against each of the other run's."""
    compared = []
    alike = layer_names._alike
    monkeypatch.setattr(layer_names, "_alike", lambda *two: compared.append(two) or alike(*two))
    named = [dense(f"m{n % 3}/of_user_{n}") for n in range(3_000)]
    for size, paired in ((1_500, 0), (900, 899)):  # more than are aligned, and not
        before, after = ([dense(f"dense_{n}", n + more) for n in range(size)] for more in (0, 1))
        found = pair_layers([*before, *named], [*after, *named])
        assert len(found.counterparts) == len(named) + paired
        assert found.only_from["dense_0"] == "the other run has no Dense with 0 parameters there"
    assert len(compared) < 10 * 3_000


CLASSES = ("Dense", "Conv2D", "Dropout")


@given(
    st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(0, 3)), max_size=12),
    st.integers(0, 9),
)
def test_any_model_built_again_is_paired_wholly_and_in_order(
    kinds: list[tuple[str, int]], first: int
) -> None:
    sides = [
        [
            layer(f"{snake_case(kind)}_{start + at}", kind, parameters=parameters)
            for at, (kind, parameters) in enumerate(kinds)
        ]
        for start in (0, first)
    ]
    found = pair_layers(*sides)
    assert found.counterparts == {one.name: other.name for one, other in zip(*sides, strict=True)}
    assert not found.only_from
    assert not found.only_to
    fewer = pair_layers(sides[0], sides[1][1:])  # whatever is still paired keeps class, size and order
    before, after = ({one.name: (at, one) for at, one in enumerate(side)} for side in sides)
    pairs = [(before[one], after[other]) for one, other in fewer.counterparts.items()]
    assert all(
        (one.class_name, one.parameters) == (other.class_name, other.parameters)
        for (_, one), (_, other) in pairs
    )
    places = [there for _, there in sorted((here, there) for (here, _), (there, _) in pairs)]
    assert places == sorted(places)
