"""What says of a source file that it is an installed package's or Python's own, and none of the user's."""

from __future__ import annotations

FOLDERS = (
    r"(?:site|dist)-packages|lib/python\d[.\d]*|keras/src|jax/_src|tensorflow/python|optax/_src"
    r"|flax/(?:core|linen|nnx)"
)
"""A pattern of such folders, with slashes between them; frameworks also in a folder of another name."""
