"""What a report says, as plain data: the page, the live page and the figures all draw from this."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tunefree.report.arms import AXES, MEASURES, Arm, Content, flattened, grouped, relevant
from tunefree.report.costs import absences, bill, staleness, traffic
from tunefree.report.runs import Reading, step_sizes
from tunefree.report.sweeps import sensitivity

PICTURE_CLIENTS = 100
HIDDEN = {"run.seed", "run.out", "run.fleet", "run.workers", "run.kernels", "data.dir"}


def content(
    runs: Sequence[Reading], verdicts: Sequence[Mapping[str, Any]] = (), title: str = ""
) -> Content:
    """Everything there is to say about these runs; a part that has nothing to show is empty."""
    groups: dict[str, list[Reading]] = {}
    for run in runs:
        groups.setdefault(workload_title(run), []).append(run)
    workloads = [workload(f"w{i}", *item) for i, item in enumerate(groups.items())]
    arms = [arm for group in groups.values() for arm in grouped(of_role(group, "arm"))]
    said: Content = finite(
        {
            "title": title or "Federated training",
            "lead": lead(runs, arms),
            "axes": AXES,
            "measures": MEASURES,
            "verdicts": [dict(row) for row in verdicts],
            "workloads": workloads,
            "settings": settings_table(of_role(runs, "arm") or runs),
            "versions": versions(runs),
            "runs": [run_line(run) for run in runs],
        }
    )
    return said


def workload(name: str, title: str, runs: Sequence[Reading]) -> Content:
    """All that is shown of the runs on the same data and model."""
    arms = grouped(of_role(runs, "arm"))
    measures = [m for m in MEASURES if any(m in row for run in runs for row in run.rows)]
    axes = [a for a in AXES if a == "round" or any(r.rows and r.rows[-1].get(a) for r in runs)]
    return {
        "id": name,
        "title": title,
        "measures": measures,
        "axes": axes,
        "arms": [arm_line(i, arm, measures, axes) for i, arm in enumerate(arms)],
        "sensitivity": sensitivity(of_role(runs, "sweep"), arms, measures),
        "bill": bill(arms, of_role(runs, "trial")),
        "traffic": [line for i, arm in enumerate(arms) if (line := traffic(i, arm))],
        "staleness": [line for i, arm in enumerate(arms) if (line := staleness(i, arm))],
        "absences": absences(arms),
        "picture": picture(runs),
    }


def arm_line(style: int, arm: Arm, measures: Sequence[str], axes: Sequence[str]) -> Content:
    first = arm.runs[0]
    return {
        "label": arm.label,
        "style": style,
        "paper": str(first.facts.get("paper") or ""),
        "tuning_free": first.tuning_free,
        "seeds": len(arm.runs),
        "state": arm.state,
        "runs": [run_line(run) for run in arm.runs],
        "steps": [list(line) for line in step_sizes(first)],
        "final": {m: end for m in measures if (end := arm.final(m))},
        **arm.curve(measures, axes),
    }


def run_line(run: Reading) -> Content:
    return {
        "file": run.path.name,
        "method": run.title,
        "role": run.role,
        "seed": run.seed,
        "state": run.state,
        "reason": str(run.facts.get("reason") or ""),
        "rounds": run.rounds,
        "of": run.system.get("T"),
        "accuracy": run.last("accuracy"),
        "loss": run.last("loss"),
    }


def picture(runs: Sequence[Reading]) -> Content:
    """Who holds which classes, of the first run that tells."""
    for run in runs:
        counts = run.facts.get("label_counts")
        if (
            isinstance(counts, list)
            and counts
            and all(isinstance(row, list) and row for row in counts)
        ):
            return {
                "counts": counts[:PICTURE_CLIENTS],
                "clients": run.system.get("N", len(counts)),
                "seed": run.seed,
            }
    return {}


def settings_table(runs: Sequence[Reading]) -> Content:
    """Settings that all runs share, and for each arm those that it does not share."""
    flat = {
        arm.label: flattened(arm.runs[0].config) or relevant(arm.runs[0]) for arm in grouped(runs)
    }
    keys = list(dict.fromkeys(key for own in flat.values() for key in own))
    keys = [key for key in keys if key not in HIDDEN]
    shared = [key for key in keys if len({own.get(key) for own in flat.values()}) == 1]
    own = [key for key in keys if key not in shared]
    return {
        "shared": [[key, next(iter(flat.values()))[key]] for key in shared],
        "keys": own,
        "arms": [[label, [values.get(key) for key in own]] for label, values in flat.items()],
    }


def versions(runs: Iterable[Reading]) -> list[list[str]]:
    """Every version that was used; more than one if the runs differ."""
    seen: dict[str, dict[str, None]] = {}
    for run in runs:
        facts = {**run.table("versions"), "fleet": run.facts.get("fleet")}
        facts["kernels"] = run.facts.get("kernels")
        for name, version in facts.items():
            if version:
                seen.setdefault(name, {})[str(version)] = None
    return [[name, ", ".join(used)] for name, used in seen.items()]


def lead(runs: Sequence[Reading], arms: Sequence[Arm]) -> str:
    """The first sentence: how much there is, and what did not end well."""
    of_arms = len(of_role(runs, "arm"))
    parts = [f"{plural(of_arms, 'run')} in {plural(len(arms), 'arm')}"]
    for role in ("sweep", "trial"):
        if count := len(of_role(runs, role)):
            parts.append(plural(count, f"{role} run"))
    sentence = ", ".join(parts) + "."
    states = [run.state for run in runs]
    odd = [f"{states.count(s)} {s}" for s in sorted(set(states) - {"done"})]
    return f"{sentence} Not finished: {', '.join(odd)}." if odd else f"{sentence} All finished."


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def of_role(runs: Sequence[Reading], role: str) -> list[Reading]:
    """Runs of this role; one that is neither trial nor sweep is an arm."""
    roles = {"trial", "sweep"}
    return [run for run in runs if (run.role if run.role in roles else "arm") == role]


def workload_title(run: Reading) -> str:
    """Data, partition and model: only runs that share them can be compared."""
    config = run.config
    data, model = config.get("data", {}), config.get("model", {})
    words = [data.get("name"), data.get("partition"), model.get("name")]
    return ", ".join(str(word) for word in words if word) or "Own data and model"


def finite(value: Any) -> Any:
    """The same, with None for numbers that JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
