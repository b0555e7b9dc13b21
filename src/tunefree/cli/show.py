"""`tunefree show`: what a run file holds, in a page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefree.record import Record, Summary


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, metavar="RUN", help="a run file")
    command.set_defaults(act=show_command)


def show_command(args: argparse.Namespace) -> int:
    from tunefree.record import Record

    with closing(Record.open(args.run)) as record:
        print(json.dumps(overview(record)) if args.format == "json" else page(record.summary()))
    return 0


def overview(record: Record) -> dict[str, Any]:
    run = record.summary()
    scored: Sequence[Mapping[str, float] | None] = run.scored_rows or [None]
    return {
        **run.as_dict(),
        "facts": {
            name: fact for name, fact in run.facts.as_dict().items() if name != "label_counts"
        },
        "round": run.rounds,
        "first": scored[0],
        "last": scored[-1],
        "totals": run.rows[-1] if run.rows else None,
        "clients_heard": len(run.uploads),
        "absences": run.absences,
        "absent": [
            dict(zip(("t", "exchange", "client", "reason"), each, strict=True))
            for each in record.absences()
        ],
    }


def page(run: Summary) -> str:
    from tunefree.record.summary import size

    facts, total = run.facts, run.total
    lines = [
        f"{run.title}: {run.state} after round {run.rounds} of {run.planned_rounds or '?'}"
        + (f" ({facts.reason})" if facts.reason else ""),
        "  " + ", ".join(f"{name} = {value}" for name, value in facts.system.items()),
        "  " + ", ".join(f"{name} = {value:.4g}" for name, value in facts.steps.items()),
    ]
    if facts.compressor:
        lines.append(f"  compressor {facts.compressor}")
    if facts.seed is not None:
        data = f"{facts.data}, {facts.partition}" if facts.data else "of the caller"
        model = f"; model {facts.model}" if facts.model else ""
        lines.append(f"  data {data}, batches of {facts.batch_size}{model}; seed {facts.seed}")
    if run.scored_rows:
        for when, row in (("first", run.scored_rows[0]), ("last", run.scored_rows[-1])):
            lines.append(f"  {when} scores, round {int(row['t']) + 1}: {scores(row)}")
    if run.rows:
        lines += [
            f"  sent {size(total('bits_up'))} up and {size(total('bits_down'))} down, drew "
            f"{total('samples'):,} samples in {total('seconds'):.1f} s",
            f"  {len(run.uploads)} clients were heard",
        ]
    lines += [f"  refused or missing, {n} times: {why}" for why, n in run.absences.items()]
    lines.append("  " + ", ".join(f"{name} {number}" for name, number in facts.versions.items()))
    if run.state == "interrupted":
        lines.append(f"next: {facts.how_to_resume(run.path)}")
    return "\n".join(line for line in lines if line.strip())


def scores(row: Mapping[str, float]) -> str:
    from tunefree.record.summary import SCORES

    return ", ".join(f"{name} {row[name]:.4f}" for name in SCORES if name in row)
