"""The rows of a run's history, and the whole run as commands and reports show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tunefree.record.evidence import Evidence
from tunefree.record.facts import Facts

Row: TypeAlias = dict[str, float]
COSTS = ("t", "samples", "seconds", "virtual_seconds")
BITS = ("bits_up", "bits_down", "value_bits_up", "value_bits_down")
CUMULATIVE = ("samples", "seconds", *BITS)
NO_SCORES = ("round", *COSTS, "clients", "absent", "tau_mean", "tau_max", *BITS)
SCORES = ("accuracy", "loss", "train_loss", "grad_norm")
OF_METHOD = ("algorithm", "role", "seed", "system", "steps", "parameters")  # facts that are shown
OF_DATA = ("data", "partition", "validation", "model")
PROMISE = {  # parts of a promise of privacy -> facts
    "epsilon at most": "epsilon",
    "delta": "delta",
    "unit": "unit",
    "neighbours": "adjacency",
    "who takes part": "sampling",
    "noise on the sum, in largest uploads": "sigma",
    "accountant": "accountant",
    "trust": "trust",
    "not covered": "not_covered",
}
# Names that a user's measure cannot have
TAKEN = (*SCORES, "train_accuracy", "epsilon", "clip", *NO_SCORES)


class Line(NamedTuple):
    """All that is stored for one step, beside the states after it."""

    t: int
    samples: int  # drawn by all clients in this step
    seconds: float  # of this step
    virtual_seconds: float  # since the start
    replies: Sequence[tuple[int, int]]  # (client, tau) of each reply used
    scores: Mapping[str, float]
    traffic: Sequence[tuple[int, str, int, int, int]]  # exchange, direction, messages, both bits
    absent: Sequence[tuple[int, int, str]]  # (exchange, client, reason)


class Rows:
    """Rows of a history, one for each line: costs since the start, the opening included.

    Those of a resumed run continue after its last row.
    """

    def __init__(self, last: Row | None = None) -> None:
        self._last: Row = last or {}

    def add(self, line: Line) -> Row:
        """The row of a step, as the history will have it."""
        taus, bits = [tau for _, tau in line.replies], Counter[str]()
        for _, direction, _, whole, values in line.traffic:
            bits[f"bits_{direction}"] += whole
            bits[f"value_bits_{direction}"] += values
        late = (sum(taus) / len(taus), max(taus)) if taus else ()
        return self.add_counts(line[:4], (len(taus), *late), len(line.absent), bits, line.scores)

    def add_counts(
        self,
        costs: Sequence[float],
        replies: Sequence[float],
        absent: int,
        bits: Mapping[str, int],
        scores: Mapping[str, float],
    ) -> Row:
        """The row of a line whose replies (how many, mean and largest tau) are counted."""
        row: Row = {"round": costs[0] + 1}  # 0 is the opening
        row |= dict(zip(COSTS, costs, strict=True))
        row |= {"clients": replies[0], "absent": absent}
        row |= dict(zip(("tau_mean", "tau_max"), replies[1:], strict=False))
        row |= {kind: bits.get(kind, 0) for kind in BITS}
        row |= {cost: self._last.get(cost, 0) + row[cost] for cost in CUMULATIVE}
        self._last = row | dict(scores)
        return self._last


@dataclass(frozen=True)
class Summary:
    """The content of a run file: facts, history, replies, and what follows from them."""

    path: Path | None
    facts: Facts
    rows: Sequence[Mapping[str, float]] = ()
    staleness: Mapping[int, int] = field(default_factory=dict)  # number of replies of each
    uploads: Mapping[int, int] = field(default_factory=dict)  # of each client that took part
    absences: Mapping[str, int] = field(default_factory=dict)  # how often for each reason
    quarantined: Sequence[int] = ()  # clients that are not asked, as their uploads were refused
    clients: Sequence[Evidence] = ()  # what is known about each
    outliers: Mapping[int, str] = field(default_factory=dict)  # and who stands apart
    left_out: Sequence[int] = ()

    @property
    def state(self) -> str:
        """Its state; a trial that was stopped early is `pruned`."""
        return "pruned" if self.facts.pruned else self.facts.state

    @property
    def title(self) -> str:
        """The method's name, or else the file's."""
        return self.facts.title or self.facts.algorithm or (self.path.stem if self.path else "")

    @property
    def rounds(self) -> int:
        """Server steps done."""
        return int(self.rows[-1]["t"]) + 1 if self.rows else 0

    @property
    def planned_rounds(self) -> int | None:
        """Server steps planned, if known."""
        return self.facts.system.get("T")

    @property
    def scored_on(self) -> str:
        return "validation" if self.facts.validation else "test"

    @property
    def scored_rows(self) -> list[Mapping[str, float]]:
        """The rows with scores."""
        return [row for row in self.rows if row.keys() - set(NO_SCORES)]

    @cached_property
    def measures(self) -> list[str]:
        """The names of its scores: ours first, then the caller's own in their order."""
        found = dict.fromkeys(name for row in self.rows for name in row if name not in NO_SCORES)
        return [name for name in SCORES if name in found] + [n for n in found if n not in SCORES]

    @property
    def seconds_per_round(self) -> float | None:
        """Mean wall time of a server step, without the opening."""
        opening = self.rows[0]["seconds"] if self.rows and self.rows[0]["t"] < 0 else 0.0
        return (self.total("seconds") - opening) / self.rounds if self.rounds else None

    def last(self, measure: str) -> float | None:
        """The last value of a score."""
        return next((row[measure] for row in reversed(self.rows) if measure in row), None)

    @property
    def promise(self) -> dict[str, str]:
        """What a private run promises and what it does not, by part; empty for other runs."""
        said, spent = self.facts.privacy, self.last("epsilon")
        used = {}
        if spent is not None:
            left = max(0.0, said["epsilon"] - spent)
            used = {"epsilon spent": f"{spent:.3g}", "epsilon left": f"{left:.3g}"}
        if searched := self.facts.tuning.get("epsilon"):
            used["epsilon of the search before"] = f"{searched:.3g}"
        parts = {part: said[fact] for part, fact in PROMISE.items() if fact in said}
        return used | {
            part: f"{value:.3g}" if isinstance(value, float) else str(value)
            for part, value in parts.items()
        }

    def total(self, cost: str) -> float:
        """The total cost until the last step, including the opening."""
        return self.rows[-1].get(cost, 0) if self.rows else 0

    def as_dict(self) -> dict[str, Any]:
        """The whole run as one dict, as commands print it with --json."""
        facts, costs = self.facts, ("samples", "virtual_seconds", "seconds", *BITS)
        return {
            "run": str(self.path),
            "name": facts.label,
            "state": self.state,
            "reason": facts.reason,
            "method": self.title,
            **{name: getattr(facts, name) for name in (*OF_METHOD, *OF_DATA)},
            "compressor": facts.compressor or None,
            "rounds": self.rounds,
            **{measure: self.last(measure) for measure in (*SCORES, *self.measures)},
            "measures": self.measures,
            "scored_on": self.scored_on,
            **{cost: self.total(cost) for cost in costs},
            "seconds_per_round": self.seconds_per_round,
            "staleness": self.staleness,
            "uploads": sorted(self.uploads.values()),
            "absent": sum(self.absences.values()),
            "quarantined": [facts.called(client) for client in self.quarantined]
            if facts.names
            else list(self.quarantined),
            "outliers": dict(self.outliers),
            "left_out": list(self.left_out),
        }


def own_measures(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """The names of the scores in these rows that are the user's own."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in TAKEN]


def on_clients(run: Summary) -> list[str]:
    """Who stands apart, who is left out and who is in quarantine, and how they are readmitted."""
    called = run.facts.called
    lines = [f"  client {called(one)} stands apart: {why}" for one, why in run.outliers.items()]
    if run.left_out:
        lines.append(f"  left out: client {' '.join(map(called, run.left_out))}")
    if not run.quarantined:
        return lines
    who, again = " ".join(map(called, run.quarantined)), run.facts.how_to_readmit(run.path)
    why = "not asked, as 3 uploads in a row were refused"
    return [*lines, f"  {why}: client {who}; to ask again: {again}"]


def size(bits: float) -> str:
    """Bits as a readable number of bytes.

    >>> size(8_000_000)
    '1.0 MB'
    """
    amount = bits / 8
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
