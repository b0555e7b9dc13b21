"""How long to wait before polling again: briefly after news, longer the longer there is none."""

from __future__ import annotations

import time

SHORTEST, LONGEST = 0.05, 2.0  # seconds
GROWTH = 1.3


class Pace:
    """The pauses between two polls.

    News tend to come at regular intervals, so the first pause is half of the last interval.
    """

    def __init__(self, longest: float | None = None) -> None:
        self._longest = LONGEST if longest is None else longest
        self._since = time.monotonic()
        self._next = SHORTEST

    def news(self) -> None:
        """A poll found something."""
        now = time.monotonic()
        usual = (now - self._since) / 2
        self._since, self._next = now, min(max(SHORTEST, usual), self._longest)

    def pause(self) -> float:
        """Seconds to wait now."""
        pause = self._next
        late = time.monotonic() - self._since  # to be late by a tenth of the wait costs little
        self._next = min(max(SHORTEST, late / 10), pause * GROWTH, self._longest)
        return pause

    def rest(self, news: object) -> None:
        """Wait until the next poll; not at all if this one found something."""
        if news:
            self.news()
        else:
            time.sleep(self.pause())
