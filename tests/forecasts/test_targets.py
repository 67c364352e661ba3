"""Cards that can be described, and those that cannot."""

from __future__ import annotations

import re

import pytest

from mpprof.errors import NotFoundError, UsageError
from mpprof.forecasts import targets

FIELDS = """
    threads_per_block_limit threads_per_warp shared_memory_per_block shared_memory_per_core
    shared_memory_per_block_optin threads_per_core_limit core_count fpus_per_core block_dim_limit_x
    block_dim_limit_y block_dim_limit_z thread_dim_limit_x thread_dim_limit_y thread_dim_limit_z
    registers_per_core_limit registers_per_block_limit memory_bandwidth l2_cache_size clock_rate_ghz
    device_memory_size
"""


@pytest.mark.parametrize("card", targets.cards(), ids=lambda card: card.name)
def test_every_field_of_a_card_is_stated_and_above_zero(card: targets.Card) -> None:
    stated = dict(re.findall(r"(\w+): ([\d.]+)", targets.description(card)))
    for field in FIELDS.split():
        assert float(stated[field]) > 0, field


def test_each_architecture_has_a_card() -> None:
    assert {card.compute_capability for card in targets.cards()} == set(targets.ARCHITECTURES)


@pytest.mark.parametrize(
    ("name", "full", "gib"),
    [("v100", "Tesla V100-SXM2-16GB", 16), ("V100 32GB", "Tesla V100-SXM2-32GB", 32),
     ("a100", "NVIDIA A100-SXM4-40GB", 40), ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 80),
     ("h100", "NVIDIA H100 80GB HBM3", 80)],
)  # fmt: skip
def test_a_card_by_its_short_name_or_its_own(name: str, full: str, gib: int) -> None:
    card = targets.card(name)
    assert (card.name, card.memory_bytes >> 30) == (full, gib)


def test_an_unknown_card_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r"h900.*nearest first.*H100"):
        targets.card("h900")


@pytest.mark.parametrize(
    ("name", "why"),
    [("mi300x", "NVIDIA"), ("k80", "compute capability 3.7"), ("v100 64GB", "no variant of 64 GB")],
)
def test_a_card_that_cannot_be_described_says_why(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        targets.card(name)
