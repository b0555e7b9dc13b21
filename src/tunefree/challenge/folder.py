"""The challenge in files: SCALE.json with what was played, and its page and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tunefree.challenge import page, score
from tunefree.challenge.play import Order, Played
from tunefree.challenge.tasks import SCALES, TASKS
from tunefree.errors import ConfigError
from tunefree.experiments import atomic_file
from tunefree.plots import challenge as pictures
from tunefree.plots.challenge import Pair, Profile

Result: TypeAlias = dict[str, Any]

PAIRS = "PolarFL and the best tuned method at the end of every task"
PROFILES = "Performance profiles over the synchronous tasks"
ERRORS = "error at most so many times the least"
ROUNDS = f"rounds with tuning to the best tuned accuracy - {score.CLOSE}, over the least"


def file_of(folder: Path, scale: str) -> Path:
    return folder / f"challenge-{scale}.json"


def read(folder: Path, scale: str) -> Result | None:
    """What was played at a size, if anything was."""
    path = file_of(folder, scale)
    if not path.exists():
        return None
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' is damaged ({error}); move it away and ask again") from error
    return result


def keep(order: Order, played: Sequence[Played]) -> Result:
    """Write tasks in place of the same ones; others that were played before stay."""
    known = read(order.folder, order.scale) or {"tasks": []}
    tasks = {task["task"]: task for task in (*known["tasks"], *played)}
    suite = {task.name: place for place, task in enumerate(TASKS)}
    result: Result = {
        "scale": order.scale,
        "seeds": list(order.of_scores),
        "trials": order.budget,
        "tasks": sorted(tasks.values(), key=lambda task: suite.get(task["task"], len(suite))),
    }
    atomic_file.write(file_of(order.folder, order.scale), json.dumps(result))
    return result


def draw(result: Result, folder: Path) -> dict[str, str]:
    """The pictures of a size beside its results: what each shows, and its file's name."""
    scale, found = result["scale"], score.standings(result["tasks"])
    drawn = {}
    if found:
        pairs = [
            Pair(
                each.task,
                each.held_out,
                (each.ours.accuracy, each.ours.spread),
                (each.best.accuracy, each.best.spread),
                page.title(each.best.method),
            )
            for each in found
        ]
        drawn[PAIRS] = pictures.save_pairs(pairs, folder / f"challenge-{scale}.png").name
    if score.synchronous(result["tasks"]):
        profiles = (
            Profile(score.RATIOS, titled(score.error_profile(result["tasks"])), ERRORS),
            Profile(score.TIMES, titled(score.round_profile(result["tasks"])), ROUNDS, log=True),
        )
        path = folder / f"challenge-profiles-{scale}.png"
        drawn[PROFILES] = pictures.save_profiles(profiles, path).name
    return drawn


def titled(shares: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    return {page.title(name): each for name, each in shares.items()}


def publish(source: Path, file: Path) -> list[Path]:
    """Write the page; results and pictures go into the folder `evidence` beside it."""
    beside = file.parent / "evidence"
    beside.mkdir(parents=True, exist_ok=True)
    for scale in SCALES:
        if result := read(source, scale):
            atomic_file.write(file_of(beside, scale), json.dumps(result))
    results = [found for scale in SCALES[:0:-1] if (found := read(beside, scale))]
    if not results:
        raise ConfigError(
            f"--out '{source}' holds no results that count; play some tasks first, as with "
            "`tunefree challenge digits-short --scale small`"
        )
    drawn = draw(results[0], beside)
    links = {about: f"{beside.name}/{name}" for about, name in drawn.items()}
    file.write_text(page.page(results, links), encoding="utf-8")
    summary = beside / "challenge.md"
    summary.write_text(page.summary(results[0], drawn), encoding="utf-8")
    return [file, summary]
