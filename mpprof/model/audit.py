"""What can be said of a model before it trains."""

from __future__ import annotations

from mpprof.model.finding import Severity, Unable
from mpprof.model.frozen import frozen


@frozen
class AuditNote:
    """One thing that will keep work off the Tensor Cores, or cost accuracy. `layer` None: the whole model."""

    code: str  # of the cause, as `mpprof explain` knows it
    slug: str
    title: str
    severity: Severity
    layer: str | None
    reason: str
    remedy: str  # code to write


@frozen
class AuditReport:
    """What the walk over a model finds without training it. `notes` worst first; printing gives the text.

    `gpu` is the card it was judged for, None where none is known: then only what holds for every NVIDIA
    card with Tensor Cores is said. `batch_size` None: not known, so not judged."""

    model: str | None
    policy: str | None
    gpu: str | None
    batch_size: int | None
    layers: int
    notes: tuple[AuditNote, ...]
    unable: tuple[Unable, ...]
    clear: tuple[str, ...]
    warnings: tuple[str, ...] = ()  # what will not train at all, and what was not looked at

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def lines(report: AuditReport) -> list[str]:
    """The report as text, notes of one cause under one heading."""
    head = f"{report.model or 'model'}: policy {report.policy or 'not known'}, {report.layers} layers"
    head += f", for {report.gpu}" if report.gpu else ", for any NVIDIA GPU with Tensor Cores"
    said = [head, *(f"warning: {text}" for text in report.warnings)]
    for code in dict.fromkeys(note.code for note in report.notes):
        same = [note for note in report.notes if note.code == code]
        said += ["", f"{code} {same[0].slug} ({same[0].severity}): {same[0].title}"]
        for note in same:
            said.append(f"  {note.layer + ': ' if note.layer else ''}{note.reason}")
            said += [f"      {line}" for line in note.remedy.splitlines()]
    if report.policy and "16" not in report.policy:
        said += [
            "",
            "It computes in float32 as it is; sizes are judged as for mixed precision. First of all:",
        ]
        said.append('      keras.config.set_dtype_policy("mixed_float16")  # before the model is built')
    elif not report.notes and not report.warnings:
        said += ["", "Nothing was found that would keep this model off the Tensor Cores."]
    if report.unable:
        said += ["", "Not judged:", *(f"  {unable.code}: {unable.reason}" for unable in report.unable)]
    return said


def short(report: AuditReport, most: int = 5) -> list[str]:
    """The same in a few lines, one for each cause."""
    codes = list(dict.fromkeys(note.code for note in report.notes if note.severity != "info"))
    if not codes and not report.warnings:
        return []
    said = ["mpprof audit, before the first step:", *(f"  {text}" for text in report.warnings)]
    for code in codes[:most]:
        same = [note for note in report.notes if note.code == code]
        where = ", ".join(note.layer for note in same[:3] if note.layer)
        more = f" and {len(same) - 3} more" if len(same) > 3 else ""
        said.append(f"  {code} {same[0].title}" + (f": {where}{more}" if where else ""))
    left = len(codes) - most
    said.append(
        f"  {f'{left} more causes; ' if left > 0 else ''}all with their remedies: mpprof.audit(model)"
    )
    return said
