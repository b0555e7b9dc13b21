"""The challenge as a page: the headline, a table of tasks, and every method on every task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from tunefree.errors import ConfigError
from tunefree.record import size
from tunefree.search import MethodSpec
from tunefree_evidence.challenge import score
from tunefree_evidence.challenge.score import Cost, Score, Standing, Stored

Result: TypeAlias = Mapping[str, Any]  # what `tunefree-evidence challenge` wrote

COMMAND = "tunefree-evidence challenge"
AGAINST = {"ahead": "ahead of", "level": "level with", "behind": "behind"}
RULES = (
    "Untuned methods run once per seed. Every other method first searches its step sizes, with "
    "constant steps and with linear decay, on held-out training samples and with a seed that is "
    "never scored; its best point then runs with the same seeds as all methods. The rounds, "
    "traffic and seconds of the search are its tuning bill.",
    "FedExP has a local step size; it runs untuned, at its default of 0.1.",
    "A held-out task has data or a network on which nothing about PolarFL was chosen; PolarFL's "
    "constants were fixed on the development tasks.",
    "The best tuned method of a task is the one with the highest mean accuracy on the test set: a "
    "choice in its favour. PolarFL is ahead or behind if the mean difference over seeds exceeds "
    "its standard error, else level.",
    "Rounds, traffic (up and down, all clients) and seconds to a target count until the first "
    "evaluation at which the mean over seeds reaches it; a run has five or ten evaluations. "
    "Seconds are of one core, with other runs beside it.",
    "No rival has a Muon step or an adaptive client yet: in a sketch of three seeds, the best of a "
    "few settings chosen on seed 0's test set, a server with tuned Muon steps ended at 0.858, "
    "0.843 and 0.755 on skewed Fashion-MNIST, EMNIST and IMDB, where PolarFL had 0.861, 0.841 and "
    "0.755: level, not ahead.",
    "PolarFL's numbers are those of its previous rule, before [these changes]"
    "(../cards/polarfl.md#what-unknown-clients-and-the-longer-path-brought).",
)


def headline(result: Result) -> str:
    """The result in a few lines."""
    found = score.standings(result["tasks"])
    lines = [
        sentence([each for each in found if not each.held_out], "development"),
        sentence([each for each in found if each.held_out], "held-out"),
        rounds_line(found),
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def sentence(found: Sequence[Standing], group: str) -> str:
    if not found:
        return ""
    count = Counter(str(each.word) for each in found)
    gap = fmean(each.ahead for each in found)
    first, *others = (word for word in AGAINST if count[word])
    words = [f"{AGAINST[first]} the best tuned method on {count[first]}"]
    words += [f"{word} on {count[word]}" for word in others]
    behind = [f"{each.task} {each.ahead:+.3f}" for each in found if each.word == "behind"]
    where = f" ({', '.join(behind)})" if behind else ""
    return (
        f"On the {len(found)} {group} tasks PolarFL, untuned, is {listed(words)}{where}; mean "
        f"difference in test accuracy {gap:+.3f}."
    )


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def rounds_line(found: Sequence[Standing]) -> str:
    """How many more rounds the best tuned method needs, without and with its tuning bill."""
    there = [each for each in found if each.ours.cost.rounds < math.inf]
    if not there:
        return ""
    alone = [each.best.cost.rounds / each.ours.cost.rounds for each in there]
    whole = [each.best.whole_cost.rounds / each.ours.cost.rounds for each in there]
    return (
        f"At some point of its run PolarFL has the best tuned method's final accuracy on "
        f"{len(there)} of {len(found)} tasks. To get there the tuned method needs "
        f"{geometric(alone):.1f} times as many rounds, and {geometric(whole):.0f} times as many "
        "with its search (geometric means)."
    )


def geometric(values: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def page(results: Sequence[Result], pictures: Mapping[str, str]) -> str:
    """The whole page: every size that was run, the largest first."""
    parts = [
        "# The challenge",
        "Is PolarFL, untuned, better than tuned methods? A fixed suite of tasks, strong tuned "
        f"baselines, and their tuning bills. Run it yourself with `{COMMAND} --scale small`, which "
        f"resumes if interrupted; `{COMMAND} list` shows the tasks. `{COMMAND} page` writes this "
        "page from the results in `evidence/`; do not edit it.",
        "## Rules",
        bullets(RULES),
    ]
    for result in results:
        parts += section(result, pictures)
    parts += ["## Add your own", OWN]
    return "\n\n".join(parts) + "\n"


def summary(result: Result, pictures: Mapping[str, str]) -> str:
    """The challenge in short, for the page of evidence."""
    parts = [
        f"At `{result['scale']}` size, seeds {', '.join(map(str, result['seeds']))}:",
        headline(result),
        *(f"![{about}](evidence/{name})" for about, name in pictures.items()),
        "[The challenge](challenge.md) has the rules, every method on every task, and the tuning "
        "bills.",
    ]
    return "\n\n".join(parts) + "\n"


OWN = """Your own method runs beside the others; those that have run already are not run again:

```
tunefree-evidence challenge --add mypackage.mymodule:MyMethod
```

A method that declares a grid (`about.grid`) is tuned like the others; one without runs untuned, as
it is. Your own task is a settings file as for `tunefree run`, for example `hospital.toml`:

```
data = "breast-cancer"
partition = "dirichlet:0.3"
batch_size = 8
clients = 10
per_round = 4
local_steps = 5
rounds = 40
```

All methods run on it:

```
tunefree-evidence challenge hospital.toml
```"""


def section(result: Result, pictures: Mapping[str, str]) -> list[str]:
    """One size: headline, pictures, the table of tasks, and all numbers."""
    tasks = [task for task in result["tasks"] if score.is_comparable(task)]
    parts = [
        f"## Results at `{result['scale']}` size",
        headline(result),
        f"Seeds {', '.join(map(str, result['seeds']))}; at most {result['trials']} trials for "
        "each tuned method on each task.",
        *(f"![{about}]({path})" for about, path in pictures.items()),
        overview(score.standings(tasks)),
    ]
    for failed in (task for task in result["tasks"] if task.get("failed")):
        parts.append(f"{failed['task']} was not run: {failed['failed']}")
    for task in tasks:
        parts += [f"### {task['task']}", about_task(task), methods_table(task)]
    return parts


def overview(found: Sequence[Standing]) -> str:
    """A row for each task: PolarFL, the best tuned method, and the rounds of both."""
    head = ("task", "", "PolarFL", "best tuned", "method", "difference", "PolarFL is")
    costs = ("rounds to target: PolarFL", "best tuned", "best tuned with search")
    lines = (
        (
            each.task,
            "held-out" if each.held_out else "",
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


def about_task(task: Stored) -> str:
    group = "Held-out task: " if task["held_out"] else ""
    start = f" The start has accuracy {task['start']:.3f}." if "trained" in task["words"] else ""
    target = f"Target (the best tuned accuracy): {score.target_of(task):.3f}."
    return f"{group}{task['words']}.{start} {target}"


def methods_table(task: Stored) -> str:
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
            str(each.trials) if each.tuned else "untuned",
            ", ".join(f"{key} {value}" for key, value in own.items()),
            *(rounds(each.cost), rounds(each.whole_cost)),
            *(traffic(each.cost), traffic(each.whole_cost)),
            *(seconds(each.cost), seconds(each.whole_cost)),
        )
        for each, own in zip(score.scores(task), chosen, strict=True)
    ]
    return table(head, lines)


def title(method: str) -> str:
    """A method's title with the options it was given.

    >>> title("polarfl:compressor=rotated:1"), title("fedavg")
    ('PolarFL, compressor=rotated:1', 'FedAvg')
    """
    name, _, own = method.partition(":")
    try:
        known = MethodSpec(name).about.title
    except ConfigError:  # a user's own, which is not here
        return method
    return f"{known}, {own}" if own else known


def accuracy(each: Score) -> str:
    diverged = f", {each.diverged} diverged" if each.diverged else ""
    return f"{each.accuracy:.3f} ± {each.spread:.3f}{diverged}"


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
