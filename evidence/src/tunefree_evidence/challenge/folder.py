"""The challenge in files: challenge-SCALE.json with its results, the page and its pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tunefree.errors import ConfigError
from tunefree_evidence.challenge import page, score
from tunefree_evidence.challenge.runner import Order, Stored
from tunefree_evidence.challenge.tasks import SCALES, TASKS
from tunefree_evidence.figures import challenge as pictures
from tunefree_evidence.figures.challenge import Pair, Profile
from tunefree_evidence.machine import write_whole

Result: TypeAlias = dict[str, Any]

PAIRS = "Final accuracy of PolarFL and of the best tuned method on every task"
PROFILES = "Performance profiles over the synchronous tasks"
ERRORS = "error, as a multiple of the lowest"
ROUNDS = f"rounds with tuning to the best tuned accuracy - {score.CLOSE}, over the fewest"


def file_of(folder: Path, scale: str) -> Path:
    return folder / f"challenge-{scale}.json"


def read(folder: Path, scale: str) -> Result | None:
    """The stored results of a size, if there are any."""
    path = file_of(folder, scale)
    if not path.exists():
        return None
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' is damaged ({error}); move it away and run again") from error
    return result


def save(order: Order, tasks: Sequence[Stored]) -> Result:
    """Store the results of tasks; other tasks and methods that are there stay."""
    known = read(order.folder, order.scale) or {"tasks": []}
    all_tasks = {task["task"]: task for task in known["tasks"]}
    for task in tasks:
        if earlier := all_tasks.get(task["task"]):
            task = merged(earlier, task)
        all_tasks[task["task"]] = task
    suite = {task.name: place for place, task in enumerate(TASKS)}
    result: Result = {
        "scale": order.scale,
        "seeds": list(order.of_scores),
        "trials": order.budget,
        "tasks": sorted(all_tasks.values(), key=lambda task: suite.get(task["task"], len(suite))),
    }
    write_whole(file_of(order.folder, order.scale), json.dumps(result))
    return result


def merged(earlier: Stored, task: Stored) -> Stored:
    """The task with the methods stored earlier, if they ran at the same settings."""
    if task.get("failed"):
        return earlier
    if any(earlier.get(key) != task[key] for key in ("words", "rounds", "seeds", "trials")):
        return task
    methods = {each["method"]: each for each in (*earlier["methods"], *task["methods"])}
    return {**task, "methods": list(methods.values())}


def draw(result: Result, folder: Path) -> dict[str, str]:
    """Draw a size's pictures into a folder: each one's description and file name."""
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
    """Write the page; results and pictures go into the folder `evidence` beside it.

    Sizes that the source does not have are taken from that folder, where they were published.
    """
    beside = file.parent / "evidence"
    beside.mkdir(parents=True, exist_ok=True)
    for scale in SCALES:
        if result := read(source, scale):
            write_whole(file_of(beside, scale), json.dumps(result))
    results = [found for scale in SCALES[:0:-1] if (found := read(beside, scale))]
    if not results:
        raise ConfigError(
            f"--out '{source}' has no results of `small` or `full` size; run some tasks first, as "
            "with `tunefree-evidence challenge digits-short --scale small`"
        )
    drawn = draw(results[0], beside)
    links = {about: f"{beside.name}/{name}" for about, name in drawn.items()}
    file.write_text(page.page(results, links), encoding="utf-8")
    summary = beside / "challenge.md"
    summary.write_text(page.summary(results[0], drawn), encoding="utf-8")
    return [file, summary]
