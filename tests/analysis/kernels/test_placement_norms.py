"""Which layers are norms by their names alone."""

from __future__ import annotations

import re

import pytest

from mpprof.analysis.kernels import placement


@pytest.mark.parametrize(
    ("name", "is_norm"),
    [
        ("layer_normalization_3", True), ("bn", True), ("conv1_bn", True), ("ln_f", True), ("ln_1", True),
        ("norm1", True), ("attention_norm", True), ("LayerNorm_0", True), ("normalization", False),
        ("normalizer", False), ("dense_norms_up", False), ("kiln", False),
    ],
)  # fmt: skip
def test_a_norm_is_told_by_its_name_where_no_layers_are_recorded(name: str, *, is_norm: bool) -> None:
    assert bool(re.search(placement._NAMED, name)) == is_norm
