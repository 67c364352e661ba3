"""The report on one screen: 25 lines of 80 columns whatever is in it, nothing cut, nothing lost uncounted."""

import json
import os
import re
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.cli import main
from mpprof.report import json as documents
from mpprof.report import words
from mpprof.report.content import remedies
from tests import samples
from tests.builders.read_back import brief, reading
from tests.paths import SAMPLES
from tests.report import hand_made

NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/origin.json"))
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LONG_LAYER = "encoder/block_11/attention/self/query_key_value"


def fits(rendered: str) -> list[str]:
    """The lines, which are few and narrow; a command is never broken, because it is there to be copied."""
    lines = rendered.splitlines()
    assert len(lines) <= brief.HEIGHT
    assert [line for line in lines if len(line) > brief.WIDTH and not line.startswith("mpprof ")] == []
    return lines


def shown(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert main([str(word) for word in argv]) == 0
    return capsys.readouterr().out


def known() -> Any:
    return deepcopy(documents.document(hand_made.diagnosis()))


def crowded(count: int = 9) -> Any:
    """A report with `count` causes of long remedies and many layers, qualified figures and long warnings."""
    document = known()
    (first, *_) = document["findings"]
    found, causes = [], []
    for number in range(count):
        code = f"MP1{number:02d}"
        found.append(
            {**first, "code": code, "slug": "a-cause-of-some-length", "layers": [LONG_LAYER, f"dense_{number}"],
             "gain_ns_per_step": 2e6, "remedy": "; ".join(["do this to the layer, and that as well"] * 9)}
        )  # fmt: skip
        causes.append(
            {"code": code, "slug": "a-cause-of-some-length", "gain_ns_per_step": 2e6,
             "recovers_ns_per_step": 2e6, "step_ns": 30e6}
        )  # fmt: skip
    document["findings"], document["facts"]["causes"] = found, causes  # type: ignore[typeddict-item]
    document["warnings"] = [f"warning {n} " + "of very many words " * 20 for n in range(5)]
    document["tensor_core"]["by_precision"] = {"fp16": 2.0, "tf32": 1.0, "bf16": 1.0}  # type: ignore[index]
    document["run"]["name"] = "a run whose name is as long as a name that people give to a directory can be"
    return document


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_fits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = fits(shown(capsys, "report", SAMPLES / name))
    assert lines[0].startswith(f"{name}: ")
    twin = SAMPLES / re.sub(r"-mixed-.*", "-float32", name)
    if twin.is_dir() and twin.name != name:
        fits(shown(capsys, "report", SAMPLES / name, "--baseline", twin))
        fits(shown(capsys, "compare", twin, SAMPLES / name))


@pytest.mark.parametrize("count", [0, 1, 3, 5, 9])
def test_a_crowded_report_fits_and_keeps_whole_names(count: int) -> None:
    document = crowded(count)
    lines = fits(brief.render(document, path="logs", again="mpprof report logs -v"))
    bars = [line for line in lines if re.match(r"  MP1\d\d ", line)]
    assert len(bars) == min(count, 4 if count <= 4 else 2)
    assert ("  MP102, MP103, MP104 " in "\n".join(lines)) == (count == 5)  # no more than three are named
    assert all("2 layers" in bar or "dense" in bar for bar in bars)
    assert not any("…" in line for line in lines if not line.startswith(("!", "  ")))
    if count > 3:
        assert f"{count - 3} causes" in " ".join(lines)


def test_bars_are_the_causes_in_their_order_and_line_up() -> None:
    document = crowded(4)
    rows = brief.cause_bars(document, 7)
    assert [row.label[:5] for row in rows if row.label.startswith("MP")] == [
        "MP100",
        "MP101",
        "MP102",
        "MP103",
    ]
    lines = brief.render(document).splitlines()
    columns = {line.rindex(" ms ") for line in lines if re.match(r"(  MP1|this run's)", line)}
    assert len(columns) == 1
    remedied = [line[3:8] for line in lines if re.match(r"\d\. MP", line)]
    assert remedied == ["MP100", "MP101", "MP102"][: len(remedied)]


@pytest.mark.parametrize(
    ("share", "code", "shown"), [(0.19, "", True), (0.09, "", False), (0.19, "MP701", False)]
)
def test_exposed_communication_that_no_finding_is_about_has_a_bar(share, code, shown) -> None:
    """Recorded on one of several A100: 19 % of the step, and the only cause in the report was of 12 %."""
    document = crowded(1)
    step = document["facts"]["step_ns"]
    assert step is not None
    assert document["time"] is not None
    slice_ = {**document["time"]["slices"][0], "class": "comm", "ns_per_step": share * step}
    document["time"]["slices"] = [slice_]  # type: ignore[list-item]
    if code:
        document["findings"] += [{**document["findings"][0], "code": code}]
    bars = [row for row in brief.cause_bars(document, 7) if row.label == "no finding: communication"]
    assert [row.ns for row in bars] == ([share * step] if shown else [])


def test_what_is_not_shown_is_counted() -> None:
    document = known()
    said = " ".join(brief.render(document).split())
    assert f"{len(document['unable'])} not judged" in said
    assert f"{len(document['clear'])} clear" in said
    causes = {cause["code"] for cause in document["facts"]["causes"]}
    notes = [found for found in document["findings"] if found["code"] not in causes]
    assert bool(notes) == ("note" in said)


def test_what_rests_on_one_step_is_a_possibility() -> None:
    document = known()
    code = document["facts"]["causes"][0]["code"]
    certain = brief.render(document)
    document["time"]["window_steps"] = 1  # type: ignore[index]
    for found in document["findings"]:
        found["confidence"] = "low" if found["code"] == code else found["confidence"]
    possible = " ".join(brief.render(document).split())
    assert "up to " in possible
    assert "up to " not in certain


def test_the_share_comes_with_its_precisions_and_what_is_unknown() -> None:
    document = known()
    assert document["tensor_core"] is not None
    document["tensor_core"]["unknown_ratio"] = 0.031
    said = " ".join(brief.figures(document, 80))
    precision = next(iter(document["tensor_core"]["by_precision"]))
    assert f"({precision}" in said
    assert "3.1 % of all work unknown" in said
    document["tensor_core"] = None
    assert "0 %" not in " ".join(brief.figures(document, 80)).partition("skipped")[0]


def test_a_float32_run_without_a_cause_says_once_that_mixed_precision_is_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = " ".join(shown(capsys, "report", SAMPLES / "v100-odd-vocabulary-float32").split())
    assert said.count("Mixed precision is off") == 1
    assert "87.7 % of the GPU's time could run on Tensor Cores in 16 bits." in said


def test_idle_time_goes_by_its_known_cause() -> None:
    document = known()
    assert document["time"] is not None
    document["facts"]["causes"] = []
    idle = next(part for part in document["time"]["slices"] if part["class"] == "idle_input")
    assert "waiting for input" in brief.render(document)
    idle["causes"] = [{"cause": "ops busy on the host", "ns_per_step": 0.9 * idle["ns_per_step"]}]
    assert "ops busy on the host" in brief.render(document)


def test_a_layers_own_name_is_never_cut_off_its_path() -> None:
    label = f"matmul {LONG_LAYER}"
    assert words.shorten_path(label, 80) == label
    assert words.shorten_path(label, 40) == "matmul …/attention/self/query_key_value"
    assert words.shorten_path(label, 30) == "matmul …/self/query_key_value"
    assert len(words.shorten_path(label, 35)) <= 35
    assert words.shorten_path("12 others", 35) == "12 others"


def test_a_ladder_gives_up_columns_before_names(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        SAMPLES / name
        for name in ("v100-convnet-float32", "v100-convnet-mixed-float16", "v100-float32-island")
    ]
    lines = fits(shown(capsys, "compare", *runs))
    for run in runs:
        assert any(line.startswith(f"  {run.name} ") for line in lines)


def test_a_terminal_adds_colour_alone_and_ascii_keeps_the_shape() -> None:
    document = known()
    painted, plain = brief.render(document, color=True), brief.render(document)
    assert painted != plain
    assert ANSI.sub("", painted) == plain
    narrow = brief.render(document, ascii_only=True)
    assert narrow.isascii()
    assert all(a == b for a, b in zip(narrow, plain, strict=False) if a.isalnum() and b.isascii())
    assert not any(line.endswith(" ") for line in narrow.splitlines())


def test_verbose_changes_the_text_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    run = SAMPLES / "v100-float32-island"
    short, long = (shown(capsys, "report", run, *flag) for flag in ([], ["-v"]))
    assert "Checked and clear" in long
    assert "Checked and clear" not in short
    assert len(short) < len(long)
    as_json = [json.loads(shown(capsys, "report", run, "--format", "json", *flag)) for flag in ([], ["-v"])]
    assert as_json[0] == as_json[1]


def test_the_four_figures_are_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    run = SAMPLES / "v100-loss-scale-thrash"
    document = json.loads(shown(capsys, "report", run, "--format", "json"))
    said = shown(capsys, "report", run)
    for figure in (
        f"step {words.duration(document['facts']['step_ns'])}",
        f"Tensor Cores {words.percent(document['tensor_core']['ratio'])} of matmul",
        f"skipped {words.percent(document['steps']['skipped_ratio'])}",
        f"peak {words.size(document['steps']['peak_memory_bytes'])}",
    ):
        assert figure in said


def said_of(capsys: pytest.CaptureFixture[str], name: str, *more: object) -> str:
    return " ".join(shown(capsys, "report", SAMPLES / name, *more).split())


@pytest.mark.parametrize(
    ("jit_compile", "said"), [(False, "XLA off"), (True, "XLA on"), ("auto", "batch 64")]
)
def test_a_long_header_keeps_whether_xla_is_on_where_that_was_set(jit_compile: object, said: str) -> None:
    document = known()
    document["run"] |= {
        "name": "a100-tf32-baseline-mixed-float16", "backend": "tensorflow", "batch_size": 64,
        "device": "NVIDIA A100-SXM4-40GB", "policy": "mixed_float16", "jit_compile": jit_compile,
    }  # type: ignore[typeddict-item]  # fmt: skip
    header = brief.render(document).splitlines()[0]
    assert header == f"a100-tf32-baseline-mixed-float16: mixed_float16, A100-SXM4-40GB, {said}"


def test_of_a_float32_run_it_is_said_that_tf32_is_on_and_how_to_switch_mixed_precision_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tf32 = said_of(capsys, "a100-tf32-baseline-float32")
    assert "Mixed precision is off: 1.00x to 1.68x by precision alone is estimated." in tf32
    assert re.search(
        r"remedied, in float32 10\.62 ms .* in 16 bits alone 8\.43 ms \S+ estimated, up to 1\.68x", tf32
    )
    assert re.search(r"1\. MP310: .* 2\. Mixed precision: \S+\(\"mixed_float16\"\)", tf32)
    sure = said_of(capsys, "v100-input-bound-float32")  # 1.40x at least
    assert re.search(r"1\. MP301: .* 2\. Mixed precision: ", sure)  # two have room
    assert "Mixed precision: " not in said_of(capsys, "a100-launch-bound-float32")  # 1.00x
    assert "Mixed precision: " not in said_of(capsys, "gtx1080ti-float32")


def test_the_bars_and_the_remedies_begin_with_what_leads(capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--baseline", SAMPLES / "a100-tf32-baseline-float32")
    said = said_of(capsys, "a100-tf32-baseline-mixed-float16", *base)
    assert re.findall(r"(MP\d+) [a-z]", said)[:1] == ["MP310"]
    assert re.findall(r"\d\. (MP\d+): ", said)[:2] == [
        "MP310",
        "MP501",
    ]  # the norms gain more, but are as usual


def test_where_another_type_is_the_remedy_the_others_promise_no_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = ("--baseline", SAMPLES / "gtx1080ti-float32")
    said = said_of(capsys, "gtx1080ti-mixed-float16", *base)
    assert "all remedied" not in said
    assert "float32, measured 63.13 ms" in said
    assert "2. MP501, in 16 bits: " in said
    assert "3. MP310, in 16 bits: " in said
    document = json.loads(
        shown(capsys, "report", SAMPLES / "gtx1080ti-mixed-float16", *base, "--format", "json")
    )
    assert (document["facts"]["after_remedies_ns"], document["facts"]["limited_by"]) == (None, None)
    assert "MP801 changes the compute type" in document["absent"]["facts.after_remedies_ns"]


def _skipped_after_the_start() -> float:
    """Of the loss-scale sample, from its own lines, which tell at some steps how many were skipped since."""
    lines = (SAMPLES / "v100-loss-scale-thrash" / "mpprof" / "steps.jsonl").read_text().splitlines()
    late = [step for step in map(json.loads, lines) if step.get("step", 0) > 20]
    return sum(step.get("skipped", 0) for step in late) / len(late)


def test_a_share_says_what_it_is_a_share_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"optimizer-float32 +0\.856 ms .* 19\.1 %", said_of(capsys, "h100-mixed-bfloat16"))
    thrash = said_of(capsys, "v100-loss-scale-thrash")
    said = json.loads(shown(capsys, "report", SAMPLES / "v100-loss-scale-thrash", "--format", "json"))
    skips = next(found for found in said["findings"] if found["code"] == "MP201")
    share = next(row for row in skips["evidence"] if row["name"] == "skipped updates after the start")
    assert (share["value"], share["unit"]) == (pytest.approx(_skipped_after_the_start()), "ratio")
    assert "50 of 160 updates were skipped" in said["verdict"]
    assert "skipped 31.2 % of all updates, loss scale 32,768 (2^15) to 2^-35" in thrash


@pytest.mark.parametrize("name", ["recorded-cpu-float32", "recorded-cpu-mixed-float16"])
def test_a_profiled_step_has_one_length(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = said_of(capsys, name)
    chart, warned = (
        re.search(r"a profiled step ([\d.]+) ms", said),
        re.search(r"steps take ([\d.]+) ms", said),
    )
    assert float(chart[1]) == pytest.approx(float(warned[1]), abs=0.05)


def test_why_no_trace_shows_where_the_step_goes_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(SAMPLES / "v100-float32-island", tmp_path / "run"))
    (trace,) = run.rglob("*.xplane.pb")
    os.truncate(trace, 40)
    lines = fits(shown(capsys, "report", run))
    assert "no event is left" in " ".join(lines)
    trace.unlink()
    assert "! where the step goes is not known: the trace of the profiler window is missing" in " ".join(
        fits(shown(capsys, "report", run))
    )


def test_what_surfaces_after_the_remedies_is_named_with_what_it_gains(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rendered = shown(capsys, "report", SAMPLES / "v100-convnet-mixed-float16")
    (line,) = (each for each in rendered.splitlines() if each.startswith("all remedied"))
    assert re.search(r" then MP302 gains 5\d\d µs$", line)


@pytest.mark.parametrize(
    "later", ["transformer-padded-mixed-float16", "transformer-float32", "convnet-mixed-float16"]
)
def test_no_parenthesis_of_a_comparison_stays_open(later: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(SAMPLES / f"recorded-h100-{run}") for run in ("transformer-mixed-float16", later)]
    assert main(["compare", *runs]) == 0
    said = capsys.readouterr().out
    assert said.count("(") == said.count(")")


def test_a_recording_that_ended_early_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(SAMPLES / "recorded-cpu-float32", tmp_path / "run")
    with (run / "mpprof" / "steps.jsonl").open("a") as log:
        log.write('{"kind":"recording_end","step":3,"reason":"the disk is full","t_ns":130}\n')
    said = shown(capsys, "report", run)
    assert "! recording ended after step 120, before the training did" in said


def test_no_remedy_is_numbered_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing leads this run: what the answer says to do has no code."""
    said = said_of(
        capsys, "recorded-h100-convnet-mixed-float16", "--baseline", SAMPLES / "recorded-h100-convnet-float32"
    )
    assert said.count("send fewer bytes") == 1
    assert "uint8" not in said  # as it sends already


def test_what_the_device_does_not_work_for_its_work_does_not_limit() -> None:
    """Seen: "11.4 ms, limited by the device's work" of a device that works 5.5 ms."""
    document = documents.document(workflows.diagnose(SAMPLES / "v100-float32-island"))
    assert "limited by the device's work" in " ".join(reading(remedies).plan(document))
    document["time"]["device_ns"] = 0.5 * document["whatif"]["best_step_ns"]
    assert "limited by the device's work" not in " ".join(reading(remedies).plan(document))


def test_the_work_that_remedies_free_does_not_limit_the_step_after_them() -> None:
    """Seen: "limited by the device's work" after all remedies, of a device that works 66.4 of 89.8 ms now, 42 of
    them in two causes that the plan frees."""
    said = " ".join(
        reading(remedies).plan(
            documents.document(workflows.diagnose(SAMPLES / "recorded-h200-transformer-mixed-float16"))
        )
    )
    assert "after all remedies about 26.6 ms" in said
    assert "limited by the device's work" not in said


def test_causes_that_share_a_row_are_told_apart() -> None:
    """A sum alone does not tell which of the two is worth its change."""
    found = samples.diagnosed("recorded-h200-transformer-mixed-float16", "recorded-h200-transformer-float32")
    shown = brief.render(documents.report(found))
    row = re.search(r"MP402 ([\d.]+) ms, MP302 ([\d.]+) ms +([\d.]+) ms", shown)
    assert row is not None
    one, other, both = map(float, row.groups())
    assert one + other == pytest.approx(both, abs=0.02)
    assert one < other
