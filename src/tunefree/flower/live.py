"""The state of a running federation, written beside its run file every second for `status`."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefree.flower.grid import GridFleet
    from tunefree.flower.nodes import Nodes

EVERY = 1.0  # seconds
WAITING = "waiting for clients"  # the state before the first step


def live_path(run_file: Path) -> Path:
    return run_file.with_name(f"{run_file.name}.live.json")


class Live:
    """Which clients are connected, late or refused, while the ServerApp runs."""

    def __init__(self, run_file: Path) -> None:
        self.nodes: Nodes | None = None
        self.fleet: GridFleet | None = None
        self._path = live_path(run_file)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._every_second, daemon=True)
        self._events: list[tuple[float, str]] = []
        self._before: set[str] = set()

    def __enter__(self) -> Live:
        self._write(WAITING, "")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        why = "" if error is None else f"{error}" or type(error).__name__
        if isinstance(error, SystemExit | KeyboardInterrupt):
            why = "by `flwr stop` or a signal"
        self._write("ended" if error is None else "stopped", why)

    def _every_second(self) -> None:
        while not self._over.wait(EVERY):
            self._write("running" if self.fleet else WAITING, "")

    def _write(self, state: str, why: str) -> None:
        clients = self._clients()
        self._notice({each["name"] for each in clients if each["node"] is not None})
        page = {
            "state": state,
            "why": why,
            "at": time.time(),
            "pid": os.getpid(),
            "clients": clients,
            "refused": {str(n): w for n, w in (self.nodes.refused if self.nodes else {}).items()},
            "events": self._events[-50:],
        }
        new = self._path.with_suffix(".new")
        with suppress(OSError):  # a full disk stops the run file first, which reports it
            new.write_text(json.dumps(page))
            new.replace(self._path)

    def _clients(self) -> list[dict[str, Any]]:
        """From the last time the server asked; this thread sends no requests."""
        if self.nodes is None:
            return []
        there, names = dict(self.nodes.there), list(self.nodes.names)
        numbers = {name: number for number, name in enumerate(names)}
        fleet = self.fleet
        away = "disconnected" if fleet else "not connected yet"
        late, now = dict(fleet.late) if fleet else {}, time.monotonic()
        scores = dict(fleet.by_client) if fleet else {}
        found = []
        for name in dict.fromkeys((*names, *there)):
            client = numbers.get(name)
            state = "connected" if name in there else away
            one: dict[str, Any] = {"client": client, "name": name, "node": there.get(name)}
            if client in late:
                state, one["late"] = "late", round(now - late[client], 1)
            one["state"] = state
            if client in scores:
                one["scores"] = dict(scores[client])
            found.append(one)
        return found

    def _notice(self, there: set[str]) -> None:
        now = time.time()
        self._events += [(now, f"{name} connected") for name in sorted(there - self._before)]
        self._events += [(now, f"{name} disconnected") for name in sorted(self._before - there)]
        self._before = there
