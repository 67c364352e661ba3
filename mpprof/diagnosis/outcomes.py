"""What a rule can say: found, clear, not applicable, or unable. And the words in which it says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from mpprof.model.account import Cell
from mpprof.model.answer import Remedy
from mpprof.model.finding import Confidence, Evidence, Severity
from mpprof.model.frozen import frozen

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals

T = TypeVar("T")

REMAINDER, GENERAL, NAMED, CONFIGURED, OVERALL = -1, 0, 1, 2, 3
"""How narrowly a rule names its cause: what all others leave; a whole class of time; named layers or ops; a
named layer with a known configuration; one cause of the whole model from which narrower ones follow. Where
two rules claim the same cell, the higher one has it. A rule of the remainder is asked last, and sees in
`Signals.claimed` what the others hold."""


@frozen
class Absent:
    """No answer, why, and what to record to have one, which only what prints it works out. `moot`: nothing
    could be recorded, because the question does not arise for this run."""

    reason: str
    record: str | Callable[[], str] = ""
    moot: bool = False

    def __str__(self) -> str:
        record = self.record if isinstance(self.record, str) else self.record()
        return f"{self.reason}; {record}" if record else self.reason


class Missing(Exception):
    """Raised by `need`; the engine turns it into `Unable`, or `NotApplicable`. Never leaves this package."""

    def __init__(self, absent: Absent) -> None:
        super().__init__(absent.reason)
        self.absent = absent


def need(answer: T | Absent) -> T:
    """Return the answer itself. A rule that asks for an answer that is absent becomes *unable*, and *not
    applicable* where the question does not arise."""
    if isinstance(answer, Absent):
        raise Missing(answer)
    return answer


def known(answer: T | Absent) -> T | None:
    """Return the answer, or None where the rule can do without it."""
    return None if isinstance(answer, Absent) else answer


@frozen
class Claim:
    """One cell of the account (its row in `account.main.cells`) and what it could be: the cost claimed is
    the cell's time less `attainable_ns`."""

    cell: int
    attainable_ns: float = 0.0


def cost_ns(claims: Sequence[Claim], cells: Sequence[Cell]) -> float:
    """Return the ns per step that the claimed cells take above what they could take; never negative."""
    excess = (cells[claim.cell].ns_per_step - max(0.0, claim.attainable_ns) for claim in claims)
    return float(sum(max(0.0, ns) for ns in excess))


def held_ns(claims: Sequence[Claim], cells: Sequence[Cell]) -> float:
    """Return how much of that cost no remedy gains, because communication under it goes on all the same."""
    left = (max(claim.attainable_ns, 0.0) for claim in claims)
    own = ((cells[claim.cell], ns) for claim, ns in zip(claims, left, strict=True))
    return float(
        sum(
            max(0.0, min(cell.held_ns_per_step, cell.ns_per_step) - ns)
            for cell, ns in own
            if cell.held_ns_per_step
        )
    )


@frozen
class Scale:
    """The shares of the step from which a cost is worth a mention, a warning, and an error.

    `normal`: below the warning it is how every healthy run of this kind is. Then it is no loss but a ceiling:
    the finding says what its remedy would give, and states a cost only where the comparison with a baseline
    shows one.
    """

    info_ratio: float
    warning_ratio: float
    error_ratio: float
    normal: bool = False

    def severity(self, ratio: float) -> Severity | None:
        """Return the severity of this share; None where it is below what is worth saying."""
        if ratio >= self.error_ratio:
            return "error"
        if ratio >= self.warning_ratio:
            return "warning"
        return "info" if ratio >= self.info_ratio else None

    def crossed(self, ratio: float) -> float:
        """Return the highest of the limits that this share has reached; the lowest where it has reached
        none."""
        return max((r for r in (self.warning_ratio, self.error_ratio) if ratio >= r), default=self.info_ratio)


OF_A_LAYER = Scale(info_ratio=0.01, warning_ratio=0.03, error_ratio=0.20)
"""Of what is remedied in single layers. Three percent is the least that an engineer would edit a layer for;
20 % is XProf's "high" for input."""


@frozen
class Found:
    """The cause is there.

    Either `severity` is stated, or it follows from `scale` and the claims that this rule is left with once
    all rules have claimed. `{cost}` and `{share}` in the summary become that cost and its share of the step;
    there and in the names of evidence `{each}`, `{per}`, `{whole}` and `{span}` become "a step", "per step",
    "the step" and "step", or the like of a window without steps. `cost_ns` is for a cost that is no part of
    the account (steps thrown away); with claims it is not used. `cost_ns_of_run` is what it takes of
    the run outside the steps (`shared.of_the_run`). `spare_bytes` is memory that nothing uses.
    `cases` choose among the table's remedies for this cause, with `values` filled in; `remedy` takes the
    place of a row where the table has none, and `first` comes before the rows: what this run itself shows is
    to be done. `title`: in place of the rule's `TITLE`. `said`: the cause as the answer says it
    (`answer.cause` has what it may leave open), in place of the rule's `SAYS`; `proof`: a clause that shows
    it.
    """

    summary: str
    evidence: tuple[Evidence, ...]
    confidence: Confidence = "high"
    severity: Severity | None = None
    scale: Scale | None = None
    claims: tuple[Claim, ...] = ()
    cost_ns: float | None = None
    cost_ns_of_run: float | None = None
    cost_bytes: int | None = None
    spare_bytes: int | None = None
    layers: tuple[str, ...] = ()
    cases: tuple[str, ...] = ("",)
    values: Mapping[str, object] = field(default_factory=dict)
    remedy: str = ""
    first: tuple[Remedy, ...] = ()
    said: str = ""
    proof: str = ""
    title: str = ""


@frozen
class Clear:
    """The cause is not there, on evidence. `note` says which."""

    note: str = ""


@frozen
class NotApplicable:
    """The question does not arise for this run, and why: neither clear, because nothing was looked at, nor
    unable, because nothing is missing."""

    reason: str


NO_MATRIX_UNITS = NotApplicable("the device has no matrix units")
NOT_IN_16_BITS = NotApplicable("the run does not compute in 16 bits")
NOT_NVIDIA = NotApplicable("the device is not NVIDIA's")
ONLY_INFERS = NotApplicable("the trace shows an inference: no gradients and no optimizer")
FORWARD_ALONE = NotApplicable("the window holds no backward pass and no optimizer")
NO_GPU = NotApplicable("the run used no GPU")
OUT_OF_MEMORY = NotApplicable("training ran out of memory")
ENDED_BY_ERROR = NotApplicable("an error ended the training")


@frozen
class Unable:
    """It cannot be told: what is missing and what to record. Never shown as clear."""

    reason: str


Leads = Literal["error", "learning", "inactive", "invalid"]
"""What the finding of a rule is before any cost: the training ended by an error, it does not learn, mixed
precision is not in effect, the measurement is not valid. `diagnosis.leading` has the order."""
ERROR: Leads = "error"
LEARNING: Leads = "learning"
INACTIVE: Leads = "inactive"
INVALID: Leads = "invalid"

Outcome = Found | Clear | NotApplicable | Unable


class Rule(Protocol):
    """One cause: a module of `rules/`, whose docstring is its manual page. `ABOUT` names in a list what it
    looks at. `SPECIFICITY` is GENERAL where a rule states none; `BOUND = "host"` says that its remedy
    shortens the host's work and not the device's. A rule that can judge a model before it trains also has
    `check_model` (`audit.ModelRule`). One with `OF_TRAINING = True` asks of gradients, updates or the
    loss: it does not apply to an inference, and a window without a backward pass does not clear it. One with
    `OF_ACCELERATOR = True` asks of a GPU's or a TPU's work: it does not apply to a run on a CPU. `LEADS` says
    of a rule whose finding comes before all costs what it then is (see `Leads`). `SAYS` is its finding as the
    answer says it, where title or summary do not serve; `ONCE` what follows the step time after its remedy
    ("once the input keeps up")."""

    __name__: str
    __doc__: str | None
    CODE: str
    SLUG: str
    TITLE: str
    ABOUT: str

    @property
    def judge(self) -> Callable[[Signals], Outcome]: ...
