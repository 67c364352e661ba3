"""Colours, labels and type: one place, the same on every page and in the exported report.

The hues come from the palettes of Okabe & Ito (2008) and Paul Tol ("Colour Schemes", SRON/EPS/TN/09-002),
which stay apart for the common kinds of colour blindness; no class is red, and every mark is labelled in
words as well. All of them keep enough contrast on the light and on the dark page.
"""

from __future__ import annotations

from typing import Any

from mpprof.model.kernels import PRECISIONS

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
    "matmul": "#8A45E0",
    "norm": "#D2408C",
    "elementwise": "#009E73",
    "reduce": "#3E9C7F",
    "gather_scatter": "#3E9B8C",
    "cast": "#4C8A10",
    "layout": "#6E8F2E",
    "optimizer": "#AB459A",
    "loss_scale": "#C970A1",
    "other": "#8A913F",
    "unknown": "#888D96",
    "comm": "#6A5FC1",
    "copy": "#9083CC",
    "idle_input": "#A6611A",
    "idle_launch": "#B97A3D",
    "idle_sync": "#B9824B",
    "idle_compile": "#95612E",
    "idle_between_steps": "#B78349",
    "idle_stall": "#A8743F",
    "idle_other": "#A1896E",
    "profiling": "#868E9B",
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
    "idle_input": "Waiting for input",
    "idle_launch": "Waiting for launches",
    "idle_sync": "Waiting while the host waits",
    "idle_compile": "Waiting for compilation",
    "idle_between_steps": "Between steps",
    "idle_stall": "Stalls",
    "idle_other": "Other idling",
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
TOTAL = "#64748B"  # a whole step
MEASURED = "#64748B"  # a plain measured series
ACCENT = "#C3317A"  # what deserves a look in a series
GRID = "rgba(128, 136, 148, 0.22)"
INK = "#7A828E"  # for exports of a figure alone; on a page the style sheet sets the text's colour
UNKNOWN_PATTERN = "x"
ESTIMATED_PATTERN = "/"


_DARK_TEXT, _LIGHT_TEXT = "#17202B", "#FFFFFF"
_EQUAL_LUMINANCE = 0.21
"""From here on dark letters stand out more than white ones."""


def luminance(colour: str) -> float:
    """Return the relative luminance of "#RRGGBB", from 0 to 1 (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def text_on(colour: str) -> str:
    """Return the colour of letters that stand out on a mark of this colour."""
    return _DARK_TEXT if luminance(colour) > _EQUAL_LUMINANCE else _LIGHT_TEXT


def class_label(role: str) -> str:
    return CLASS_LABELS.get(role, role)


# --- one meaning for each colour, on Why and on the timeline ---

LANE_KINDS: dict[str, str] = {
    "matrix_unit": "unit", "off_matrix_unit": "off", "other": "other", "copy": "other", "unknown": "unknown",
    "idle_input": "wait", "idle_launch": "wait", "idle_sync": "wait", "idle_compile": "wait",
    "idle_other": "wait", "input": "wait", "pipeline": "plain", "launch": "plain", "sync": "quiet",
    "compile": "plain", "op": "plain", "host": "quiet",
}  # fmt: skip
"""What is drawn as what: `mp-k-…` of the style sheet."""
KIND_COLOURS: dict[str, str] = {
    "unit": "#1F78B4", "off": "#D9480F", "other": "#808F9F", "unknown": "#888D96", "wait": "#F6E7C8",
    "plain": "#64748B", "quiet": "#7F90A8", "run": "#334155", "skip": CLASS_COLOURS["loss_scale"],
}  # fmt: skip
"""Matrix units blue, matrix work off them vermilion, other work grey, waiting pale with an outline, plain
series slate, steps that the loss scale skips in its colour."""
EDGES: dict[str, str] = {"#F6E7C8": "#A0621B", "#EEF1F4": "#76849A"}
"""Outlines of pale colours."""
LANE_COLOURS: dict[str, str] = {key: KIND_COLOURS[kind] for key, kind in LANE_KINDS.items()} | {
    "copy": "#EEF1F4",
}
LANE_LABELS: dict[str, str] = {
    "matrix_unit": "Tensor Cores", "off_matrix_unit": "matrix work off Tensor Cores", "other": "other work",
    "copy": "copies", "unknown": "unknown", "idle_input": "waiting for input",
    "idle_launch": "waiting for launches", "idle_sync": "waiting while the host waits",
    "idle_compile": "waiting for compilation", "idle_other": "other idling",
    "input": "host waits for input", "pipeline": "input pipeline", "launch": "launches",
    "sync": "host waits for the device", "compile": "compiles", "op": "ops", "host": "executor, other",
}  # fmt: skip
CPU_LABELS = {"off_matrix_unit": "matrix work"}
"""Of a CPU, which has no matrix units."""
KIND_WORDS: dict[str, str] = {
    "unit": LANE_LABELS["matrix_unit"], "off": LANE_LABELS["off_matrix_unit"], "cast": "casts",
    "other": LANE_LABELS["other"], "unknown": LANE_LABELS["unknown"],
}  # fmt: skip


def of_units(said: str, units: str) -> str:
    """Return a text about Tensor Cores with the name of a device's own matrix units."""
    return said.replace(LANE_LABELS["matrix_unit"], units)


def lane_labels(units: str) -> dict[str, str]:
    return {key: of_units(said, units) for key, said in LANE_LABELS.items()}


def kind_word(kind: str, units: str) -> str:
    return of_units(KIND_WORDS[kind], units)


QUIET_LANES = frozenset(key for key, kind in LANE_KINDS.items() if kind == "quiet")
"""Of the host while others work: outlines with a faint ground, so that work and waiting stand out."""
QUIET_OPACITY = 0.28
CLASS_KINDS: dict[str, str] = {
    "matmul": "unit", "unknown": "unknown", "idle_input": "wait", "idle_launch": "wait", "idle_sync": "wait",
    "idle_compile": "wait", "idle_between_steps": "wait", "idle_stall": "wait", "idle_other": "wait",
}  # fmt: skip
"""Of the account's classes; all others are other work."""
PLACEMENT_KINDS: dict[str, str] = {
    "tensor_core": "unit", "matrix_core": "unit", "cuda_core": "off", "cpu": "off", "not_matmul": "other",
    "unknown": "unknown",
}  # fmt: skip
_SHADES: dict[str, dict[str, str]] = {
    "unit": {"fp16": "#1F78B4", "bf16": "#0E73B0", "tf32": "#3A94CD", "fp8": "#4A68C8", "fp4": "#6A64C8",
             "int8": "#3D97B8", "mixed": "#3D7297"},
    "off": {"fp32": "#D9480F", "fp64": "#B84A14", "fp16": "#EB621E", "bf16": "#D96A3C", "mixed": "#B85C33"},
}  # fmt: skip
WORK_COLOURS: dict[str, str] = {
    "precision/copy": LANE_COLOURS["copy"], "precision/other": KIND_COLOURS["other"],
    "no layer": KIND_COLOURS["quiet"], "other layers": KIND_COLOURS["other"],
}  # fmt: skip
"""Of a device's work on the timeline, by precision, layer or class."""
WORK_LABELS: dict[str, str] = {
    "precision/copy": "copies", "precision/other": "other work", "no layer": "no layer",
    "other layers": "other layers",
}  # fmt: skip
WORK_COLOURS |= {
    f"precision/{place}/{precision}": _SHADES.get(kind, {}).get(precision, KIND_COLOURS[kind])
    for place, kind in PLACEMENT_KINDS.items()
    for precision in PRECISIONS
}
WORK_LABELS |= {
    f"precision/{place}/{precision}": f"{precision} on {PLACEMENT_LABELS[place]}"
    for place in PLACEMENT_KINDS
    for precision in PRECISIONS
}
WORK_COLOURS |= {f"class/{key}": colour for key, colour in CLASS_COLOURS.items()}
WORK_LABELS |= {f"class/{key}": label for key, label in CLASS_LABELS.items()}

# --- the flow of time ---

FLOW_COLOURS: dict[str, str] = {
    "unit": "#1F78B4", "off": "#D9480F", "open": "#646E7C", "plain": "#46536A", "norm": "#7C7C7C",
    "reduce": "#5B6B7E", "elementwise": "#7A8A9F", "cast": "#9C9C9C", "rest": "#2B343F", "copy": "#EEF1F4",
    "unknown": "#646E7C", "wait": "#F6E7C8", "skip": "#C970A1",
}  # fmt: skip
"""What a stretch of a bar is spent on, in the order of a bar: matrix work on units, off them, and where it is
open; a step that is not divided; other work in greys that stay apart side by side; what is unknown; waiting,
pale."""
DOTTED = frozenset(("open", "unknown"))
"""Kinds that are drawn as dots: a texture, which touches no colour."""
FLOW_EDGES: dict[str, str] = {
    "wait": "#A0621B",
    "open": "#646E7C",
    "unknown": "#646E7C",
    "plain": "#64748B",
} | dict.fromkeys(("norm", "reduce", "elementwise", "cast", "rest", "copy"), "#76849A")
"""Outlines: what is pale is seen on the light page by them, what is dark on the dark one."""
FLOW_PLACES: dict[str, str] = {
    "tensor_core": "unit", "matrix_core": "unit", "cuda_core": "off", "cpu": "off", "not_matmul": "rest",
    "unknown": "open", "": "open",
}  # fmt: skip
"""Of matrix work, by where it ran; "": nothing tells."""
FLOW_WORDS = {
    "matmul": "matrix work", "norm": "norms", "reduce": "reductions", "elementwise": "elementwise",
    "cast": "casts", "rest": "optimizer, other", "copy": "copies", "unknown": "unknown", "wait": "waits",
}  # fmt: skip
"""Of bands."""
FLOW_LEGEND = {
    "unit": "matrix work on Tensor Cores", "off": "matrix work off Tensor Cores",
    "open": "matrix work, where is unknown", "plain": "a whole step", "skip": "skipped updates",
} | {kind: word for kind, word in FLOW_WORDS.items() if kind != "matmul"}  # fmt: skip
UNIT_WORDS: dict[str, str] = {
    "tensor_core": "Tensor Cores", "matrix_core": "matrix cores", "cuda_core": "ordinary cores", "cpu": "CPU",
    "not_matmul": "helpers", "unknown": "where is unknown",
}  # fmt: skip
WAITS = (
    "idle_input", "idle_launch", "idle_sync", "idle_compile", "idle_other", "idle_between_steps",
    "idle_stall",
)  # fmt: skip
FLOW_BAND_OF: dict[str, str] = {"unit": "matmul", "off": "matmul", "open": "matmul"}
FLOW_BANDS = ("matmul", *[kind for kind in FLOW_COLOURS if kind not in (*FLOW_BAND_OF, "plain", "skip")])
"""What one band joins: all matrix work, all waiting, and each other kind."""
LAYER_COLOURS = (
    "#6E59D6", "#2C8FA6", "#3E9B8C", "#127E36", "#5F8F1C", "#8A45E0", "#CC6677", "#C3317A", "#AB459A",
    "#6A5FC1", "#5B8C5A", "#A67DC0",
)  # fmt: skip
"""Of the layers that take the most time."""
