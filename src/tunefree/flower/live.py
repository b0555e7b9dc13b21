"""The state of a running federation, written beside its run file every second for `status`."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefree.flower.federation import Federation

EVERY = 1.0  # seconds
WAITING = "waiting for clients"  # the state before the first step


def live_path(run_file: Path) -> Path:
    return run_file.with_name(f"{run_file.name}.live.json")


class Live:
    """Which clients are connected, late or refused, while the ServerApp runs."""

    def __init__(self, run_file: Path) -> None:
        self._federation: Federation | None = None
        self._path = live_path(run_file)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._every_second, daemon=True)
        self._events: list[tuple[float, str]] = []
        self._before: set[str] = set()

    def watch(self, federation: Federation) -> None:
        self._federation = federation

    def __enter__(self) -> Live:
        self.write()
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
        self.write("ended" if error is None else "stopped", why)

    def _every_second(self) -> None:
        while not self._over.wait(EVERY):
            self.write()

    def write(self, state: str = "", why: str = "") -> None:
        """Write the page; without a state, that of a federation that waits or runs."""
        federation = self._federation
        clients = list(clients_of(federation)) if federation else []
        self._notice({each["name"] for each in clients if each["node"] is not None})
        refused = dict(federation.nodes.refused) if federation else {}
        page = {
            "state": state or (WAITING if federation is None or federation.waiting else "running"),
            "why": why,
            "at": time.time(),
            "pid": os.getpid(),
            "clients": clients,
            "refused": {str(node): reason for node, reason in refused.items()},
            "events": self._events[-50:],
        }
        new = self._path.with_suffix(".new")
        with suppress(OSError):  # a full disk stops the run file first, which reports it
            new.write_text(json.dumps(page))
            new.replace(self._path)

    def _notice(self, there: set[str]) -> None:
        now = time.time()
        self._events += [(now, f"{name} connected") for name in sorted(there - self._before)]
        self._events += [(now, f"{name} disconnected") for name in sorted(self._before - there)]
        self._before = there


def clients_of(federation: Federation) -> Iterator[dict[str, Any]]:
    """Every client as of the last time that the server asked; nothing is sent."""
    nodes, fleet = federation.nodes, federation.fleet
    there, late, scores = dict(nodes.there), fleet.late, dict(fleet.by_client)
    numbers = {name: number for number, name in enumerate(list(nodes.names))}
    away = "not connected yet" if federation.waiting else "disconnected"
    for name in dict.fromkeys((*numbers, *there)):
        client = numbers.get(name)
        one: dict[str, Any] = {"client": client, "name": name, "node": there.get(name)}
        one["state"] = "connected" if name in there else away
        if client in late:
            one |= {"state": "late", "late": round(time.monotonic() - late[client], 1)}
        if client in scores:
            one["scores"] = dict(scores[client])
        yield one
