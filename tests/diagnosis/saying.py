"""What one rule says of a case, asked through the public door."""

from __future__ import annotations

from mpprof.diagnosis import Case, judge
from mpprof.diagnosis.rules import ALL
from mpprof.model.finding import Finding

BY_CODE = {rule.CODE: rule for rule in ALL}


def finding(code: str, case: Case) -> Finding:
    """The finding of this rule alone; fails where it says anything else."""
    judgement = judge(case, [BY_CODE[code]], strict=True)
    assert judgement.findings, f"{code}: unable {judgement.unable}, clear {judgement.clear}"
    return judgement.findings[0]


def says(code: str, case: Case) -> str:
    """ "info", "warning", "error", "clear", or "unable: <why>"."""
    judgement = judge(case, [BY_CODE[code]], strict=True)
    if judgement.findings:
        return judgement.findings[0].severity
    return f"unable: {judgement.unable[0].reason}" if judgement.unable else "clear"
