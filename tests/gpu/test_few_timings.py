"""A pair on the H100 whose timings are too few to tell, and whose profiled steps agree: its texts.

The runs are samples of 60 steps without the mean that ended before the profile window, as where the window
opens at a step that is read anyway. Lengths of profiled steps are counted from the raw events of the trace.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import median

import pytest
from mpprof_dashboards.pages import why as page

from mpprof.api import ladder, workflows
from mpprof.cli import main
from mpprof.report import json as documents
from tests.builders.read_back import brief, checks, comparing, content, markdown, reading, text

page = reading(page)

SAMPLES = Path(__file__).parents[2] / "sample_traces"
STUDENT_1 = 12.706
"""Of 95 % with one degree of freedom, from a printed table."""


def fewer(name: str, folder: Path) -> Path:
    """Copy a sample without the mean before its profile window."""
    root = folder / name
    shutil.copytree(SAMPLES / f"recorded-h100-{name}", root)
    log = root / "mpprof" / "steps.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    first = min(line["step"] for line in lines if line.get("profiled"))
    for line in lines:
        if line.get("step") == first - 1:
            del line["interval_ns"], line["interval_calls"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def means_ms(root: Path) -> list[tuple[float, int]]:
    """The unprofiled means after the first, and how many calls each is of."""
    lines = map(json.loads, (root / "mpprof" / "steps.jsonl").read_text().splitlines())
    return [
        (line["interval_ns"] / 1e6, line["interval_calls"])
        for line in lines
        if "interval_ns" in line and not line["profiled"] and line["step"] > 16
    ]


def by_hand(root: Path) -> tuple[float, float]:
    """The mean step of two means weighed by their steps, and Student's half interval of it as a share of it."""
    (one, n), (other, m) = means_ms(root)
    middle = (one * n + other * m) / (n + m)
    variance = 2 / (2 - 1) * (((one - middle) * n) ** 2 + ((other - middle) * m) ** 2) / (n + m) ** 2
    return middle, STUDENT_1 * variance**0.5 / middle


def ratio_by_hand(pair: tuple[Path, Path]) -> tuple[float, float, float]:
    """The ratio of two mean steps and its interval: the half intervals of their logarithms, as deviations add."""
    (before, half), (after, other_half) = map(by_hand, pair)
    factor = exp((half**2 + other_half**2) ** 0.5)
    return before / after, before / after / factor, before / after * factor


def step_of_events_ms(root: Path) -> float:
    """The median time from one start to the next of the device's events that ran once in each of the five
    profiled steps, read by TensorFlow's protobuf."""
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    (path,) = root.rglob("*.xplane.pb.gz")
    space = xplane_pb2.XSpace()
    space.ParseFromString(gzip.decompress(path.read_bytes()))
    (plane,) = [plane for plane in space.planes if plane.name == "/device:GPU:0"]
    starts = defaultdict(list)
    for line in plane.lines:
        for event in line.events:
            starts[event.metadata_id].append(line.timestamp_ns + event.offset_ps / 1e3)
    once = [sorted(each) for each in starts.values() if len(each) == 5]
    assert len(once) > 20
    return median((b - a) / 1e6 for each in once for a, b in pairwise(each))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("few")
    return fewer("transformer-float32", folder), fewer("transformer-mixed-float16", folder)


@pytest.fixture(scope="module")
def report(pair: tuple[Path, Path]):  # type: ignore[no-untyped-def]
    before, after = map(workflows.load, pair)
    return documents.document(workflows.diagnose(after, before))


@pytest.fixture(scope="module")
def convnet(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """Its baseline's two means differ by 14 %: the interval is far wider than of the transformers."""
    folder = tmp_path_factory.mktemp("wide")
    roots = [fewer(f"convnet-{name}", folder) for name in ("float32", "mixed-float16")]
    before, after = map(workflows.load, roots)
    return roots, documents.document(workflows.diagnose(after, before))


def of_three_steps(root: Path, folder: Path) -> Path:
    """Copy a sample as of a training of 40 steps that was waited for at steps 32 and 35 before the window."""
    shutil.copytree(root, folder / root.name)
    log = folder / root.name / "mpprof" / "steps.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [line for line in lines if line.get("step", 0) <= 40]
    for line in lines:
        if line.get("step") == 16:
            del line["interval_ns"], line["interval_calls"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / root.name


def test_the_interval_holds_1_and_is_wide_and_the_profiled_ratio_is_that_of_the_events(pair, report) -> None:  # type: ignore[no-untyped-def]
    gain = report["speedup"]
    ratio, low, high = ratio_by_hand(pair)
    assert gain["observed"] == pytest.approx(ratio)
    assert gain["interval"] == pytest.approx([low, high], rel=1e-3)
    assert gain["interval_wide"]
    assert low < 0.95 < 1.05 < high
    assert gain["difference"] == "not known"
    assert gain["profiled"]["ratio"] == pytest.approx(
        step_of_events_ms(pair[0]) / step_of_events_ms(pair[1]), rel=0.01
    )
    assert (gain["profiled"]["baseline_steps"], gain["profiled"]["mixed_steps"]) == (5, 5)


def test_no_text_says_that_there_is_no_difference_and_all_give_the_profiled_steps(pair, report) -> None:  # type: ignore[no-untyped-def]
    seen, span = "the profiled steps were 1.21x as fast", "0.93x to 1.57x"
    before, after = map(workflows.load, pair)
    compared = documents.compare_document(ladder.compare(before, after))
    flat = [
        " ".join(said.split())
        for said in (
            brief.render(report), text.render(report, width=100),
            markdown.render(report), " ".join(content.speedup(report)),
            " ".join(comparing.lines(compared, compared["steps"][0])),
            str(page.card(report)),
        )
    ]  # fmt: skip
    for said in flat:
        assert seen in said.lower()
        assert span in said or "0.927x" in said
        for wrong in ("no measurable difference", "As fast as", "as fast as float32", "takes as long as"):
            assert wrong not in said
    assert "The timings do not show whether this run is faster than float32" in flat[0]


def test_a_check_judges_by_the_interval_alone(pair, report) -> None:  # type: ignore[no-untyped-def]
    baseline = documents.document(workflows.diagnose(workflows.load(pair[0])))
    for least in (0.95, 1.1, 1.5):
        assert checks.of_speedup(report, least, baseline).verdict == "unable"
    assert checks.of_speedup(report, 0.9, baseline).verdict == "passed"
    assert checks.of_speedup(report, 1.9, baseline).verdict == "failed"


def test_two_means_that_differ_give_a_speedup_whose_interval_is_wide(convnet) -> None:  # type: ignore[no-untyped-def]
    roots, report = convnet
    ratio, low, high = ratio_by_hand(roots)
    assert report["speedup"]["observed"] == pytest.approx(ratio)
    assert report["speedup"]["interval"] == pytest.approx([low, high], rel=1e-3)
    assert high > 4 * low
    assert report["speedup"]["interval_wide"]


def test_where_the_timings_give_no_speedup_the_profiled_steps_still_show_one(tmp_path: Path) -> None:
    samples = [SAMPLES / f"recorded-h100-convnet-{name}" for name in ("float32", "mixed-float16")]
    roots = [of_three_steps(sample, tmp_path) for sample in samples]
    before, after = map(workflows.load, roots)
    report = documents.document(workflows.diagnose(after, before))
    gain = report["speedup"]
    assert gain["observed"] is None
    assert "difference" not in gain
    truth = step_of_events_ms(roots[0]) / step_of_events_ms(roots[1])
    assert gain["profiled"]["ratio"] == pytest.approx(truth, rel=0.01)
    seen = "the profiled steps were 2.47x as fast"
    why, also = report["answer"]["because"]
    assert "has 3 steady steps" in why
    assert seen in also.lower()
    assert report["verdict"] == "Only 3 steady steps were recorded: step times are uncertain."


def test_tables_say_not_known(pair, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main(["survey", str(pair[0].parent)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "mixed-float16" in line)
    assert "not known of 1.44x" in row
    assert "1.20x" not in row


def test_the_whole_samples_are_faster_by_their_timings() -> None:
    runs = [
        workflows.load(SAMPLES / f"recorded-h100-transformer-{name}") for name in ("float32", "mixed-float16")
    ]
    speedup = workflows.diagnose(runs[1], runs[0]).speedup
    assert speedup.difference == "faster"
    assert speedup.interval[0] < speedup.profiled.ratio < speedup.interval[1]


def test_a_speedup_above_the_estimate_is_not_called_at_most_that() -> None:
    runs = [
        workflows.load(SAMPLES / f"recorded-h100-convnet-{name}") for name in ("float32", "mixed-float16")
    ]
    said = " ".join(brief.render(documents.document(workflows.diagnose(runs[1], runs[0]))).split())
    assert (
        "More than estimated, because two TF32 convolutions of float32 ran at 10 to 15 % of their peak"
        in said
    )
    assert "at most" not in said
