"""What can be said of a model before it trains."""

from __future__ import annotations

from collections.abc import Collection

from mpprof.model import quantities
from mpprof.model.finding import Severity, Unable
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, NARROW, Placement, Precision
from mpprof.model.quantities import first_of


@frozen
class MatrixWork:
    """Where a layer's products will run on the card, in which type, and why, by the vendor's documents.

    `share`: of the model's multiplications, 0 to 1; None: not known. `risk`: why products of these sizes may
    be narrow or miss the matrix units all the same; None: nothing seen. `argument` and `size`: what decides
    how many features it gives out ("units", 128)."""

    layer: str
    unit: Placement
    precision: Precision
    share: float | None
    reason: str
    risk: str | None = None
    argument: str | None = None
    size: int | None = None

    @property
    def on_units(self) -> bool:
        """Whether its products can run on matrix units, with nothing seen against it."""
        return self.unit in ACCELERATED and self.risk is None

    @property
    def narrow(self) -> bool:
        """The same, in 16 bits or less."""
        return self.on_units and self.precision in NARROW


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
    about: str | None = None  # what it is about where that is no layer: "batch size 4"


@frozen
class AuditMemory:
    """What a training at the audit's batch is estimated to take under one policy, and the most examples that
    fit the card (None: its memory is not known, or the model has custom layers). `without_slots`: the
    optimizer's are not known and left out, so that the peak is too low and the batch too high.
    What `custom_layers` keep is not known; it is not counted, nor is `left_out`: the peak is too low."""

    policy: str
    peak_bytes: int
    largest_batch: int | None
    without_slots: bool = False
    custom_layers: bool = False
    left_out: tuple[str, ...] = ()


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
    mixed: str = "mixed_float16"  # the policy to train it under
    memory: tuple[AuditMemory, ...] = ()  # empty: the batch is not known, or `no_memory` says why
    no_memory: str | None = (
        None  # why the memory at the batch is not estimated; None: it is, or was not asked
    )
    set_policy: str = "keras.config.set_dtype_policy"  # what sets it, by the Keras of the model
    work: tuple[MatrixWork, ...] = ()  # of each layer that multiplies; empty: no card is known
    least_ns: float | None = None  # of a step's products at the card's peak rates; None: not known
    pays: bool | None = None  # whether the card multiplies 16 bits on matrix units; None: not known
    policies: tuple[tuple[str, int], ...] = ()  # (policy, how many of the layers that multiply), most first
    float8: str | None = None  # which layers multiply in float8 and what stays beside them; None: none does
    custom: tuple[str, ...] = ()  # layers of no known class with weights: what they multiply is not known
    quantised: str | None = None  # which layers multiply whole numbers, as a sentence; None: none does
    multiplies: bool | None = None  # whether the model multiplies matrices at all; None: not known
    functions: tuple[str, ...] = ()  # of `keras.ops`, between layers, that multiply: not in `work`

    @property
    def narrow(self) -> bool:
        """Whether any layer that multiplies does so in 16 bits or less; of a model without any, its own
        policy."""
        names = [name for name, _ in self.policies] or [self.policy or ""]
        return any("16" in name or "float8" in name for name in names)

    def __repr__(self) -> str:
        causes = ", ".join(dict.fromkeys(f"{note.code} {note.slug}" for note in self.notes))
        return f"Audit of {_head(self)}: {causes or 'nothing found'}"

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


_NAMED = 3  # layers that are listed before "and N more"


def lines(report: AuditReport) -> list[str]:
    """Return the report as text, notes of one cause under one heading, equal ones as one."""
    said = [_head(report), *(f"warning: {text}" for text in report.warnings), *_work(report.work)]
    said += [text for text in (report.float8, report.quantised) if text]
    if report.custom:
        said += [
            f"Not known is what these multiply, of a class of your own: {first_of(report.custom, _NAMED)}"
        ]
    if report.functions:
        said += [
            f"Not judged is what functions between layers multiply: {first_of(report.functions, _NAMED)}. "
            "They compute in the type that they are given, whatever the policy is"
        ]
    for code in dict.fromkeys(note.code for note in report.notes):
        same = [note for note in report.notes if note.code == code]
        said += ["", f"{code} {same[0].slug} ({same[0].severity}): {same[0].title}"]
        groups = [[note for note in same if note.reason == reason] for reason in _once(same, "reason")]
        for group, following in zip(groups, [*groups[1:], []], strict=True):
            told_below = _once(group, "remedy") == _once(following, "remedy")
            said += _grouped(group)[: 1 if told_below else None]
    own = bool(report.custom) and "16" in (report.policy or "")
    own = own or bool(report.functions and not report.policies and not report.custom)
    if report.multiplies is False:
        said += ["", _NO_PRODUCTS]
    elif (
        report.policy and not report.narrow and not own and not report.quantised and report.pays is not False
    ):
        said += [
            "",
            f"It computes in {report.policy} as it is; sizes are judged as for mixed precision. "
            "First of all:",
            f'      {report.set_policy}("{report.mixed}")  # before the model is built',
        ]
    elif not (report.notes or report.warnings or _is_open(report)) and report.pays is not False:
        said += ["", "Nothing was found that would keep this model off the Tensor Cores."]
    if report.memory:
        said += ["", _memory(report)]
    if report.no_memory:
        said += ["", f"Memory at batch {report.batch_size:,} is not estimated: {report.no_memory}"]
    if report.unable:
        said += ["", "Not judged:", *(f"  {unable.code}: {unable.reason}" for unable in report.unable)]
    return said


_NO_PRODUCTS = (
    "No layer of this model multiplies matrices or convolves: Tensor Cores have no work in it. What 16 bits "
    "can bring is half of the memory and of the traffic of its activations."
)


def _is_open(report: AuditReport) -> bool:
    """Return whether something that decides where the model multiplies is not known."""
    unknown = any(each.unit == "unknown" for each in report.work)
    return bool(report.unable or report.custom or report.quantised or report.functions) or unknown


def _once(notes: list[AuditNote], key: str) -> list[str]:
    return list(dict.fromkeys(getattr(note, key) for note in notes))


def _grouped(notes: list[AuditNote]) -> list[str]:
    """Return notes that say the same of several layers as one, with the first one's code."""
    names = list(dict.fromkeys(note.layer for note in notes if note.layer))
    where = f"{first_of(names, _NAMED)}: " if names else ""
    codes = _once(notes, "remedy")
    said = [f"  {where}{notes[0].reason}", *(f"      {line}" for line in codes[0].splitlines())]
    return said + ([f"      # and so the other {len(names) - 1}"] if len(codes) > 1 else [])


UNITS: dict[Placement, str] = {
    "tensor_core": "Tensor Cores", "matrix_core": "matrix cores", "cuda_core": "ordinary arithmetic",
}  # fmt: skip


def _work(work: tuple[MatrixWork, ...]) -> list[str]:
    """Return one line that says where the multiplications will run, the largest share first."""
    parts: dict[str, list[MatrixWork]] = {}
    for each in work:
        unit = UNITS.get(each.unit, "a unit that is not known")
        kind = "" if each.precision == "unknown" else f" in {each.precision}"
        parts.setdefault(f"{unit}{kind}", []).append(each)
    if not parts:
        return []
    sums = {
        what: round(sum(each.share for each in mine if each.share is not None), 9)
        for what, mine in parts.items()
    }
    known = all(each.share is not None for each in work)
    said = [
        f"{what} {quantities.format_ratio(sums[what])}"
        if known
        else f"{what} ({len(parts[what])} of {len(work)} layers)"
        for what in sorted(parts, key=lambda what: -sums[what])
    ]
    what = "multiplications with weights" if known else "matrix work"
    return [f"Its {what} can run on: {', '.join(said)}"]


def _head(report: AuditReport) -> str:
    gpu = report.gpu or "any NVIDIA GPU with Tensor Cores"
    return f"{report.model or 'model'}: policy {_policy(report)}, {report.layers} layers, for {gpu}"


def _policy(report: AuditReport) -> str:
    """Return the policy of the layers that multiply, with the others among them; else the model's own."""
    if not report.policies:
        return report.policy or "not known"
    (most, _), *others = report.policies
    whole = sum(count for _, count in report.policies)
    beside = ", ".join(f"{name} in {count} of the {whole} layers that multiply" for name, count in others)
    return most + (f" ({beside})" if beside else "")


def _memory(report: AuditReport) -> str:
    parts = [
        ("at least " if one.custom_layers or one.left_out else "")
        + f"{quantities.format_bytes(one.peak_bytes)} in {one.policy}"
        + (f" (at most {one.largest_batch:,} examples fit)" if one.largest_batch is not None else "")
        for one in report.memory
    ]
    left_out = "; the optimizer's slots are not known and come on top"
    more = left_out if any(one.without_slots for one in report.memory) else ""
    more += "; custom layers keep more" if any(one.custom_layers for one in report.memory) else ""
    kept = dict.fromkeys(text for one in report.memory for text in one.left_out)
    more += "".join(f"; not counted is {text}" for text in kept)
    return f"Memory at batch {report.batch_size:,}, estimated: {', '.join(parts)}{more}"


def short(report: AuditReport, only_before: Collection[str] = (), most: int = 5) -> list[str]:
    """Return the report in a few lines, one for each cause. `only_before`: codes of causes that are told
    although they are only possible ones."""
    told = (note.code for note in report.notes if note.severity != "info" or note.code in only_before)
    codes = list(dict.fromkeys(told))
    if not codes and not report.warnings:
        return []
    said = ["mpprof audit, before the first step:", *(f"  {text}" for text in report.warnings)]
    for code in codes[:most]:
        same = [note for note in report.notes if note.code == code]
        places = list(dict.fromkeys(where for note in same if (where := note.layer or note.about)))
        said.append(f"  {code} {same[0].title}" + (f": {first_of(places, 3)}" if places else ""))
    left = len(codes) - most
    said.append(f"  {f'{left} more causes; ' if left > 0 else ''}all with their remedies: {_command(report)}")
    return said


def _command(report: AuditReport) -> str:
    """Return the call that gives this report again: without the batch size nothing is said of it."""
    of_batch = any(note.about for note in report.notes)
    return f"mpprof.audit(model{f', batch_size={report.batch_size}' if of_batch else ''})"
