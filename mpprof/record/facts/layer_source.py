"""How a layer would be written in the user's script: its constructor's arguments, as Python source.

Only what differs from the defaults is written, so that a line with one argument changed can replace the
user's own. Nothing is constructed for it: a layer made only to be compared would take names and random seeds
from the training.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from mpprof.record.run_with_timeout import raise_if_signalled

Json = Mapping[str, Any]

KEYWORDS = frozenset({"name", "zero_output_for_mask"})
"""What layers take without stating it in their signature, and what of it is worth writing."""
NOT_WRITTEN = frozenset({"trainable", "dtype", "quantization_config", "implementation"})
"""Keys of `get_config` that are no arguments of a new layer, or are written by who asks (`dtype`)."""

_MOST_CHARACTERS = 400


def arguments(layer: Any) -> dict[str, str]:
    """Return {argument: Python source} of what the layer was given beyond its defaults, its name always; a
    layer inside a wrapper is left to `...`. Empty where it has no `get_config` of its own."""
    try:
        config = layer.get_config()
    except Exception as error:  # noqa: BLE001 - Keras raises many kinds for layers that state no config
        raise_if_signalled(error)
        return {}
    if not isinstance(config, dict):
        return {}
    written = _given(type(layer).__init__, config)
    if getattr(layer, "use_cudnn", "auto") != "auto":  # which Keras does not serialise
        written["use_cudnn"] = repr(layer.use_cudnn)
    return written


def _given(constructor: Callable[..., Any], config: Json) -> dict[str, str]:
    defaults = {name: one.default for name, one in inspect.signature(constructor).parameters.items()}
    return {
        name: source(value)
        for name, value in config.items()
        if name not in NOT_WRITTEN
        and (name in defaults or (name in KEYWORDS and value))
        and value is not None
        and not _is_default(name, value, defaults.get(name, _NONE))
    }


_NONE = inspect.Parameter.empty


def _is_default(name: str, value: Any, default: Any) -> bool:
    if default is _NONE:
        return False
    if name == "data_format" and default is None:
        return bool(value == "channels_last")  # as Keras' own configuration has it, nearly always
    if isinstance(value, Mapping) and isinstance(default, str):
        named = _plain(str(value.get("class_name", ""))) == _plain(default)
        return named and not _given_object(value)
    if value == "linear" and default is None:
        return True  # what Keras makes of no activation
    same: bool = value == default or (isinstance(value, tuple | list) and _repeats(value, default))
    return same


def _repeats(value: Any, default: Any) -> bool:
    """Return whether a value repeats its default: `(1, 1)` where the default is 1, because Keras writes it
    out per axis."""
    return isinstance(default, int) and all(one == default for one in value)


def _plain(name: str) -> str:
    return re.sub(r"_|initializer$", "", name.lower())


def _given_object(value: Json) -> dict[str, str]:
    """Return the arguments of a serialised object that are not its defaults."""
    kind, config = _class_of(value), value.get("config")
    if not isinstance(config, Mapping):
        return {}
    if kind is None:
        return {name: source(one) for name, one in config.items() if one is not None}
    return _given(kind.__init__, config)


def _class_of(value: Json) -> Any:
    import importlib
    import sys

    package, _, rest = str(value.get("module") or "").partition(".")
    found: Any = sys.modules.get(package)
    for part in (*filter(None, rest.split(".")), str(value.get("class_name"))):
        found = getattr(found, part, None)
    if found is None and package and value.get("module") in sys.modules:
        found = getattr(importlib.import_module(str(value["module"])), str(value.get("class_name")), None)
    return found if inspect.isclass(found) else None


def source(value: Any) -> str:
    """Return the Python source of a value as `get_config` gives it; `...` for what cannot be written in a
    line."""
    if isinstance(value, Mapping) and "class_name" in value:
        if value["class_name"] == "function":
            return repr(value["config"]) if isinstance(value.get("config"), str) else "..."
        inside = ", ".join(f"{name}={text}" for name, text in _given_object(value).items())
        text = f"{_module(value)}{value['class_name']}({inside})"
    elif isinstance(value, tuple | list):
        inside = ", ".join(source(one) for one in value)
        text = f"({inside}{',' if len(value) == 1 else ''})" if isinstance(value, tuple) else f"[{inside}]"
    elif value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
    else:
        text = "..."
    return text if len(text) <= _MOST_CHARACTERS else "..."


def _module(value: Json) -> str:
    module = value.get("module")
    return f"{module}." if module and not value.get("registered_name") else ""
