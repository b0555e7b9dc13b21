"""The challenge in words: the headline, the table of tasks, and every method on every task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from tunefree import algorithms
from tunefree.challenge import score
from tunefree.challenge.score import Cost, Played, Score, Standing
from tunefree.record.summary import size

Result: TypeAlias = Mapping[str, Any]  # what `tunefree challenge` wrote

COMMAND = "tunefree challenge"
RULES = (
    "Methods that show no knob play once per seed. Every other method first searches its step "
    "sizes, with constant steps and with linear decay, on samples held out of training and with a "
    "seed that is never scored; its best point is then played with the seeds of all. What the "
    "search used up is its bill.",
    "FedExP has a local step of its own and is played untuned, at its default of 0.1.",
    "A task that is held out has data or a network that nothing about PolarFL was chosen on; its "
    "constants were fixed on the development tasks.",
    "The best tuned method of a task is the one with the highest mean accuracy on the test set, "
    "which is chosen in its favour. Ahead or behind means by more than a standard error of the "
    "differences, seed by seed.",
    "Rounds, traffic (both ways, all clients) and seconds to a target count until the first "
    "evaluation that has it in the mean over seeds; there are five or ten evaluations in a run. "
    "Seconds are of one core each, while other runs were going on.",
)


def headline(result: Result) -> str:
    """What holds, in a few lines."""
    found = score.standings(result["tasks"])
    lines = [
        sentence([each for each in found if not each.held_out], "development"),
        sentence([each for each in found if each.held_out], "held-out"),
        bill(found),
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def sentence(found: Sequence[Standing], group: str) -> str:
    if not found:
        return ""
    count = Counter(str(each.word) for each in found)
    gap = fmean(each.ahead for each in found)
    words = ", ".join(
        f"{text} {count[word]}"
        for word, text in (("ahead", "ahead on"), ("level", "level on"), ("behind", "behind on"))
        if count[word]
    )
    behind = [f"{each.task} ({each.ahead:+.3f})" for each in found if each.word == "behind"]
    where = f": {', '.join(behind)}" if behind else ""
    return (
        f"On the {len(found)} {group} tasks PolarFL, untuned, is {words}{where}, against the best "
        f"of all tuned methods on each; mean difference in test accuracy {gap:+.3f}."
    )


def bill(found: Sequence[Standing]) -> str:
    """How much sooner ours is there than the best tuned method, without and with its tuning."""
    there = [each for each in found if each.ours.cost.rounds < math.inf]
    if not there:
        return ""
    bare = [each.best.cost.rounds / each.ours.cost.rounds for each in there]
    whole = [each.best.whole_cost.rounds / each.ours.cost.rounds for each in there]
    return (
        f"It reaches the best tuned method's final accuracy on {len(there)} of {len(found)} tasks. "
        f"On those the tuned method needs {geometric(bare):.1f} times as many rounds, and "
        f"{geometric(whole):.0f} times with its search (geometric means)."
    )


def geometric(values: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def page(results: Sequence[Result], pictures: Mapping[str, str]) -> str:
    """The whole page: every size that was played, the largest first."""
    parts = [
        "# The challenge",
        "Better than tuned, untuned? A fixed suite of tasks, the strongest tuned baselines, and "
        f"their tuning bill. Written by `{COMMAND} page`; do not edit. Play it yourself with "
        f"`{COMMAND} --scale small`, which goes on where it was interrupted; "
        f"`{COMMAND} list` shows the tasks.",
        "## Rules",
        bullets(RULES),
    ]
    for result in results:
        parts += section(result, pictures)
    parts += ["## Add your own", OWN]
    return "\n\n".join(parts) + "\n"


def summary(result: Result, pictures: Mapping[str, str]) -> str:
    """The challenge in short, for the page of all evidence."""
    parts = [
        f"At `{result['scale']}` size, seeds {', '.join(map(str, result['seeds']))}:",
        headline(result),
        *(f"![{about}](evidence/{name})" for about, name in pictures.items()),
        "[The challenge](challenge.md) has the rules, every method on every task, and the bills.",
    ]
    return "\n\n".join(parts) + "\n"


OWN = """A method of your own plays beside the others, alone if they have been played:

```
tunefree challenge --add mypackage.mymodule:MyMethod
```

One that declares a grid (`about.grid`) is tuned like the others. A task of your own is a settings
file as for `tunefree run`:

```
tunefree challenge hospital.toml
```"""


def section(result: Result, pictures: Mapping[str, str]) -> list[str]:
    """One size: headline, pictures, the table of tasks, and all numbers."""
    tasks = [task for task in result["tasks"] if score.is_played(task)]
    parts = [
        f"## Results at `{result['scale']}` size",
        headline(result),
        f"Seeds {', '.join(map(str, result['seeds']))}; at most {result['trials']} trials for "
        "each tuned method on each task.",
        *(f"![{about}]({path})" for about, path in pictures.items()),
        overview(score.standings(tasks)),
    ]
    for failed in (task for task in result["tasks"] if task.get("failed")):
        parts.append(f"{failed['task']} was not played: {failed['failed']}")
    for task in tasks:
        parts += [f"### {task['task']}", about_task(task), methods_table(task)]
    return parts


def overview(found: Sequence[Standing]) -> str:
    """Each task in a row: ours, the best tuned method, and what either took to get there."""
    head = ("task", "", "PolarFL", "best tuned", "", "difference", "")
    costs = ("rounds to its accuracy: PolarFL", "tuned", "tuned with its search")
    lines = (
        (
            each.task,
            "held out" if each.held_out else "",
            accuracy(each.ours),
            accuracy(each.best),
            title(each.best.method),
            f"{each.ahead:+.3f} ± {each.error:.3f}",
            each.word,
            rounds(each.ours.cost),
            rounds(each.best.cost),
            rounds(each.best.whole_cost),
        )
        for each in found
    )
    return table((*head, *costs), lines)


def about_task(task: Played) -> str:
    held = "Held out. " if task["held_out"] else ""
    begins = f" It starts at accuracy {task['start']:.3f}." if "trained" in task["words"] else ""
    return f"{held}{task['words']}.{begins} Target: {score.target_of(task):.3f}."


def methods_table(task: Played) -> str:
    head = (
        *("method", "accuracy", "trials", "chosen"),
        *("rounds to target", "with search", "traffic to target", "with search"),
        *("seconds to target", "with search"),
    )
    chosen = [method["chosen"] for method in task["methods"]]
    lines = [
        (
            title(each.method),
            accuracy(each),
            str(each.trials) if each.tuned else "no knob",
            ", ".join(f"{key} {value}" for key, value in own.items()),
            *(rounds(each.cost), rounds(each.whole_cost)),
            *(traffic(each.cost), traffic(each.whole_cost)),
            *(seconds(each.cost), seconds(each.whole_cost)),
        )
        for each, own in zip(score.scores(task), chosen, strict=True)
    ]
    return table(head, lines)


def title(method: str) -> str:
    """A method's name with what was written beside it.

    >>> title("polarfl:compressor=rotated:1"), title("fedavg")
    ('PolarFL, compressor=rotated:1', 'FedAvg')
    """
    name, _, own = method.partition(":")
    if name not in algorithms.REGISTRY:
        return method
    known: str = algorithms.REGISTRY[name].about.title
    return f"{known}, {own}" if own else known


def accuracy(each: Score) -> str:
    lost = f", {each.diverged} diverged" if each.diverged else ""
    return f"{each.accuracy:.3f} ± {each.spread:.3f}{lost}"


def rounds(cost: Cost) -> str:
    return "never" if cost.rounds == math.inf else f"{cost.rounds:,.0f}"


def traffic(cost: Cost) -> str:
    return "never" if cost.bits == math.inf else size(cost.bits)


def seconds(cost: Cost) -> str:
    return "never" if cost.seconds == math.inf else f"{cost.seconds:.1f}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
