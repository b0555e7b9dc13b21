"""The costs of methods: tuning bill, bits, late and missing replies."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence

from tunefree.record import Summary
from tunefree.record.summary import BITS
from tunefree.report.grouping import Content, Method

STALENESS_BARS = 100
SPENT = ("rounds", "samples", "bits_up", "bits_down")


def tuning_bill(methods: Sequence[Method], trials: Sequence[Summary]) -> list[Content]:
    """The cost of the search for each method's settings, and of one training with them.

    A tuned method's run files contain its tuning bill. Trials of other searches are counted search
    by search.
    """
    rows: list[Content] = []
    noted: set[tuple[str, str]] = set()
    for method in methods:
        first = method.runs[0].facts
        texts = {json.dumps(run.facts.tuning, sort_keys=True) for run in method.runs} - {"{}"}
        bills = [json.loads(text) for text in sorted(texts)]
        known = bool(bills) or first.tuning_free  # unknown if the steps were chosen by hand
        noted |= {(run.title, str(each.get("search", ""))) for run in method.runs for each in bills}
        found = {json.dumps(own): own for run in method.runs if (own := run.facts.searched)}
        rows.append(
            {
                "label": method.label,
                "tuning_free": first.tuning_free,
                "search": add_up(bills) if known else None,
                "found": list(found.values()),
                "training": means([spent(run) for run in method.judged], SPENT),
            }
        )
    searches = dict.fromkeys((run.title, run.facts.search) for run in trials)
    left = [each for each in searches if each not in noted]
    for title, mark in left:
        mine = [run for run in trials if (run.title, run.facts.search) == (title, mark)]
        search = add_up([spent(run) for run in mine])
        several = mark and [name for name, _ in left].count(title) > 1
        label = f"{title}, trials of search {mark}" if several else f"{title}, trials"
        rows.append({"label": label, "tuning_free": False, "search": search, "found": []})
    return rows if any(row["search"] and row["search"]["trials"] for row in rows) else []


def add_up(searches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: sum(each.get(key) or 0 for each in searches) for key in ("trials", *SPENT)}


def spent(run: Summary) -> dict[str, float]:
    """The cost of a run, all clients together, as one trial."""
    costs = {key: run.total(key) for key in SPENT if key != "rounds"}
    return {"trials": 1, "rounds": run.rounds, **costs}


def means(rows: Sequence[Mapping[str, float]], keys: Iterable[str]) -> dict[str, float]:
    """The means over full trainings; empty if there is none."""
    return {key: statistics.fmean(row[key] for row in rows) for key in keys} if rows else {}


def traffic(style: int, method: Method) -> Content:
    """Bits of one run, mean over the seeds: in total, and of the values alone."""
    mean = means([{key: run.total(key) for key in BITS} for run in method.judged], BITS)
    if not any(mean.values()):
        return {}
    counts = [count for run in method.judged for count in run.uploads.values()]
    return {
        "label": method.label,
        "style": style,
        **mean,
        "model_bits": 32 * method.runs[0].facts.parameters or None,
        "uploads": [min(counts, default=0), max(counts, default=0)],
    }


def staleness(style: int, method: Method) -> Content:
    """A histogram of the replies' staleness, all seeds together; empty if none was stale."""
    counts: dict[int, int] = {}
    for run in method.runs:
        for tau, count in run.staleness.items():
            counts[tau] = counts.get(tau, 0) + count
    worst = max(counts, default=0)
    if worst == 0:
        return {}
    width = worst // STALENESS_BARS + 1
    bars = [0] * (worst // width + 1)
    for tau, count in counts.items():
        bars[tau // width] += count
    replies = sum(counts.values())
    return {
        "label": method.label,
        "style": style,
        "width": width,
        "bars": bars,
        "replies": replies,
        "mean": sum(tau * count for tau, count in counts.items()) / replies,
        "worst": worst,
    }


def pulls(style: int, method: Method) -> Content:
    """Agreement and length of each client in the first run; empty if none could be compared."""
    run = method.runs[0]
    rows = [
        [each.client, each.agreement, each.length, run.outliers.get(each.client, "")]
        for each in run.clients
        if each.compared
    ]
    return {"label": method.label, "style": style, "clients": rows} if rows else {}


def absences(methods: Sequence[Method]) -> list[Content]:
    return [
        {
            "label": method.label,
            "reason": reason,
            "count": sum(r.absences.get(reason, 0) for r in method.runs),
        }
        for method in methods
        for reason in sorted({reason for run in method.runs for reason in run.absences})
    ]
