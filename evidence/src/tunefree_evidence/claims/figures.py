"""The papers' figures as panels, one for each setting or law that was run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean

from tunefree.record import Row
from tunefree.search import parse_method
from tunefree_evidence.claims import recipes
from tunefree_evidence.claims.checks import Curve, Table, late_score
from tunefree_evidence.claims.sizes import title
from tunefree_evidence.claims.theory import Measurement
from tunefree_evidence.figures.panels import Panel, Points


def by_round(table: Table, scale: recipes.Scale, y: str = "accuracy", x: str = "t") -> list[Panel]:
    """A score of every method as it trains; `x` may be the bits sent."""
    words = {"t": "rounds", "bits_up": "MB sent up by all clients"}
    panels: dict[str, dict[str, Mapping[int, Curve]]] = {}
    for (where, method), curves in table.items():
        if not recipes.swept_step(method):
            panels.setdefault(where, {})[method] = curves
    return [
        Panel(
            title(where, scale),
            {method: points(curves.values(), x, y) for method, curves in own.items()},
            words[x],
            y.replace("_", " "),
            log_x=x == "bits_up",
            log_y=y == "grad_norm",
            note=divergence_note(own),
        )
        for where, own in panels.items()
    ]


def points(curves: Iterable[Curve], x: str, y: str) -> Points:
    """The scores of all seeds after the same round, at the mean of their x."""
    found: dict[float, list[Row]] = {}
    for curve in curves:
        for row in curve.history:
            if y in row:
                found.setdefault(row["t"], []).append(row)
    return {
        t + 1 if x == "t" else fmean(row[x] for row in rows) / 8e6: [row[y] for row in rows]
        for t, rows in found.items()
    }


def divergence_note(methods_: Mapping[str, Mapping[int, Curve]]) -> str:
    """How many runs of each method diverged."""
    diverged = {
        method: sum(c.diverged for c in curves.values()) for method, curves in methods_.items()
    }
    lines = [
        f"{method}: {n} of {len(methods_[method])} diverged" for method, n in diverged.items() if n
    ]
    return "\n".join(lines)


def by_step(table: Table, scale: recipes.Scale) -> list[Panel]:
    """Final accuracy against the step size."""
    panels: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (where, method), curves in table.items():
        if step := recipes.swept_step(method):
            spec = parse_method(method)
            own = {k: v for k, v in spec.options.items() if k not in (step, "explicit_steps")}
            label = f"{spec._replace(options=own).label}, {step}"
            line = panels.setdefault(where, {}).setdefault(label, {})
            line[float(str(spec.options[step]))] = [late_score(curve) for curve in curves.values()]
    return [
        Panel(title(where, scale), lines, "step size", "accuracy", log_x=True)
        for where, lines in panels.items()
    ]


def by_jobs(table: Table, scale: recipes.Scale) -> list[Panel]:
    """Final accuracy and mean staleness against the jobs in flight."""
    levels = recipes.LEVELS[scale]
    ends: dict[str, dict[float, list[float]]] = {}
    stale: dict[str, dict[float, list[float]]] = {}
    for (where, method), curves in table.items():
        jobs = levels[int(where.removeprefix("late-"))]
        ends.setdefault(method, {})[jobs] = [late_score(curve) for curve in curves.values()]
        stale.setdefault(method, {})[jobs] = [
            fmean(row["tau_mean"] for row in curve.history if row["t"] >= 0)
            for curve in curves.values()
        ]
    return [
        Panel("at the end", ends, "jobs in flight", "accuracy"),
        Panel("models", stale, "jobs in flight", "mean staleness"),
    ]


KINDS: dict[str, Callable[[Table, recipes.Scale], list[Panel]]] = {
    "padamfed-emnist": by_round,
    "padamfed-emnist-steps": by_step,
    "padamfed-cifar": by_round,
    "padamfed-gradient": partial(by_round, y="grad_norm"),
    "padamfed-ablation": by_round,
    "padamfed-imdb": by_round,
    "padamfed-imdb-steps": by_step,
    "parfrefl-rounds": by_round,
    "parfrefl-compression": by_round,
    "parfrefl-bits": partial(by_round, x="bits_up"),
    "parfrefl-steps": by_step,
    "parfrefl-loss": partial(by_round, y="train_loss"),
    "adamasfl-rounds": by_round,
    "adamasfl-staleness": by_jobs,
}


def of_laws(laws: Sequence[Measurement]) -> list[Panel]:
    """The measurements for theorems, with the slopes they predict; one panel for each x."""
    lines: dict[str, dict[str, Points]] = {}
    slopes: dict[str, dict[str, float]] = {}
    for law in laws:
        what, _, against = law.label.partition(" against ")
        values = {float(x): [y[i] for y in law.values.values()] for i, x in enumerate(law.x)}
        lines.setdefault(against, {})[what] = values
        slopes.setdefault(against, {})[what] = law.power or 0.0
    return [
        Panel("", own, against, "gradient norm", True, True, slopes[against])
        for against, own in lines.items()
    ]
