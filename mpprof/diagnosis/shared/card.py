"""What a card is called in a sentence."""

from __future__ import annotations

_BRANDS = ("NVIDIA ", "GeForce ", "Tesla ")


def short_name(name: str) -> str:
    """Return a card's name without its brands: "GTX 1080 Ti"."""
    for brand in _BRANDS:
        name = name.removeprefix(brand)
    return name
