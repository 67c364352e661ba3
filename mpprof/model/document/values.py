"""Numbers, codes and intervals as the documents hold them."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from mpprof.model.account import Class

Number = float
Reading = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number that need not be finite. In the schema every number is one: a stored document may hold them."""
Code = Annotated[str, ("pattern", "^MP[0-9]{3}$")]
Count = Annotated[int, ("minimum", 0)]
Interval = Annotated[list[Number], ("minItems", 2), ("maxItems", 2)]
Sentences = Annotated[list[str], ("maxItems", 3)]

Classed = TypedDict("Classed", {"class": Class})  # `class` cannot be an attribute's name

FromTo = TypedDict("FromTo", {"from": Number | None, "to": Number | None})
