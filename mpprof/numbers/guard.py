"""Everything of a model that a look could change and `keras.StatelessScope` does not keep, put back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def kept(objects: Iterable[Any], state: Any) -> Iterator[None]:
    """Put back, when the context ends, the attributes of these objects, what the lists, dictionaries and sets
    among them hold, the generators of Python and of NumPy, and `state`, Keras' own of this thread (a seed
    generator for the process is made when it is first asked for).

    Deeper objects are not looked into."""
    attributes = [(vars(each), dict(vars(each)), _contents(vars(each))) for each in objects]
    python, keras = random.getstate(), dict(vars(state))
    numpy = np.random.get_state()  # noqa: NPY002 - it is this one's state that others draw from
    try:
        yield
    finally:
        for current, before, contents in attributes:
            _restore(current, before)
            for container, content in contents:
                _refill(container, content)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        _restore(vars(state), keras)


def _restore(current: dict[str, Any], before: dict[str, Any]) -> None:
    if current.keys() != before.keys() or any(current[name] is not before[name] for name in before):
        current.clear()
        current.update(before)


def _contents(attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return each container among the values with a copy of what it holds."""
    kinds = ((list, list), (dict, dict), (set, set))
    return [
        (value, copy(value))
        for value in attributes.values()
        for kind, copy in kinds
        if isinstance(value, kind)
    ]


def _refill(container: Any, content: Any) -> None:
    """Give a container its content back; through the built-in types, because Keras' own track what is put
    in, and only where something changed."""
    if isinstance(container, list):
        if len(container) != len(content) or any(a is not b for a, b in zip(container, content, strict=True)):
            list.__setitem__(container, slice(None), content)
    elif isinstance(container, dict):
        if container.keys() != content.keys() or any(container[k] is not content[k] for k in content):
            dict.clear(container)
            dict.update(container, content)
    elif len(container) != len(content) or any(each not in container for each in content):
        set.clear(container)
        set.update(container, content)
