"""What a project's own tests say of its trainings: `assert_tensor_cores(found)`.

The fixture `mpprof_run` is in `mpprof.pytest_plugin`, which pytest finds by itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mpprof.errors import UsageError

if TYPE_CHECKING:
    from mpprof.model.report import Report

MOST_NAMED = 5


def assert_tensor_cores(
    found: Any, at_least: float = 0.9, *, precision: str | None = None, allow_unknown: float = 0.05
) -> None:
    """Assert that enough of a run's matrix time ran on matrix units (Tensor Cores, AMD's matrix cores).

    Args:
        found: a diagnosis, a loaded run, or the path of one.
        at_least: share of the matrix time, 0 to 1.
        precision: count only what ran in this one ("fp16", "bf16", "tf32" ...); None: any.
        allow_unknown: the largest share of the device's work that may be unidentified.

    The message of the `AssertionError` names the share, what fell back and the first cause. A run whose
    share is not known fails, with the reason: it is not shown to be on matrix units.
    """
    __tracebackhide__ = True
    if not 0.0 <= at_least <= 1.0:
        raise UsageError(f"at_least is {at_least!r}", next="Give a share from 0 to 1")
    document = _document(found)
    name, share = document.run.name, document.tensor_core
    if share is None or share.ratio is None:
        why = (share.reason if share else None) or document.absent.get("tensor_core", "not known")
        raise AssertionError(f"{name}: the share of matrix time on Tensor Cores is not known: {why}")
    from mpprof.report import content, words

    if share.unknown_ratio > allow_unknown:
        raise AssertionError(
            f"{name}: {words.percent(share.unknown_ratio)} of the device's work is not identified, "
            f"more than the {words.percent(allow_unknown)} that may be"
        )
    whole = share.matmul_ns_per_step
    ratio = share.ratio
    if precision is not None:
        in_it = {str(name): ns for name, ns in share.by_precision.items()}.get(precision, 0.0)
        ratio = in_it / whole if whole else 0.0
    if ratio >= at_least:
        return
    of = f" in {precision}" if precision else ""
    said = [
        f"{name}: {words.percent(ratio)} of the matrix time ran on {content.matrix_units(document)}{of}, "
        f"less than {words.percent(at_least)}",
        f"  {content.tensor_core(document)}",
        *(f"  {each.code} {each.slug}: {each.summary or each.title}" for each in _causes(document)),
    ]
    raise AssertionError("\n".join(said))


def _causes(document: Report) -> list[Any]:
    causes = [cause.code for cause in document.facts.causes]
    return [found for found in document.findings if found.code in causes][:MOST_NAMED]


def _document(found: Any) -> Report:
    from mpprof.api import public
    from mpprof.api.results import Diagnosis
    from mpprof.report import json as documents

    if not isinstance(found, Diagnosis):
        found = public.diagnose(os.fspath(found) if isinstance(found, os.PathLike) else found)
    return documents.report(found)
