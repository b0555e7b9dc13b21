"""The content of a report as data: the page, the live page and the figures are made from it."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunefree.record import Summary
from tunefree.record.summary import BITS
from tunefree.report.grouping import AXES, Content, Method, group, measures_of, once_each
from tunefree.report.sweeps import sensitivity

PICTURE_CLIENTS = 100
SEVERAL = {"holds": "hold", "does not hold": "do not hold"}
NAMED_FILES = 5  # at most, of the unreadable ones
RUN_KEYS = ("method", "role", "seed", "state", "reason", "rounds", "accuracy", "loss", "scored_on")
STALENESS_BARS = 100
SPENT = ("rounds", "samples", "bits_up", "bits_down")
HIDDEN = {"seed", "out", "fleet", "workers", "kernels", "data_dir"}


def content(
    runs: Sequence[Summary],
    verdicts: Sequence[Mapping[str, Any]] = (),
    title: str = "",
    unreadable: Sequence[Path] = (),
) -> Content:
    """The content of a report on these runs; a part with nothing to show is empty."""
    counted = once_each(runs)
    groups: dict[str, list[Summary]] = {}
    for run in counted:
        groups.setdefault(workload_title(run), []).append(run)
    workloads = [workload(f"w{i}", *item) for i, item in enumerate(groups.items())]
    made: Content = finite(
        {
            "title": title or "Federated training",
            "lead": " ".join(
                [
                    lead(runs, sum(len(each["methods"]) for each in workloads), verdicts),
                    *excluded(len(runs) - len(counted), unreadable),
                ]
            ),
            "axes": AXES,
            "verdicts": [dict(row) for row in verdicts],
            "workloads": workloads,
            "settings": settings_table(of_role(counted, "method") or counted),
            "privacy": promises(counted),
            "versions": versions(runs),
            "runs": [run_line(run) for run in runs],
        }
    )
    return made


def workload(name: str, title: str, runs: Sequence[Summary]) -> Content:
    """The content for the runs on the same data and model."""
    methods, sweep = group(of_role(runs, "method")), of_role(runs, "sweep")
    drawn = [*of_role(runs, "method"), *sweep]
    measures = measures_of(drawn)
    axes = [a for a in AXES if a == "round" or any(r.rows and r.rows[-1].get(a) for r in drawn)]
    return {
        "id": name,
        "title": title,
        "measures": measures,
        "axes": axes,
        "methods": [method_line(i, method, measures, axes) for i, method in enumerate(methods)],
        "sensitivity": sensitivity(sweep, methods, measures),
        "bill": tuning_bill(methods, of_role(runs, "trial")),
        "traffic": [line for i, method in enumerate(methods) if (line := traffic(i, method))],
        "staleness": [line for i, method in enumerate(methods) if (line := staleness(i, method))],
        "clients": [line for i, method in enumerate(methods) if (line := pulls(i, method))],
        "absences": absences(methods),
        "picture": picture(runs),
    }


def method_line(
    style: int, method: Method, measures: Mapping[str, str], axes: Sequence[str]
) -> Content:
    first = method.runs[0]
    return {
        "label": method.label,
        "style": style,
        "paper": first.facts.paper,
        "tuning_free": first.facts.tuning_free,
        "searched": list(first.facts.searched),
        "seeds": len(method.runs),
        "state": method.state,
        "runs": [run_line(run) for run in method.runs],
        "steps": [list(line) for line in first.facts.step_sizes],
        "final": {m: end for m in measures if (end := method.final(m))},
        **method.curve(measures, axes),
    }


def run_line(run: Summary) -> Content:
    """The page's row for a run; it names the file but not its folder, which is private."""
    facts = run.as_dict()
    file = run.path.name if run.path else ""
    scores = {measure: facts[measure] for measure in run.measures}
    shown = {key: facts[key] for key in RUN_KEYS}
    return {"file": file, "T": run.planned_rounds, **shown, "scores": scores}


def picture(runs: Sequence[Summary]) -> Content:
    """Samples by client and class, from the first run that recorded them."""
    for run in runs:
        if counts := run.facts.label_counts:
            classes = run.facts.classes_named or range(len(counts[0]))
            return {
                "counts": counts[:PICTURE_CLIENTS],
                "names": [*map(run.facts.called, range(len(counts[:PICTURE_CLIENTS])))],
                "classes": [f"class {each}" for each in classes],
                "clients": run.facts.system.get("N", len(counts)),
                "seed": run.facts.seed,
            }
    return {}


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


def settings_table(runs: Sequence[Summary]) -> Content:
    """The settings that all methods share, and those in which they differ."""
    flat = {method.label: method.runs[0].facts.values for method in group(runs)}
    keys = list(dict.fromkeys(key for own in flat.values() for key in own))
    keys = [key for key in keys if key not in HIDDEN]
    shared = [key for key in keys if len({own.get(key) for own in flat.values()}) == 1]
    own = [key for key in keys if key not in shared]
    return {
        "shared": [[key, next(iter(flat.values()))[key]] for key in shared],
        "keys": own,
        "methods": [[label, [values.get(key) for key in own]] for label, values in flat.items()],
    }


def promises(runs: Sequence[Summary]) -> list[list[str]]:
    """Method, part and words of every promise of privacy; of seeds that differ in it, all."""
    rows = [
        [method.label, part, words]
        for method in group(of_role(runs, "method"))
        for run in method.runs
        for part, words in run.promise.items()
    ]
    return list(map(list, dict.fromkeys(map(tuple, rows))))


def versions(runs: Iterable[Summary]) -> list[list[str]]:
    """All versions that were used; several of one package if the runs differ."""
    seen: dict[str, dict[str, None]] = {}
    for run in runs:
        facts = run.facts
        used = {**facts.versions, "fleet": facts.fleet, "kernels": facts.kernels}
        for name, version in used.items():
            if version:
                seen.setdefault(name, {})[str(version)] = None
    return [[name, ", ".join(each)] for name, each in seen.items()]


def lead(runs: Sequence[Summary], methods: int, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The first sentence: how many runs there are, and which did not finish."""
    if not runs:
        return tally(verdicts) if verdicts else "No runs yet."
    parts = [f"{plural(len(of_role(runs, 'method')), 'run')} of {plural(methods, 'method')}"]
    for role in ("sweep", "trial"):
        if count := len(of_role(runs, role)):
            parts.append(plural(count, f"{role} run"))
    sentence = ", ".join(parts) + "."
    states = [run.state for run in runs]
    odd = [f"{states.count(s)} {s}" for s in sorted(set(states) - {"done"})]
    return f"{sentence} Not finished: {', '.join(odd)}." if odd else f"{sentence} All finished."


def tally(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each verdict."""
    words = Counter(str(row.get("verdict") or "not decided") for row in verdicts)
    counts = ", ".join(
        f"{count} {word if count == 1 else SEVERAL.get(word, word)}"
        for word, count in words.most_common()
    )
    return f"{plural(len(verdicts), 'verdict')}: {counts}."


def excluded(repeats: int, unreadable: Sequence[Path]) -> list[str]:
    """A sentence for each kind of file that does not count."""
    sentences = []
    if repeats:
        some = "1 run file repeats" if repeats == 1 else f"{repeats} run files repeat"
        verb = "is" if repeats == 1 else "are"
        sentences.append(f"{some} a seed of the same method and {verb} excluded from the means.")
    if unreadable:
        names = ", ".join(path.name for path in unreadable[:NAMED_FILES])
        more = len(unreadable) - NAMED_FILES
        others = f" and {more} more" if more > 0 else ""
        count = plural(len(unreadable), "file")
        sentences.append(f"{count} cannot be read as a run file: {names}{others}.")
    return sentences


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def of_role(runs: Sequence[Summary], role: str) -> list[Summary]:
    return [run for run in runs if run.facts.role == role]


def workload_title(run: Summary) -> str:
    """Data, partition, model and samples scored: only runs that share them can be compared.

    Trials belong to the workload of the runs that they were made for, though they are scored on
    held-out samples.
    """
    title = run.facts.workload or "Own data and model"
    if run.facts.attack:
        title += f", {run.facts.attack_words}"
    apart = run.facts.validation and run.facts.role != "trial"
    return f"{title}, scored on validation samples" if apart else title


def finite(value: Any) -> Any:
    """The value given, with None for numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
