"""What a judgement ranks and compares: the causes in their order, and what makes a baseline unlike."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.diagnosis.outcomes import Found
from mpprof.diagnosis.rules import mp906_unlike_runs, mp910_no_window, mp911_too_short
from mpprof.model.finding import Diagnosis, Finding

_NO_EXPLANATION = frozenset((mp910_no_window.CODE, mp911_too_short.CODE))
"""Too little was recorded: true, and the cause of nothing that was measured."""
_UNLIKE = mp906_unlike_runs.CODE


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that cost time or come before all that do, ranked as they are: without those that
    are only worth a mention, and without those that only say that too little was recorded, unless nothing
    else is wrong."""
    told = [found for found in findings if found.severity != "info" or found.gain_ns_per_step is not None]
    explain = [found for found in told if found.code not in _NO_EXPLANATION]
    return explain if any(found.severity != "info" for found in explain) else told


def changes_type(found: Finding) -> bool:
    """Return whether the finding's remedy changes the type to compute in: what the others gain, they gain in
    this one."""
    return any(remedy.other_type for remedy in found.remedies)


def unlike(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return in which respects the baseline differs beside its precision; empty: in none that is known."""
    found = next((each for each in diagnosis.findings if each.code == _UNLIKE), None)
    if found is not None and (said := said_of_unlike(found)):
        return said
    speedup = diagnosis.speedup
    refused = (speedup.absent or {}).get("observed", "") if speedup and speedup.observed is None else ""
    return (refused,) if refused.startswith("they train different models") else ()


def said_of_unlike(found: Finding | Found) -> tuple[str, ...]:
    """Return what MP906 says is unlike; empty: of rungs, which differ by design."""
    return () if found.severity == "info" else _differences(found) or (found.summary,)


def _differences(found: Finding | Found) -> tuple[str, ...]:
    return tuple(str(each.value) for each in found.evidence if each.name == "difference")


def per_update(diagnosis: Diagnosis) -> float | None:
    """Return the observed speedup per applied update: a skipped step took its time and taught nothing."""
    speedup, steps = diagnosis.speedup, diagnosis.steps
    if speedup is None or speedup.baseline != "measured" or speedup.observed is None:
        return None
    skipped = steps.skipped_ratio if steps else None
    return speedup.observed * (1.0 - skipped) if skipped else speedup.observed
