"""The status of a running federation: who is connected, the round, and the time left."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError
from tunefree.flower.live import EVERY, WAITING, live_path
from tunefree.record import Record, is_locked

STALE = 10.0  # seconds after which a live page counts as out of date
MISSED = 3  # writes of a live page that its server, if nobody writes the run file, has missed
LAST = 10  # rounds that the time of a round is averaged over, and whose absences are shown

MOST = 10  # absences that are shown


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


def status(run_file: Path) -> dict[str, Any]:
    """What is in the run file and in the live page beside it."""
    page: dict[str, Any] = {"state": "unknown", "why": "", "clients": [], "events": []}
    live = live_path(run_file)
    if live.exists():
        try:
            page |= dict(json.loads(live.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            page["why"] = f"'{live.name}' cannot be read"
    alive = page["state"] in ("running", WAITING)
    age = time.time() - page.get("at", 0.0)
    if alive and age > STALE:
        page |= {"state": "silent", "why": f"its server has written nothing for {STALE:.0f} s"}
        alive = False
    elif alive and age > MISSED * EVERY and run_file.exists() and not is_locked(run_file):
        page |= {"state": "silent", "why": "its server no longer runs"}
        alive = False
    if not alive:  # who is connected now is not known
        page["clients"] = [{**one, "state": f"was {one['state']}"} for one in page["clients"]]
    found: dict[str, Any] = {"run_file": str(run_file), **page, "round": 0, "rounds": None}
    if not run_file.exists():
        return found
    with closing(Record.open(run_file)) as record:
        facts, rows, absent = record.facts(), record.history(), record.absences()
        state = "running" if alive else record.state
    T = facts.system.get("T")
    found |= {"rounds": T, "run_state": state, "algorithm": facts.algorithm}
    recent = rows[-1]["t"] - LAST if rows else 0
    found["absent"] = [
        {"round": t + 1, "client": client, "why": why}
        for t, _, client, why in absent[-MOST:]
        if t > recent
    ]
    if rows:
        last, before = rows[-1], rows[max(0, len(rows) - 1 - LAST)]
        rounds = int(last["t"] - before["t"])
        each = (last["seconds"] - before["seconds"]) / rounds if rounds else None
        done = int(last["t"]) + 1
        found |= {"round": done, "seconds_per_round": each}
        left = None if each is None or T is None else each * (T - done)
        found["seconds_left"] = left if page["state"] == "running" else None
        found |= {"heard": last["clients"]}
        found |= {kind: last[kind] for kind in ("bits_up", "bits_down")}
        names = ("accuracy", "loss", "train_accuracy", "train_accuracy_worst", "train_loss")
        for name in names:
            scored = [row[name] for row in rows if name in row]
            if scored:
                found[name] = scored[-1]
    return found
