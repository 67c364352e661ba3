"""`mpprof report --format answer`: small, complete, the same words as everywhere, commands that run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.cli import main
from mpprof.report import json as documents
from tests.paths import ROOT, SAMPLES

RUNS = (
    ("v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32"),
    ("recorded-cpu-mixed-float16", None),
    ("v100-loss-scale-thrash", None),
    ("recorded-h100-convnet-mixed-bfloat16", None),
)


FIGURES = ("step_ns", "baseline_step_ns", "after_remedies_ns", "speedup", "tensor_core_ratio")


def answered(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[str, Any]:
    assert main(["report", *options, "--format", "answer"]) == 0
    printed = capsys.readouterr().out
    return printed, json.loads(printed)


@pytest.mark.parametrize(("name", "baseline"), RUNS)
def test_it_is_small_and_its_figures_are_those_of_the_report(
    capsys: pytest.CaptureFixture[str], name: str, baseline: str | None
) -> None:
    against = ["--baseline", str(SAMPLES / baseline)] if baseline else []
    printed, found = answered(capsys, str(SAMPLES / name), *against)
    whole = documents.document(workflows.diagnose(SAMPLES / name, SAMPLES / baseline if baseline else None))
    assert len(printed.encode()) < 2000
    assert found["answer"] == whole["answer"]
    facts = whole["facts"]
    assert {key: found[key] for key in ("step_ns", "baseline_step_ns", "after_remedies_ns")} == {
        key: facts[key] for key in ("step_ns", "baseline_step_ns", "after_remedies_ns")
    }
    assert found["speedup"] == facts["observed"]
    nulls = [key for key in FIGURES if found[key] is None]
    nulls += ["answer.code"] if found["answer"]["code"] is None else []
    nulls += (
        ["causes.gain_ns_per_step"]
        if any(each["gain_ns_per_step"] is None for each in found["causes"])
        else []
    )
    assert set(found["absent"]) == set(nulls)
    assert "not known" not in found["absent"].values()
    kept = ("code", "slug", "gain_ns_per_step")
    assert found["causes"] == [{key: cause[key] for key in kept} for cause in facts["causes"][:4]]
    assert (found["not_judged"], found["schema"]) == (len(whole["unable"]), "mpprof.answer/1")


def test_every_command_that_it_names_runs(capsys: pytest.CaptureFixture[str]) -> None:
    name, baseline = RUNS[0]
    _, found = answered(capsys, str(SAMPLES / name), "--baseline", str(SAMPLES / baseline))
    assert len(found["more"]) > 2
    for each in found["more"]:
        program, *arguments = shlex.split(each["command"])
        assert (program, main(arguments)) == ("mpprof", 0), each
        assert capsys.readouterr().out, each


def test_a_redacted_answer_names_no_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret = tmp_path / "home" / "alice" / "logs"
    secret.parent.mkdir(parents=True)
    secret.symlink_to(SAMPLES / "v100-float32-island")
    assert "alice" in answered(capsys, str(secret))[0]
    printed, found = answered(capsys, str(secret), "--redact")
    assert "alice" not in printed
    assert found["answer"]["sentence"]


def test_the_skill_says_what_the_page_says_and_the_page_names_every_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    skill = (ROOT / "examples" / "skill" / "SKILL.md").read_text(encoding="utf-8")
    assert skill.partition("---\n\n")[2] == page.replace("[checks](checks.md)", "`docs/checks.md`")
    _, found = answered(capsys, str(SAMPLES / RUNS[0][0]))
    keys = set(found) | {f"answer.{key}" for key in found["answer"]} | {"command", "shows", "code", "slug"}
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {part.strip(" `") for row in rows for part in row.split(",")}
    assert named <= keys
    assert {key for key in found if key not in ("schema", "run", "answer")} <= named


def test_every_command_of_the_page_for_agents_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Placeholders stand for samples; what `forecast` compiles with is not installed everywhere."""
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    (tmp_path / "mpprof.toml").write_text("[bounds]\nmax_skipped_ratio = 1\n")
    mixed, plain, recorded = (
        str(SAMPLES / name) for name in (*RUNS[0], "recorded-cpu-mixed-float16") if name is not None
    )
    stands = {"logs/mixed": mixed, "RUN": mixed, "BEFORE": plain, "AFTER": mixed, "MODEL": recorded,
              "CODE": "MP402", "FILE": str(tmp_path / "mpprof.toml")}  # fmt: skip
    found = re.findall(r"(?:^|`)mpprof ([a-z]+ [^`\n]+)", page, re.MULTILINE)
    named = set()
    for words in (command.split() for command in found):
        named.add(words[0])
        if words[0] == "forecast":
            words = ["forecast", "--help"]
        given = [stands.get(word, word) for word in words]
        try:
            code = main(given)
        except SystemExit as left:  # of --help
            code = left.code
        assert code == 0, given
        assert capsys.readouterr().out or words[0] == "check", given
    assert named == {"report", "explain", "compare", "check", "audit", "forecast"}
