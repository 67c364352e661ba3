"""Lines of text for a terminal: wrapped to its width, coloured where asked for."""

from __future__ import annotations

import re
import textwrap

from mpprof.model.report import Time
from mpprof.report import units, words

MIN_WIDTH = 68
_COLOURS = {"bold": "1", "dim": "2", "error": "1;31", "warning": "1;33", "info": "1;36"}

# A number and its unit stay on one line, and so does a path that is quoted for a shell.
_TOGETHER = re.compile(r"(?<=\d) (?=(?:%|s|ms|µs|ns|[KMGT]iB|bytes?)(?![\w-]))|(?<=\s)'[^']*/[^']*'(?!\S)")


def wrapped(text: str, width: int, *, indent: int = 0, hang: int = 0) -> list[str]:
    """Return `text` in lines of at most `width` columns; those after the first start `hang` further in."""
    pad = " " * indent
    lines = textwrap.wrap(
        _TOGETHER.sub(lambda match: match[0].replace(" ", "\xa0"), words.plain(text)),
        width,
        initial_indent=pad,
        subsequent_indent=pad + " " * hang,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


class Lines:
    """Lines of text with an indent, wrapped to a width; colour goes on after wrapping. `time`: of the report,
    for what its "step" is called."""

    def __init__(self, *, color: bool, width: int, time: Time | None = None) -> None:
        self.width = max(MIN_WIDTH, width)
        self._color = color
        self._time = time
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self._color and text else text

    def heading(self, text: str) -> None:
        self.lines.append("")
        self.paragraph(text, style="bold")

    def paragraph(
        self, text: str, *, indent: int = 0, hang: int = 0, label: str = "", style: str = ""
    ) -> None:
        """Add `text` behind a `label`; lines after the first start `hang` further in than the label."""
        said = units.worded(f"{label}{text}", self._time)
        lines = wrapped(said, self.width, indent=indent, hang=hang)
        self.lines += [self.paint(line, style) if style else line for line in lines]

    def row(self, text: str, style: str = "") -> None:
        text = units.worded(text.rstrip(), self._time)
        self.lines.append(self.paint(text, style) if style else text)

    def text(self, *, ascii_only: bool) -> str:
        text = "\n".join(self.lines).strip("\n") + "\n"
        # Colour codes are ASCII themselves; the translation leaves them alone.
        if not ascii_only:
            return text
        return "".join(f"{line.rstrip()}\n" for line in words.ascii_only(text).splitlines())
