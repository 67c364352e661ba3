"""An audit as a gate that needs no GPU: `mpprof audit --bounds` and `--against`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import UsageError
from mpprof.model.audit import AuditReport
from mpprof.report import audit_checks
from tests.record.on_tensorflow import keras

pytestmark = pytest.mark.framework
layers = keras.layers
ALL = (
    "min_matrix_unit_ratio = 0.99\nmin_16_bit_ratio = 0.99\nmax_peak_memory_bytes = 10_000_000_000\n"
    'max_least_ns = 1_000_000_000\nforbidden = ["MP104", "error"]'
)


@cache
def model(units: int = 33_728, dtype: str = "mixed_float16") -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    made = keras.Sequential([
        keras.Input((64,)), layers.Dense(64, name="first"), layers.Dense(units, dtype=dtype, name="words"),
        layers.Activation("softmax", dtype="float32"),
    ])  # fmt: skip
    keras.config.set_dtype_policy("float32")
    made.compile("adam", "sparse_categorical_crossentropy")
    return made


@cache
def report(units: int = 33_728, dtype: str = "mixed_float16", gpu: str = "H100") -> AuditReport:
    return mpprof.audit(model(units, dtype), batch_size=64, gpu=gpu)


def bounds(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mpprof.toml"
    path.write_text(f"[audit]\n{text}\n")
    return path


def kept(of: AuditReport) -> audit_checks.Kept:
    return audit_checks.Kept(of.gpu, of.batch_size, of.policy, of.work, of.memory, of.least_ns)


@pytest.mark.parametrize(
    ("bound", "of", "named"),
    [
        ("min_matrix_unit_ratio = 0.95", (33_709,), "words: units 33,709"),
        ("min_16_bit_ratio = 0.9", (33_728, "float32"), "words: Tensor Cores in tf32"),
        ("max_peak_memory_bytes = 1_000_000", (), "at most"),
        ("max_least_ns = 1", (), "at most"),
        ('forbidden = ["MP104"]', (33_728, "float32"), "words: float32-island"),
        ('forbidden = ["odd-vocabulary"]', (33_709,), "words: odd-vocabulary"),
    ],
)
def test_a_broken_bound_names_the_layer(bound: str, of: Any, named: str, tmp_path: Path) -> None:
    wanted = audit_checks.read(bounds(tmp_path, bound))
    (outcome,) = audit_checks.judge(report(*of), wanted)
    assert outcome.verdict == "failed"
    assert named in outcome.text


def test_bounds_that_hold_pass(tmp_path: Path) -> None:
    found = list(audit_checks.judge(report(), audit_checks.read(bounds(tmp_path, ALL))))
    assert [each.verdict for each in found] == ["passed"] * 4


def test_float32_leaves_16_bits_and_stays_on_the_matrix_units(tmp_path: Path) -> None:
    wanted = audit_checks.read(bounds(tmp_path, "min_matrix_unit_ratio = 0.95"))
    assert [each.verdict for each in audit_checks.judge(report(33_728, "float32"), wanted)] == ["passed"]


@pytest.mark.parametrize(
    ("of", "named"),
    [
        ((33_709,), "words: units 33,709, was 33,728"),
        ((33_728, "float32"), "words: Tensor Cores in tf32, was Tensor Cores in fp16"),
        ((67_456,), "words: units 67,456, was 33,728"),
    ],
)
def test_against_an_audit_that_was_kept(of: Any, named: str) -> None:
    assert [each.verdict for each in audit_checks.compare(report(), kept(report()))] == ["passed"]
    found = list(audit_checks.compare(report(*of), kept(report())))
    assert "failed" in [each.verdict for each in found]
    assert any(named in each.text for each in found)


def test_what_cannot_be_judged_is_unable(tmp_path: Path) -> None:
    """Another card, no card, no batch."""
    assert [each.verdict for each in audit_checks.compare(report(gpu="A100"), kept(report()))] == ["unable"]
    bare = mpprof.audit(model())
    found = audit_checks.judge(bare, audit_checks.read(bounds(tmp_path, ALL)))
    assert {each.verdict for each in found} == {"unable"}


@pytest.mark.parametrize(
    ("given", "bound", "missing", "not_missing"),
    [
        ({"gpu": "H100"}, "max_least_ns = 1", ("--batch-size N",), ("--gpu", "shapes")),
        ({"gpu": "H100"}, "max_peak_memory_bytes = 1", ("--batch-size N",), ("--gpu", "shapes")),
        ({"batch_size": 8}, "max_least_ns = 1", ("--gpu NAME",), ("--batch-size", "shapes")),
        ({}, "max_least_ns = 1", ("--gpu NAME", "--batch-size N"), ()),
        ({"batch_size": 8}, "min_16_bit_ratio = 0.5", ("--gpu NAME",), ("--batch-size",)),
    ],
)
def test_the_gate_names_the_option_that_is_missing_and_no_other(
    given: dict[str, Any], bound: str, missing: tuple[str, ...], not_missing: tuple[str, ...], tmp_path: Path
) -> None:
    (found,) = audit_checks.judge(mpprof.audit(model(), **given), audit_checks.read(bounds(tmp_path, bound)))
    assert found.verdict == "unable"
    assert all(option in found.text for option in missing)
    assert not any(option in found.text for option in not_missing)


def test_against_a_kept_audit_the_card_and_the_batch_to_give_are_named() -> None:
    (other,) = audit_checks.compare(report(gpu="A100"), kept(report()))
    assert other.text.endswith(f"give --gpu {report().gpu!r}")
    bare = audit_checks.compare(mpprof.audit(model(), gpu="H100"), kept(report()))
    assert {each.text.partition(": ")[2] for each in bare} == {"give --batch-size 64"}


def test_memory_of_custom_layers_is_a_lower_bound(tmp_path: Path) -> None:
    """It can break a bound; that it keeps one is not known."""
    memory = tuple(replace(each, custom_layers=True) for each in report().memory)
    for bound, verdict in (("1_000_000", "failed"), ("10_000_000_000", "unable")):
        wanted = audit_checks.read(bounds(tmp_path, f"max_peak_memory_bytes = {bound}"))
        (found,) = audit_checks.judge(replace(report(), memory=memory), wanted)
        assert found.verdict == verdict
    assert "at least" in str(replace(report(), memory=memory))


class OfItsOwn(keras.Model):  # type: ignore[misc]
    class Twice(layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = layers.Dense(128), layers.Dense(64)

        def call(self, x: Any) -> Any:
            return self.second(self.first(x))

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = self.Twice(), layers.Dense(8)

    def call(self, x: Any) -> Any:
        return self.head(self.inner(x))


def test_of_a_subclassed_model_memory_is_at_least_what_is_shown(tmp_path: Path) -> None:
    """Its `call` on symbolic inputs states the shapes; what its own layers keep is not known."""
    made = OfItsOwn()
    made.compile("sgd", "mse")
    made(np.zeros((2, 64), "float32"))
    found = mpprof.audit(made, batch_size=64, gpu="H100")
    assert [(each.custom_layers, each.largest_batch) for each in found.memory] == [(True, None)] * 2
    assert "at least" in str(found)
    wanted = audit_checks.read(bounds(tmp_path, "max_peak_memory_bytes = 10_000_000_000"))
    assert [each.verdict for each in audit_checks.judge(found, wanted)] == ["unable"]


def test_memory_is_judged_under_the_models_own_policy_and_says_why_it_is_not(tmp_path: Path) -> None:
    wanted = audit_checks.read(bounds(tmp_path, "max_peak_memory_bytes = 10_000_000_000"))
    keras.config.set_dtype_policy("float16")
    pure = keras.Sequential([keras.Input((64,)), layers.Dense(64)])
    pure.compile("sgd", "mse")
    keras.config.set_dtype_policy("float32")
    found = mpprof.audit(pure, batch_size=64, gpu="H100")
    assert [each.policy for each in found.memory] == ["float32", "mixed_float16", "float16"]
    assert [each.verdict for each in audit_checks.judge(found, wanted)] == ["passed"]
    free = keras.Sequential([keras.Input((None, 64)), layers.Dense(64, name="wide")])
    free.compile("sgd", "mse")
    found = mpprof.audit(free, batch_size=64, gpu="H100")
    assert found.memory == ()
    assert found.no_memory is not None
    assert found.no_memory in str(found)
    (outcome,) = audit_checks.judge(found, wanted)
    assert outcome.verdict == "unable"
    assert "has no fixed size: (None, None, 64), so activations are not known" in outcome.text


@pytest.mark.parametrize(
    "text", ["min_matrix_unit_ratio = 95", "min_tensor_core_ratio = 0.9", "", "forbidden = 3"]
)
def test_a_file_that_holds_no_such_bounds_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mpprof\.toml"):
        audit_checks.read(bounds(tmp_path, text))


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_one_layer_in_float32_does_not_make_a_saved_model_one_of_float32(tmp_path: Path) -> None:
    """Its memory is compared under the policy that the others have, its float32 layer as it is."""
    files = {dtype: tmp_path / f"{dtype}.keras" for dtype in ("mixed_float16", "float32")}
    for dtype, file in files.items():
        model(dtype=dtype).save(file)
    before, after = (mpprof.audit(file, batch_size=64, gpu="H100") for file in files.values())
    assert before.policy == after.policy == "mixed_float16"
    given = mpprof.audit(model(dtype="float32"), batch_size=64, gpu="H100")
    assert after.memory == given.memory
    assert before.memory[1].peak_bytes < after.memory[1].peak_bytes


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_the_command_keeps_an_audit_and_compares_with_it(tmp_path: Path, capsys: Any) -> None:
    """Exit 0 for the same model, 1 for the later one, with the audit still written; 2 for another document."""
    models = {name: tmp_path / f"{name}.keras" for name in ("before", "after")}
    model().save(models["before"])
    model(33_709).save(models["after"])
    store, options = tmp_path / "kept.json", ["--gpu", "H100", "--batch-size", "64"]
    wanted = str(bounds(tmp_path, ALL))
    made = ["--bounds", wanted, "--format", "json", "-o", str(store)]
    assert main(["audit", str(models["before"]), *options, *made]) == 0
    capsys.readouterr()
    assert main(["audit", str(models["after"]), *options, "--against", str(store)]) == 1
    said = capsys.readouterr()
    assert "words: units 33,709, was 33,728" in said.err
    assert "for NVIDIA H100" in said.out
    store.write_text('{"schema": "mpprof.report/1"}')
    assert main(["audit", str(models["after"]), *options, "--against", str(store)]) == 2


def separable(filters: int = 64) -> AuditReport:
    keras.config.set_dtype_policy("mixed_float16")
    made = keras.Sequential([
        keras.Input((32, 32, 64)), layers.SeparableConv2D(filters, 5, depth_multiplier=2, name="both"),
    ])  # fmt: skip
    keras.config.set_dtype_policy("float32")
    return mpprof.audit(made, batch_size=8, gpu="A100")


def test_the_depthwise_part_of_a_separable_convolution_is_no_work_of_matrix_units(tmp_path: Path) -> None:
    found = separable()
    deep, wide = 25 * 64 * 2, 64 * 2 * 64
    shares = {each.layer: (each.unit, each.share) for each in found.work}
    assert shares == {
        "both": ("tensor_core", pytest.approx(wide / (deep + wide))),
        "both (depthwise part)": ("cuda_core", pytest.approx(deep / (deep + wide))),
    }
    assert "Tensor Cores in fp16 71.9 %, ordinary arithmetic in fp16 28.1 %" in str(found)
    wanted = audit_checks.read(bounds(tmp_path, "min_16_bit_ratio = 0.9"))
    (outcome,) = audit_checks.judge(found, wanted)
    assert (outcome.verdict, "both (depthwise part): ordinary arithmetic in fp16" in outcome.text) == (
        "failed",
        True,
    )
    assert [each.verdict for each in audit_checks.compare(found, kept(found))] == ["passed"]
    left = [
        each.text for each in audit_checks.compare(separable(63), kept(found)) if each.check == "matrix units"
    ]
    assert left == ["both: filters 63, was 64"]
    assert mpprof.audit(separable_of_unknown_size(), gpu="A100").work[0].share is None


def separable_of_unknown_size() -> Any:
    return keras.Sequential([layers.SeparableConv2D(8, 3)])


class OwnProduct(layers.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], 512), name="w")

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, self.w)


def of_own_layers(policy: str, *more: Any) -> Any:
    keras.config.set_dtype_policy(policy)
    made = keras.Sequential([keras.Input((256,)), OwnProduct(name="own"), *more])
    keras.config.set_dtype_policy("float32")
    return made


def test_what_a_layer_of_an_own_class_multiplies_is_never_cleared(tmp_path: Path) -> None:
    for more in ((), (layers.Dense(16, dtype="float32", name="end"),)):
        found = mpprof.audit(of_own_layers("mixed_float16", *more), batch_size=8, gpu="A100")
        assert found.custom == ("own",)
        assert "Not known is what these multiply, of a class of your own: own" in str(found)
        assert "Nothing was found" not in str(found)
        assert "First of all" not in str(found)  # it is in mixed_float16 already
        wanted = audit_checks.read(bounds(tmp_path, "min_matrix_unit_ratio = 0.5"))
        assert [each.verdict for each in audit_checks.judge(found, wanted)] == ["unable"]
    assert "First of all" in str(mpprof.audit(of_own_layers("float32"), gpu="A100"))


def test_the_policy_to_set_for_a_tpu_is_one_that_it_has_units_for() -> None:
    made = keras.Sequential([keras.Input((64,)), layers.Dense(64), layers.Dense(64), layers.Dense(64)])
    policies = {gpu: mpprof.audit(made, gpu=gpu).mixed for gpu in ("TPU v4", "A100")}
    assert policies == {"TPU v4": "mixed_bfloat16", "A100": "mixed_float16"}


def test_one_unit_for_all_layers_is_all_of_the_multiplications() -> None:
    made = keras.Sequential([keras.Input((1024,)), layers.Dense(4096), layers.Dense(1024), layers.Dense(16)])
    assert "can run on: ordinary arithmetic in fp32 100 %" in str(mpprof.audit(made, gpu="V100"))


def test_a_model_without_any_of_the_kept_layers_is_not_judged() -> None:
    others = tuple(replace(each, layer=f"other_{each.layer}") for each in report().work)
    (found,) = audit_checks.compare(replace(report(), work=others), kept(report()))
    assert (found.verdict, found.text) == (
        "unable",
        "no layer of the audit that was kept is in this model",
    )


def test_a_kept_audit_with_a_figure_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text('{"schema": "mpprof.audit/1", "gpu": "H100", "batch_size": 64, "policy": null, '
                    '"memory": [], "least_ns": NaN}')  # fmt: skip
    with pytest.raises(UsageError, match="NaN is not a number"):
        audit_checks.read_kept(path)
