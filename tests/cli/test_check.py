"""`mpprof check`: a sample project with its bounds file, kept and broken."""

import json
import os
from pathlib import Path

import pytest

from mpprof.api.source import LogDirectory
from mpprof.errors import UsageError
from mpprof.report import bounds_file
from mpprof.report.bounds_file import MOST_BYTES
from mpprof.report.to_json import to_json
from tests.cli.conftest import MIXED, Mpprof
from tests.paths import SAMPLES

ISLAND = SAMPLES / "v100-float32-island"
BOUNDS = """
[bounds]
min_tensor_core_ratio = {cores}
max_skipped_ratio = 0.05
max_peak_memory_bytes = {memory}
max_step_regression_ratio = 0.05
baseline = "baseline.json"
forbidden = ["error"]
"""


@pytest.fixture
def project(mpprof: Mpprof, tmp_path: Path) -> Path:
    """A project that keeps its bounds file and the report of a good run beside each other."""
    stored = tmp_path / "baseline.json"
    assert mpprof("report", MIXED, "--format", "json", "-o", stored).code == 0
    document = json.loads(stored.read_text())
    document["run"]["id"] = "last-week"
    stored.write_text(json.dumps(document))
    return bounded(tmp_path)


def bounded(folder: Path, cores: float = 0.5, memory: int = 1 << 40, more: str = "") -> Path:
    path = folder / "mpprof.toml"
    path.write_text(BOUNDS.format(cores=cores, memory=memory) + more)
    return path


def failed(err: str) -> list[str]:
    return [line.split(": ")[2] for line in err.splitlines() if line.startswith("mpprof: failed: ")]


def test_a_run_within_its_bounds_passes(mpprof: Mpprof, project: Path) -> None:
    done = mpprof("check", MIXED, "--bounds", project)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == ["passed"] * 4


def test_each_broken_bound_is_a_line(mpprof: Mpprof, project: Path) -> None:
    bounded(project.parent, cores=0.999, memory=1000)
    done = mpprof("check", ISLAND, "--bounds", project)
    assert done.code == 1
    broken = ["min_tensor_core_ratio", "max_peak_memory_bytes", "max_step_regression_ratio", "error"]
    assert failed(done.err) == broken


def test_a_dismissed_finding_does_not_fail_and_is_listed_with_its_reason(
    mpprof: Mpprof, project: Path
) -> None:
    project.write_text('[bounds]\nforbidden = ["MP104"]\n')
    assert mpprof("check", ISLAND, "--bounds", project).code == 1
    project.write_text('[bounds]\nforbidden = ["MP104"]\n[ignore]\nfloat32-island = "it is meant"\n')
    done = mpprof("check", ISLAND, "--bounds", project)
    assert done.code == 0
    assert "dismissed  MP104 float32-island: it is meant" in done.out


def test_a_baseline_whose_step_was_a_median_is_to_be_stored_again(mpprof: Mpprof, project: Path) -> None:
    stored = project.parent / "baseline.json"
    document = json.loads(stored.read_text())
    del document["steps"]["mean_ns"]
    stored.write_text(json.dumps(document))
    done = mpprof("check", MIXED, "--bounds", project)
    assert (done.code, failed(done.err)) == (1, ["max_step_regression_ratio"])
    said = "took the median for the step time. Store one: mpprof report RUN --format json -o baseline.json"
    assert said in " ".join(done.out.split())


def test_a_step_within_the_scatter_of_both_runs_cannot_be_judged(mpprof: Mpprof, project: Path) -> None:
    stored = project.parent / "baseline.json"
    document = json.loads(stored.read_text())
    mean = document["steps"]["mean_ns"]
    document["steps"]["mean_interval_ns"] = [mean * 0.8, mean * 1.25]
    stored.write_text(json.dumps(document))
    done = mpprof("check", MIXED, "--bounds", project)
    assert (done.code, failed(done.err)) == (1, ["max_step_regression_ratio"])
    assert mpprof("check", MIXED, "--bounds", project, "--allow-unable").code == 0


@pytest.mark.parametrize(
    ("field", "other", "said"),
    [
        ("device", "NVIDIA A100", "the device is Tesla V100"),
        ("batch_size", 32, "the batch size is 64, and 32"),
    ],
)
def test_a_step_is_not_judged_by_one_on_another_device_or_of_another_batch(
    field: str, other: object, said: str, mpprof: Mpprof, project: Path
) -> None:
    """Else a faster machine hides any regression."""
    stored = project.parent / "baseline.json"
    document = json.loads(stored.read_text())
    document["run"][field] = other
    stored.write_text(json.dumps(document))
    done = mpprof("check", MIXED, "--bounds", project)
    assert (done.code, failed(done.err)) == (1, ["max_step_regression_ratio"])
    assert said in done.err
    document["run"][field] = None  # not known: nothing says that they differ
    stored.write_text(json.dumps(document))
    assert mpprof("check", MIXED, "--bounds", project).code == 0


def test_files_that_begin_with_a_byte_order_mark_are_read(mpprof: Mpprof, project: Path) -> None:
    """Editors and shells of Windows write one."""
    for path in (project, project.parent / "baseline.json"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert mpprof("check", MIXED, "--bounds", project).code == 0


def test_a_baseline_that_is_not_there_is_named_with_what_writes_it(mpprof: Mpprof, project: Path) -> None:
    (project.parent / "baseline.json").unlink()
    done = mpprof("check", MIXED, "--bounds", project)
    assert done.code == 2
    assert "baseline.json" in done.err
    assert "mpprof report RUN --format json" in done.err


def test_what_the_run_has_no_value_for_fails_by_name(mpprof: Mpprof, project: Path) -> None:
    project.write_text("[bounds]\nmin_tensor_core_ratio = 0.5\n")
    done = mpprof("check", SAMPLES / "recorded-cpu-mixed-float16", "--bounds", project)
    assert (done.code, failed(done.err)) == (1, ["min_tensor_core_ratio"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[bounds]\nmin_tensor_cores = 1\n", "min_tensor_core_ratio"),
        ('[bounds]\nforbidden = ["MP999"]\n', "MP912"),
        ("[bounds]\nmax_skipped_ratio = true\n", "max_skipped_ratio"),
        ("[bounds]\nmin_tensor_core_ratio = 60\n", "Write 0.6 for 60 %"),
        ("[bounds]\nmax_step_regression_ratio = 0.1\n", "baseline"),
        ('[bounds]\nforbidden = ["error"]\n[ignore]\nMP503 = ""\n', "reason"),
        ("[bounds\n", "mpprof.toml"),
        ("", "no bounds"),
        ("[project]\n", "docs/checks.md shows one"),
    ],
)
def test_a_file_that_is_not_one_of_bounds(text: str, named: str, mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "mpprof.toml"
    path.write_text(text)
    done = mpprof("check", MIXED, "--bounds", path)
    assert (done.code, done.out) == (2, "")
    assert named in done.err


def annotated(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("::")]


def test_failed_checks_are_annotations_where_github_reads_them(
    mpprof: Mpprof, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(project.parent, cores=0.999)
    given = ("check", ISLAND, "--bounds", project)
    assert annotated(mpprof(*given).err) == []
    asked = mpprof(*given, "--format", "github")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    there = mpprof(*given)
    assert annotated(asked.err) == annotated(there.err)
    assert [line.partition("::")[2].partition("::")[0] for line in annotated(there.err)] == [
        "error title=mpprof%3A min_tensor_core_ratio",
        "error title=mpprof%3A max_step_regression_ratio",
        "error title=mpprof%3A error",
    ]
    assert "10.1 %25" in annotated(there.err)[0]
    assert annotated(mpprof("report", ISLAND, "--fail-on", "error").err)
    assert annotated(mpprof("report", MIXED, "--fail-on", "error").err) == []


def test_no_name_can_begin_a_command_of_its_own() -> None:
    from mpprof.cli import gate

    said = gate.annotation("a:b,c", "100 %\n::set-output name=x::y\r")
    assert said.count("\n") == said.count("\r") == 0
    assert said.startswith("::error title=a%3Ab%2Cc::100 %25")


def test_checks_as_json(mpprof: Mpprof, project: Path) -> None:
    bounded(project.parent, more='\n[ignore]\nMP501 = "known"\n')
    done = mpprof("check", ISLAND, "--bounds", project, "--format", "json")
    rows = json.loads(done.out)
    assert done.code == 1
    assert {row["check"]: row["verdict"] for row in rows} == {
        "min_tensor_core_ratio": "failed", "max_skipped_ratio": "passed", "max_peak_memory_bytes": "passed",
        "max_step_regression_ratio": "failed", "error": "failed", "MP501": "dismissed",
    }  # fmt: skip


REASON = "the tokenizer is another team's"


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_a_dismissed_finding_is_shown_as_dismissed_with_its_reason(
    form: str, mpprof: Mpprof, tmp_path: Path
) -> None:
    bounds = tmp_path / "mpprof.toml"
    bounds.write_text(f'[ignore]\nodd-vocabulary = "{REASON}"\n')
    pair = (SAMPLES / "v100-odd-vocabulary-float32", SAMPLES / "v100-odd-vocabulary-mixed-float16")
    for command, given in (("report", pair[1:]), ("compare", pair)):
        told = mpprof(command, *given, "--format", form, "--fail-on", "MP402,warning", "--allow-unable")
        assert told.code == 1
        assert "dismissed" not in told.out.lower()
        done = mpprof(
            command,
            *given,
            "--format",
            form,
            "--bounds",
            bounds,
            "--fail-on",
            "MP402,warning",
            "--allow-unable",
        )
        assert done.code == 0
        said = done.out.replace("&#x27;", "'").replace("&#39;", "'").lower()
        assert f"dismissed: {REASON}".lower() in said


def test_the_page_shows_them_too(tmp_path: Path) -> None:
    source = LogDirectory(SAMPLES, ignore={"MP402": REASON})
    names = ("v100-odd-vocabulary-float32", "v100-odd-vocabulary-mixed-float16")
    found = next(
        each for each in to_json(source.report(names[1], names[0]))["findings"] if each["code"] == "MP402"
    )
    assert (found["dismissed"], found["remedies"]) == (REASON, [])
    (rung,) = to_json(source.compare(names))["steps"]
    assert [each["code"] for each in rung["findings"] if "dismissed" in each] == ["MP402"]


@pytest.mark.parametrize("command", ["report", "compare", "serve"])
def test_a_bounds_file_that_cannot_be_read_is_a_usage_error(
    command: str, mpprof: Mpprof, tmp_path: Path
) -> None:
    bounds = tmp_path / "mpprof.toml"
    bounds.write_text('[ignore]\nMP402 = ""\n')
    done = mpprof(command, MIXED, "--bounds", bounds)
    assert done.code == 2
    assert "needs a reason" in done.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("option", ["--bounds", "--survey"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(option: str, mpprof: Mpprof, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = mpprof("serve", SAMPLES, option, tmp_path / "pipe")
    assert done.code == 2
    assert "not a regular file" in done.err


def test_a_bounds_file_beyond_any_size_is_refused(mpprof: Mpprof, tmp_path: Path) -> None:
    with (tmp_path / "mpprof.toml").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    done = mpprof("check", MIXED, "--bounds", tmp_path / "mpprof.toml")
    assert done.code == 2
    assert "larger than" in done.err


def test_a_key_of_a_hundred_thousand_parts_is_refused(mpprof: Mpprof, tmp_path: Path) -> None:
    (tmp_path / "mpprof.toml").write_text(".".join("a" * 100_000) + " = 1\n")
    done = mpprof("check", MIXED, "--bounds", tmp_path / "mpprof.toml")
    assert done.code == 2
    assert "a line holds more than 100 dots" in done.err


LONG = "x" * 100_000
WRONG = (
    "-1", "1" + "0" * 400, "1e400", "-inf", "nan", "true", "''", "'x'", f"'{LONG}'", r'"\u0000"', "[]", "[1]", "[[]]",
    f"['{LONG}']", "{}", "1979-05-27", "07:32:00", "9" * 5000,
)  # fmt: skip
KEYS = ("min_tensor_core_ratio", "max_skipped_ratio", "max_peak_memory_bytes", "max_step_regression_ratio",
        "baseline", "forbidden", "ignore.MP503")  # fmt: skip
RIGHT = {
    ("forbidden", "[]"),
    ("ignore.MP503", "'x'"),
    ("ignore.MP503", f"'{LONG}'"),
    ("ignore.MP503", r'"\u0000"'),
}


@pytest.mark.parametrize("key", KEYS)
def test_whatever_a_value_is_instead_there_is_one_error(key: str, tmp_path: Path) -> None:
    other = {
        "baseline": "max_step_regression_ratio = 0.1",
        "max_step_regression_ratio": "baseline = 'b.json'",
    }
    stored = {"steps": {"mean_ns": 1e6, "mean_interval_ns": [9e5, 1.1e6]}}
    (tmp_path / "b.json").write_text(json.dumps(stored))
    for value in WRONG:
        table, _, name = key.rpartition(".")
        text = f"[bounds]\n{other.get(key, 'max_skipped_ratio = 0.5' if table else '')}\n"
        text += f"[{table}]\n{name} = {value}\n" if table else f"{name} = {value}\n"
        (tmp_path / "bounds.toml").write_text(text)
        if (key, value) in RIGHT:
            bounds_file.read(tmp_path / "bounds.toml")
            continue
        with pytest.raises(UsageError) as caught:
            bounds_file.read(tmp_path / "bounds.toml")
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "steps",
    [
        {"mean_ns": 1, "mean_interval_ns": [0, 1]}, {"mean_ns": 0, "mean_interval_ns": [1, 1]},
        {"mean_ns": 10**400, "mean_interval_ns": [1, 2]}, {"mean_ns": 1, "mean_interval_ns": [2, 1]},
        {"mean_ns": "NaN", "mean_interval_ns": ["NaN", "NaN"]}, {"mean_ns": 1, "mean_interval_ns": [1]},
        {"mean_ns": 1, "mean_interval_ns": 7}, {"mean_ns": None}, {"median_ns": None}, [], None,
    ],
)  # fmt: skip
def test_a_stored_report_with_a_step_that_cannot_be(steps: object, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"steps": steps}))
    path = tmp_path / "bounds.toml"
    path.write_text("[bounds]\nmax_step_regression_ratio = 0.1\nbaseline = 'b.json'\n")
    with pytest.raises(UsageError, match="is not a stored report with step times"):
        bounds_file.read(path)
