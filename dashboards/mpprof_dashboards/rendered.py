"""Pages as they were drawn, kept until something that they show changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from threading import Lock, Thread, Timer
from typing import Any

from plotly.io.json import to_json_plotly

from mpprof.errors import MpprofError
from mpprof.shared_results import SharedResults

MOST_PAGES = 256
MOST_CHARACTERS = 32 << 20
"""Of all pages that are kept, as JSON; one has 10 to 400 thousand."""


SPARE_S = 1.0
"""After a page was asked for: then its own requests have been answered."""


class Rendered:
    """What pages were drawn as, by what was looked at; the least recently asked for is dropped first."""

    def __init__(self) -> None:
        self._kept: SharedResults[Hashable, str] = SharedResults(MOST_PAGES, len, MOST_CHARACTERS)
        self._ahead = Lock()
        self._spare = Timer(0.0, str)

    def ahead(self, draw: Callable[[], object]) -> None:
        """Call `draw`, which gets a page, beside what goes on; one at a time, what comes meanwhile is not."""
        if self._ahead.acquire(blocking=False):
            Thread(target=self._draw, args=(draw,), daemon=True).start()

    def in_spare_time(self, draw: Callable[[], object]) -> None:
        """Call `draw`, which gets pages, once nothing was asked for in `SPARE_S`; a call that has not begun
        by then gives way to the next."""
        self._spare.cancel()
        self._spare = Timer(SPARE_S, self.ahead, (draw,))
        self._spare.daemon = True
        self._spare.start()

    def _draw(self, draw: Callable[[], object]) -> None:
        try:
            draw()
        except MpprofError:
            pass  # the page says it when it is asked for
        finally:
            self._ahead.release()

    def get(self, key: Hashable, version: Hashable, make: Callable[[], Any]) -> Any:
        """Return the page `key` at `version` as plain data; what `make` raises is passed on and not kept. A
        caller that asks for a page in the making waits for it."""
        return json.loads(self._kept.get(key, version, lambda: str(to_json_plotly(make()))))
