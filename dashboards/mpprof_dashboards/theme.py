"""Colours, labels and type: one place, the same on every page and in the exported report.

The hues come from the palettes of Okabe & Ito (2008) and Paul Tol ("Colour Schemes", SRON/EPS/TN/09-002),
which stay apart for the common kinds of colour blindness; no class is red, and every mark is labelled in
words as well. All of them keep enough contrast on the light and on the dark page.
"""

from __future__ import annotations

from typing import Any

FONT = (
    "Inter, 'Segoe UI Variable Text', 'Segoe UI', system-ui, -apple-system, Roboto, 'Helvetica Neue', "
    "'Liberation Sans', Arial, sans-serif"
)
# Mantine's greys of the dark page, from text to shadow, with the blue of the style sheet's own.
_DARK = "#E8ECF1 #C3CBD6 #9AA6B5 #6B7787 #3A4450 #2B333E #191F27 #11151B #0D1116 #090C10"
MANTINE: dict[str, Any] = {
    "fontFamily": FONT,
    "primaryColor": "blue",
    "defaultRadius": "md",
    "colors": {"dark": _DARK.split()},
}

CLASS_COLOURS: dict[str, str] = {
    "matmul": "#1F78B4",
    "norm": "#56B4E9",
    "elementwise": "#009E73",
    "reduce": "#66C2A5",
    "gather_scatter": "#44AA99",
    "cast": "#E69F00",
    "layout": "#CDB84B",
    "optimizer": "#AA4499",
    "loss_scale": "#CC79A7",
    "other": "#8D9440",
    "unknown": "#8A8F98",
    "comm": "#6A5FC1",
    "copy": "#9A8FD1",
    "idle_input": "#A6611A",
    "idle_launch": "#B97A3D",
    "idle_sync": "#C08F5E",
    "idle_compile": "#8A5A2B",
    "idle_between_steps": "#CBA67C",
    "idle_other": "#B3A08A",
    "profiling": "#A3A9B3",
}
CLASS_LABELS: dict[str, str] = {
    "matmul": "Matrix work",
    "norm": "Normalisation",
    "elementwise": "Elementwise",
    "reduce": "Reductions",
    "gather_scatter": "Gather, scatter",
    "cast": "Casts",
    "layout": "Layout changes",
    "optimizer": "Optimizer",
    "loss_scale": "Loss scaling",
    "other": "Other",
    "unknown": "Unknown",
    "comm": "Communication",
    "copy": "Copies",
    "idle_input": "Idle: input",
    "idle_launch": "Idle: launching",
    "idle_sync": "Idle: waiting",
    "idle_compile": "Idle: compiling",
    "idle_between_steps": "Idle: between steps",
    "idle_other": "Idle: other",
    "profiling": "Profiling",
}
PLACEMENT_LABELS: dict[str, str] = {
    "tensor_core": "Tensor Cores",
    "matrix_core": "Matrix cores",
    "cuda_core": "Ordinary cores",
    "cpu": "CPU",
    "not_matmul": "No matrix work",
    "unknown": "Unknown",
}
PLACEMENT_COLOURS: dict[str, str] = {
    "tensor_core": "#1F78B4",
    "matrix_core": "#3E93A8",
    "cuda_core": "#E69F00",
    "cpu": "#7A9A3A",
    "not_matmul": "#A9B8C4",
    "unknown": CLASS_COLOURS["unknown"],
}
PRECISION_COLOURS: dict[str, str] = {  # of work on matrix units
    "fp16": "#1F78B4",
    "bf16": "#0B5A8A",
    "tf32": "#56B4E9",
    "fp8": "#6A5FC1",
    "int8": "#9A8FD1",
}
TOTAL = "#64748B"  # a whole step
MEASURED = "#64748B"  # a plain measured series
ACCENT = "#E69F00"  # what deserves a look in a series
GRID = "rgba(128, 136, 148, 0.22)"
INK = "#7A828E"  # for exports of a figure alone; on a page the style sheet sets the text's colour
UNKNOWN_PATTERN = "x"
ESTIMATED_PATTERN = "/"


def class_colour(role: str) -> str:
    return CLASS_COLOURS.get(role, CLASS_COLOURS["unknown"])


def class_label(role: str) -> str:
    return CLASS_LABELS.get(role, role)


def part_colour(placement: str, precision: str) -> str:
    """Of one part of the matrix work: by precision on matrix units, by placement elsewhere."""
    if placement in ("tensor_core", "matrix_core"):
        return PRECISION_COLOURS.get(precision, PLACEMENT_COLOURS[placement])
    return PLACEMENT_COLOURS.get(placement, PLACEMENT_COLOURS["unknown"])


# --- one meaning for each colour, on Why and on the timeline ---

LANE_KINDS: dict[str, str] = {
    "matrix_unit": "unit", "off_matrix_unit": "off", "other": "other", "copy": "other", "unknown": "unknown",
    "idle_input": "wait", "idle_launch": "wait", "idle_sync": "wait", "idle_compile": "wait",
    "idle_other": "wait", "input": "wait", "pipeline": "plain", "launch": "plain", "sync": "quiet",
    "compile": "plain", "op": "plain", "host": "quiet",
}  # fmt: skip
"""What is drawn as what: `mp-k-…` of the style sheet."""
KIND_COLOURS: dict[str, str] = {
    "unit": "#1F78B4", "off": "#D9480F", "other": "#8593A3", "unknown": "#B9C0C9", "wait": "#A0621B",
    "plain": "#64748B", "quiet": "#C3CBD6", "run": "#334155",
}  # fmt: skip
"""Matrix units blue, matrix work off them vermilion, other work grey, waiting brown, plain series slate."""
LANE_COLOURS: dict[str, str] = {key: KIND_COLOURS[kind] for key, kind in LANE_KINDS.items()} | {
    "idle_input": "#D9B98F", "idle_launch": "#E3CDAE", "idle_sync": "#E3CDAE", "idle_compile": "#E3CDAE",
    "idle_other": "#EADCC6", "copy": "#A9B4C0",
}  # fmt: skip
LANE_LABELS: dict[str, str] = {
    "matrix_unit": "Tensor Cores", "off_matrix_unit": "matrix work off Tensor Cores", "other": "other work",
    "copy": "copies", "unknown": "unknown", "idle_input": "waiting for input",
    "idle_launch": "waiting for launches", "idle_sync": "waiting", "idle_compile": "waiting for compilation",
    "idle_other": "idle", "input": "waits for input", "pipeline": "input pipeline", "launch": "launches",
    "sync": "waits for the device", "compile": "compiles", "op": "ops", "host": "executor, other",
}  # fmt: skip
CLASS_KINDS: dict[str, str] = {
    "matmul": "unit", "unknown": "unknown", "idle_input": "wait", "idle_launch": "wait", "idle_sync": "wait",
    "idle_compile": "wait", "idle_between_steps": "wait", "idle_other": "wait",
}  # fmt: skip
"""Of the account's classes; all others are other work."""
PLACEMENT_KINDS: dict[str, str] = {
    "tensor_core": "unit", "matrix_core": "unit", "cuda_core": "off", "cpu": "off", "not_matmul": "other",
    "unknown": "unknown",
}  # fmt: skip
_WAITING = frozenset(("MP301", "MP302", "MP303", "MP305", "MP306", "MP308", "MP309", "MP311", "MP902"))
_OFF_UNITS = frozenset(
    (
        "MP101",
        "MP103",
        "MP104",
        "MP105",
        "MP401",
        "MP402",
        "MP403",
        "MP406",
        "MP407",
        "MP408",
        "MP409",
        "MP410",
    )
)


def cause_kind(code: str) -> str:
    """The colour of a cause: what the time that it costs is spent on."""
    if code in _WAITING:
        return "wait"
    return "off" if code in _OFF_UNITS else "other"
