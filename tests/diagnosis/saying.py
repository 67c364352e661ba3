"""What one rule says of a case, asked through the engine."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis import Case, judge
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import ALL
from mpprof.model.finding import Diagnosis, Finding

BY_CODE = {rule.CODE: rule for rule in ALL}


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
