"""The state of a running federation: written beside its run file every second, and read again."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tunefree.errors import ConfigError, TunefreeError
from tunefree.record import Record, is_locked, size
from tunefree.record.evidence import outliers

if TYPE_CHECKING:
    from tunefree.flower.federation import Federation

EVERY = 1.0  # seconds between two writes of a live page
WAITING = "waiting for clients"  # the state before the first step
ALIVE = ("running", WAITING)
STALE = 10.0  # seconds after which a live page counts as out of date
MISSED = 3  # writes of a live page that its server, if nobody writes the run file, has missed
FULL = 50_000_000  # bytes; a disk with less free space counts as full
LAST = 10  # rounds that the time of a round is averaged over, and whose absences are shown
MOST = 10  # absences that are shown
SCORES = ("accuracy", "loss", "train_accuracy", "train_accuracy_worst", "train_loss")


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


def find(place: Path) -> Path:
    """The run file: given, or the one that was written last below a folder."""
    if place.is_file():
        return place
    found = [page for depth in ("*", "*/*") for page in place.glob(f"{depth}.live.json")]
    if not found:
        raise ConfigError(
            f"'{place}' is not a run file, and no run of a federation was found below it; give the "
            "run file, or the folder of `tunefree flower up` or of the SuperLink"
        )
    newest = max(found, key=lambda page: page.stat().st_mtime)
    return newest.with_name(newest.name.removesuffix(".live.json"))


@contextmanager
def readable(place: Path) -> Iterator[None]:
    """Turn what a damaged live page or run file causes into one sentence."""
    try:
        yield
    except TunefreeError:
        raise
    except OSError as error:
        raise ConfigError(f"'{place}' cannot be read ({error.strerror})") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ConfigError(
            f"the status of '{place}' is damaged ({type(error).__name__}: {error}); a run that is "
            "resumed writes it anew"
        ) from error


def status(run_file: Path) -> dict[str, Any]:
    """What is in the run file and in the live page beside it."""
    page = live_page(run_file)
    found: dict[str, Any] = {"run_file": str(run_file), **page, "round": 0, "rounds": None}
    if run_file.exists():
        found |= progress(run_file, page["state"])
    found["disk_free"] = shutil.disk_usage(run_file.parent).free
    found["problems"] = [*problems(run_file, found)]
    return {**found, "ok": page["state"] in (*ALIVE, "ended") and not found["problems"]}


def problems(run_file: Path, found: dict[str, Any]) -> Iterator[str]:
    """What an operator must repair although the server may still be there."""
    if found["disk_free"] < FULL:
        free = size(8 * found["disk_free"])
        yield f"the disk of '{run_file.absolute().parent}' is full ({free} free); free some space"
    there = [one for one in found["clients"] if one["node"] is not None]
    if found["state"] == "running" and not there:
        yield "no client is connected; see the nodes' logs"


def live_page(run_file: Path) -> dict[str, Any]:
    """The live page of a run; "silent" if its server no longer writes it."""
    page: dict[str, Any] = {"state": "unknown", "why": "", "clients": [], "events": []}
    live = live_path(run_file)
    if live.exists():
        try:
            page |= dict(json.loads(live.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            page["why"] = f"'{live.name}' cannot be read"
    age = time.time() - page.get("at", 0.0)
    if page["state"] in ALIVE:
        if age > STALE:
            page |= {"state": "silent", "why": f"its server has written nothing for {STALE:.0f} s"}
        elif age > MISSED * EVERY and run_file.exists() and not is_locked(run_file):
            page |= {"state": "silent", "why": "its server no longer runs"}
    if page["state"] not in ALIVE:  # who is connected now is not known
        page["clients"] = [{**one, "state": f"was {one['state']}"} for one in page["clients"]]
    return page


def progress(run_file: Path, state: str) -> dict[str, Any]:
    """The last rounds in a run file; `state` is its live page's."""
    with closing(Record.open(run_file)) as record:
        facts, rows, absent = record.facts(), record.history(), record.absences()
        out, evidence = record.quarantined(), record.clients()
        run_state = "running" if state in ALIVE else record.state
        private = {}
        if facts.privacy:
            from tunefree.flower.private import left_over  # which imports torch

            private = {"privacy": left_over(record)}
    T, recent = facts.system.get("T"), rows[-1]["t"] - LAST if rows else 0
    missed = [
        {"round": t + 1, "client": client, "why": why}
        for t, _, client, why in absent[-MOST:]
        if t > recent
    ]
    found = {
        "rounds": T,
        "run_state": run_state,
        "algorithm": facts.algorithm,
        "absent": missed,
        "quarantined": out,
        **private,
        "outliers": outliers(evidence),
        "evidence": [each._asdict() for each in evidence],
    }
    if not rows:
        return found
    last, before = rows[-1], rows[max(0, len(rows) - 1 - LAST)]
    rounds, done = int(last["t"] - before["t"]), int(last["t"]) + 1
    each = (last["seconds"] - before["seconds"]) / rounds if rounds else None
    left = each * (T - done) if each is not None and T is not None else None
    return {
        **found,
        **{name: row[name] for row in rows for name in SCORES if name in row},
        **{kind: last[kind] for kind in ("bits_up", "bits_down")},
        "heard": last["clients"],
        "round": done,
        "seconds_per_round": each,
        "seconds_left": left if state == "running" else None,
    }
