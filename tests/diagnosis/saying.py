"""What one rule says of a case, asked through the engine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.engine import judge
from mpprof.diagnosis.leading import BEFORE_COSTS
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import ALL
from mpprof.diagnosis.signals import Case
from mpprof.model.finding import Diagnosis, Finding

BY_CODE = {rule.CODE: rule for rule in ALL}
_SPEEDUP = re.compile(r"(\d+\.\d+)x")


def finding(code: str, case: Case) -> Finding:
    """The finding of this rule alone; fails where it says anything else."""
    judgement = judge(case, [BY_CODE[code]], strict=True)
    assert judgement.findings, f"{code}: unable {judgement.unable}, clear {judgement.clear}"
    return judgement.findings[0]


def says(code: str, case: Case) -> str:
    """ "info", "warning", "error", "clear", "not applicable: <why>", or "unable: <why>"."""
    judgement = judge(case, [BY_CODE[code]], strict=True)
    if judgement.findings:
        return judgement.findings[0].severity
    if judgement.not_applicable:
        return f"not applicable: {judgement.not_applicable[0].reason}"
    return f"unable: {judgement.unable[0].reason}" if judgement.unable else "clear"


def diagnosed(case: Case, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """The diagnosis that a report is made of, by these rules (all, unless given)."""
    judgement = judge(case, rules, strict=True)
    return Diagnosis(
        run=case.run, steps=case.steps, account=case.account, tensor_core=case.tensor_core,
        speedup=judgement.speedup, bounds=(), memory=None, findings=judgement.findings,
        unable=judgement.unable, clear=judgement.clear, not_applicable=judgement.not_applicable, warnings=(), whatif=judgement.whatif,
        absent={} if case.account else {"time": case.trace_problem or "no profiler window was recorded"},
    )  # fmt: skip


def assert_answer(found: Diagnosis) -> None:
    """What every answer is held to: its length, its words, and its figures."""
    answer = found.answer or compose(found)
    texts = (answer.sentence, *answer.because)
    assert 0 < len(answer.sentence) <= 150
    assert len(answer.because) <= 2
    assert all(0 < len(each) <= 150 and each.endswith((".", "…", "?", "!")) for each in texts)
    assert all(each[0] == each[0].upper() or each[0] == "`" for each in texts)
    assert len(answer.figure) <= 12
    assert len(answer.floor) <= 270
    assert not answer.floor or answer.floor.endswith(".")
    assert "\n" not in answer.do
    for each in (*texts, answer.label, answer.do):
        assert not re.search(r"\bMP\d{3}\b", each)
        assert "attainable" not in each
        assert "{" not in each.replace("${", ""), each
        assert "not known" in each or "None" not in each
    for goal in _SPEEDUP.findall(answer.label.partition("about ")[2]):
        assert float(goal) >= 1
    assert answer.sentence not in answer.because
    if answer.leads in BEFORE_COSTS:
        assert (answer.figure, answer.label) == ("", "")
    if answer.leads == "nothing":
        assert answer.code is None
    else:
        assert answer.code in {each.code for each in found.findings}
    if found.speedup is None or found.speedup.baseline != "measured":
        assert "pays: " not in answer.sentence  # which only two measured runs show
        assert "x" not in answer.figure.rstrip("x") or answer.kind != "measured"
