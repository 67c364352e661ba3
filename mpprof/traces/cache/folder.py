"""Where things are kept between runs of mpprof, and whether anything is."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("mpprof")

_off = False
_said: set[str] = set()


@contextmanager
def switched_off() -> Iterator[None]:
    """Hold the cache off: nothing is taken from it or kept in it, in any thread."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def folder() -> Path | None:
    """Return the directory of the cache: MPPROF_CACHE, else the platform's own; None where it is "off", or
    where another user could have put there what is shown as read from a trace."""
    root = None if _off else _chosen()
    if root is not None and (why := _others(root)):
        say(f"nothing is cached: {root} {why}. Set MPPROF_CACHE to another place, or to off")
        return None
    return root


def _others(root: Path) -> str:
    """Return why users other than this one, and whom the directory's group lets, could have written there;
    "" where they could not, or where there is no such directory."""
    try:
        seen = root.stat()
    except (OSError, ValueError):  # said by who makes it
        return ""
    if not (hasattr(os, "geteuid") and stat.S_ISDIR(seen.st_mode)):
        return ""
    if seen.st_uid != os.geteuid():
        return "belongs to another user"
    return "may be written by every user" if seen.st_mode & stat.S_IWOTH else ""


def _chosen() -> Path | None:
    chosen = os.environ.get("MPPROF_CACHE")
    if chosen is not None:
        return None if chosen.lower() in ("", "off", "0") else Path(os.path.expanduser(chosen))
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and a user that the system does not know: a bare container
        say("nothing is cached: this user has no home directory")
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "mpprof"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mpprof" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "mpprof"


def usable_folder() -> Path | None:
    """Return the directory of the cache, created where it does not exist; None where nothing can be written
    to it."""
    root = folder()
    if root is None:
        return None
    import tempfile

    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=root):
            return root
    except OSError as error:
        say_unusable(root, error)
        return None


def folder_for_now() -> Path:
    """Return the directory of the cache, or a temporary one of this process where nothing is kept."""
    root = usable_folder()
    if root is None:
        import atexit
        import shutil
        import tempfile

        root = Path(tempfile.mkdtemp(prefix="mpprof-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def say_unusable(root: Path, error: OSError) -> None:
    say(
        f"nothing is cached: {root} cannot be written ({error.strerror}). "
        "Set MPPROF_CACHE to another place, or to off"
    )


def say(text: str) -> None:
    """Log a warning, each text once in a process."""
    if text not in _said:
        _said.add(text)
        log.warning("mpprof: %s", text)
