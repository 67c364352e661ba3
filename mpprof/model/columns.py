"""A column of a table: its title, its unit, and how it is shown. `model.rows` has all tables and columns."""

from __future__ import annotations

from typing import Literal

from mpprof.model.frozen import frozen

Unit = Literal["text", "ns", "ratio", "bytes", "count", "flops_per_s", "bytes_per_s", "speedup", "age"]


@frozen
class Column:
    """A column of a table. Its key is the name of the field that it stands at.

    Attributes:
        title: its head in lower case; "": its key in words.
        unit: of its values, which says how they are shown, sorted and compared. Numbers stand at the right.
        optional: it gives way in a narrow terminal, those with 1 first; 0: never.
        sparse: left out of a text where no row has a value.
        grouped: what becomes of the values of several rows that are put together: their sum, their mean (each
            counts by its row's time; none where one is not known), or, "equal", the value that all have (else
            none).
        yes, no: what is shown for a truth value.
        bar: on the page, drawn as a bar behind the number, in the colour of the row's kind.
        dot: on the page, a dot of that colour.
        full: the key of the whole text, where what the page shows is short.
        hint: what the page says of its filter.
    """

    title: str = ""
    unit: Unit = "text"
    optional: int = 0
    sparse: bool = False
    grouped: Literal["sum", "mean", "equal"] = "equal"
    yes: str = ""
    no: str = ""
    bar: bool = False
    dot: bool = False
    full: str = ""
    hint: str = ""
    key: str = ""

    @property
    def number(self) -> bool:
        """Whether its values are numbers."""
        return self.unit != "text"
