"""Kernel names through `classify`: each rule by its example, counter truth, the rival list, hostile names."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpprof.analysis.kernel_names import RULES, candidates, classify
from mpprof.analysis.kernel_names_parse import Card, parse, readable
from mpprof.analysis.kernel_names_rule import Rule, literals
from mpprof.model.kernels import FAMILIES, PLACEMENTS, PRECISIONS
from tests.benchmarks.tensor_core_truth import by_fragments

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
TRUTH = DATA / "kernel_truth.csv"
SEEN = DATA / "kernel_names.csv"

UNDECIDABLE = "gemm_lowprec_t<"  # a user's kernel: nothing in its name says how it multiplies


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        pytest.skip(f"{path} is not here: this test reads the shared data")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _capability(gpu: str) -> tuple[int, int] | None:
    known = {"A100": (8, 0), "V100": (7, 0), "H100": (9, 0), "B200": (10, 0), "12.0": (12, 0)}
    return next((capability for part, capability in known.items() if part in gpu), None)


# Rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.example], ids=lambda rule: rule.code)
def test_a_rule_is_the_first_to_decide_its_example(rule: Rule) -> None:
    name = parse(rule.example)
    assert next(found for found in candidates(name) if found.apply(name, Card())) is rule


def test_every_rule_says_where_it_is_from() -> None:
    for rule in RULES:
        assert rule.source, rule.code
        assert rule.generation, rule.code
        assert rule.example or rule.code == "mxu", rule.code
    assert len({rule.code for rule in RULES}) == len(RULES)


def test_a_tpu_product_runs_on_the_mxu_and_only_there() -> None:
    assert classify("dot.4", None, "google").placement == "matrix_core"
    assert classify("dot.4", (8, 0), "nvidia").placement == "unknown"


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        (r"splitkreduce|reducesplitk\w*", ("splitkreduce", "reducesplitk")),
        (r"^(?:loop|input)_x?fusion$", ("fusion",)),
        (r"\bab(?:cdef)?gh_i{2}", ("gh_",)),
        (r"[a-z]+|xyz", ()),
        (r"(?:one|three)\d", ("one", "three")),
    ],
)
def test_literals_are_what_every_match_contains(pattern: str, runs: tuple[str, ...]) -> None:
    assert literals(pattern) == runs


def test_no_rule_is_skipped_that_would_apply() -> None:
    for row in _rows(SEEN):
        name = parse(row["kernel_name"])
        applying = [rule.code for rule in RULES if rule.apply(name, Card())]
        offered = [rule.code for rule in candidates(name) if rule.apply(name, Card())]
        assert applying == offered


# What is known to be true ------------------------------------------------------------------------------------


def test_every_decided_verdict_agrees_with_the_counters() -> None:
    rows = _rows(TRUTH)
    wrong, unknown = [], []
    for row in rows:
        name = row["kernel_name"]
        verdict = classify(name, _capability(row["gpu"]), "nvidia")
        if verdict.placement == "unknown":
            unknown.append(name)
        elif (verdict.placement == "tensor_core") != (row["uses_tensor_core"] == "yes"):
            wrong.append((name, verdict))
    assert wrong == []
    assert [name for name in unknown if UNDECIDABLE not in name] == []
    assert len(unknown) <= 0.03 * len(rows)


def test_the_fragment_list_of_the_field_is_beaten_on_the_same_rows() -> None:
    rows = _rows(TRUTH)

    def recalls(says: dict[str, bool]) -> tuple[float, float]:
        kinds = [(row["uses_tensor_core"] == "yes", says[row["kernel_name"]]) for row in rows]
        hits = Counter(kinds)
        yes = hits[True, True] + hits[True, False]
        return hits[True, True] / yes, hits[False, False] / (len(rows) - yes)

    ours = {
        row["kernel_name"]: classify(row["kernel_name"], _capability(row["gpu"])).placement == "tensor_core"
        for row in rows
    }
    rival = {row["kernel_name"]: by_fragments(row["kernel_name"]) for row in rows}
    our_yes, our_no = recalls(ours)  # `unknown` counts as a miss
    rival_yes, rival_no = recalls(rival)
    assert (round(our_yes, 3), round(our_no, 3)) == (0.909, 1.0)
    assert (round(rival_yes, 3), round(rival_no, 3)) == (0.364, 0.986)


def test_few_names_of_real_traces_stay_unknown() -> None:
    rows = _rows(SEEN)
    unknown = {
        row["kernel_name"]
        for row in rows
        if classify(row["kernel_name"], _capability(row["gpu"])).placement == "unknown"
    }
    # Triton and nameless XLA kernels (their HLO decides, not their name), users' own, and an odd cuBLAS name.
    expected = (
        "triton_",
        "fusion",
        "Kernel",
        "_copy_page_indices_kernel",
        "gemm_nn_128x128",
        "volta_h16gemm_",
    )
    assert [name for name in unknown if not any(part in name for part in expected)] == []


# What no evidence, and what too much, does -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        "foo_kernel",
        "kernel0",
        "main_kernel",
        "Kernel2<Params>",
        "void gemm_lowprec_t<0, 2>(float*)",
        "matmul_v2",
        "MatMul_GPU_DT_HALF_DT_HALF_kernel",  # no kernel of TensorFlow: its generator makes elementwise ones
    ],
)
def test_without_evidence_there_is_no_verdict(name: str) -> None:
    verdict = classify(name)
    assert verdict.placement == "unknown"
    assert verdict.strength == "none"


@pytest.mark.parametrize(
    "name",
    [
        "sgemm_tf32_mma_kernel",
        "sgemm_ptx_64x64x16_nn_kernel",
        "hgemm_tc_128x128x32_kernel",
        "hgemm_t_8x8_sliced_k_f16x8_pack_kernel",
        "gemm_no_tensor_core_kernel",
    ],
)
def test_a_blas_letter_alone_decides_no_kernel_of_somebodys_own(name: str) -> None:
    assert classify(name, (8, 0), "nvidia").placement != "cuda_core"
    assert classify("gemm_no_tensor_core_kernel").placement == "unknown"


def test_words_decide_only_where_every_word_is_a_known_task() -> None:
    assert classify("fused_bias_gelu_kernel").family == "elementwise"
    assert classify("fused_bias_gelu_kernel").strength == "family"
    assert classify("fused_bias_gelu_mlp_kernel").placement == "unknown"


def test_the_generation_tells_what_1688_multiplies() -> None:
    name = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(T1::Params)"
    assert classify(name, (8, 0)).precision == "tf32"
    assert classify(name.replace("_80_", "_75_"), (7, 5)).precision == "fp16"


def test_a_card_without_tensor_cores_contradicts_the_name() -> None:
    verdict = classify("volta_h884gemm_128x64_ldg8_nn", (6, 1), "nvidia")
    assert verdict.placement == "cuda_core"
    assert verdict.reason.text.startswith("contradiction")


def test_a_type_that_the_card_does_not_multiply_is_said() -> None:
    name = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"
    assert "capability 7.0 do not multiply bf16" in classify(name, (7, 0), "nvidia").reason.text
    assert "contradiction" not in classify(name, (8, 0), "nvidia").reason.text


@pytest.mark.parametrize(
    "name",
    ["gemm_without_tensor_cores", "no_mma_gemm", "tensor_core_fallback_simt", "layout_transform_for_mma"],
)
def test_a_word_that_denies_the_instruction_leaves_it_open(name: str) -> None:
    assert classify(name).placement == "unknown"
    assert classify("gemm_mma_no_bias_for_rows").placement == "tensor_core"


def test_a_foreign_card_contradicts_the_name() -> None:
    verdict = classify("volta_h884gemm_128x64_ldg8_nn", None, "amd")
    assert (verdict.placement, verdict.reason.code) == ("unknown", "contradiction")


# Spellings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mangled", "part"),
    [
        ("_Z9my_kernelIfEvPT_", "my_kernel<float"),
        ("_ZN2at6native10foo_kernelI6__halfEEvPT_", "at::native::foo_kernel< __half"),
        ("_ZN7cutlass6KernelINS_6half_tEEEvT_", "cutlass::Kernel<half_t"),
    ],
)
def test_mangled_names_become_readable(mangled: str, part: str) -> None:
    assert part.replace(" ", "") in readable(mangled).replace(" ", "")


def test_spellings_of_one_kernel_agree() -> None:
    spellings = (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::Half, float, c10::Half>(c10::Half*)",
        "void at::native::<unnamed>::cunn_SoftMaxForward<(int)8, c10::Half, float, c10::Half>(T4 *)",
        "at::native::cunn_SoftMaxForward<8, c10::Half, float, c10::Half>",
        "_ZN2at6native19cunn_SoftMaxForwardILi8EN3c104HalfEfS3_EEvPT0_",
    )
    assert len({classify(name) for name in spellings}) == 1


# Hostile names ---------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300))
def test_any_text_gets_a_verdict_of_the_contract(name: str) -> None:
    verdict = classify(name, (8, 0), "nvidia")
    assert verdict.placement in PLACEMENTS
    assert verdict.precision in PRECISIONS
    assert verdict.family in FAMILIES
    assert verdict.reason.code
    assert verdict.reason.text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([rule.example for rule in RULES if rule.example]), max_size=3), st.data())
def test_torn_and_joined_names_get_a_verdict(names: list[str], data: st.DataObject) -> None:
    joined = "".join(names)
    start = data.draw(st.integers(0, len(joined)))
    classify(joined[start:])
    classify("_Z" + joined[start:])


@pytest.mark.parametrize(
    "part",
    ["flash_fwd", "fp8_gemm_", "rocblas_", "eigen", "layernorm", "dot_a", "sm80_xmma_gemm_f16_", "_ZN1aILi3E", "E",
     "cijk_ailk_b", "fmha_cutlassf_f32_aligned_", "attentionkernel<", "(", "<", "wgrad", "nchw_to_", "N", "99999999"],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "_Z", "void "])
def test_long_repetitive_names_end(prefix: str, part: str) -> None:
    # A pattern with exponential or cubic backtracking would not return within the test run's limit.
    assert classify(prefix + part * (100_000 // len(part)) + "!").placement in PLACEMENTS
