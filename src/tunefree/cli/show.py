"""`tunefree show`: what a run file holds, in a page."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefree.record import Record, Row

SCORES = ("accuracy", "loss", "train_loss", "grad_norm")


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, metavar="RUN", help="a run file")
    command.set_defaults(act=show_command)


def show_command(args: argparse.Namespace) -> int:
    from tunefree.record import Record

    with closing(Record.open(args.run)) as record:
        result = overview(record)
    print(json.dumps(result) if args.format == "json" else page(result))
    return 0


def overview(record: Record) -> dict[str, Any]:
    facts, history, absences = record.facts(), record.history(), record.absences()
    scored = [row for row in history if any(score in row for score in SCORES)]
    return {
        "run": str(record.path),
        "state": record.state,
        "reason": facts.get("reason"),
        "facts": {key: value for key, value in facts.items() if key != "label_counts"},
        "round": int(history[-1]["t"]) + 1 if history else 0,
        "first": scored[0] if scored else None,
        "last": scored[-1] if scored else None,
        "totals": history[-1] if history else None,
        "staleness": record.staleness(),
        "clients_heard": len(record.uploads()),
        "absences": Counter(reason for *_, reason in absences),
        "absent": [
            {"t": t, "exchange": exchange, "client": client, "reason": reason}
            for t, exchange, client, reason in absences
        ],
    }


def page(result: dict[str, Any]) -> str:
    from tunefree.cli.run import size

    facts, totals = result["facts"], result["totals"]
    system = facts.get("system", {})
    config = facts.get("config", {})
    lines = [
        f"{facts.get('title', 'a run')}: {result['state']} after round {result['round']} "
        f"of {system.get('T', '?')}" + (f" ({result['reason']})" if result["reason"] else ""),
        "  " + ", ".join(f"{name} = {value}" for name, value in system.items()),
        "  " + ", ".join(f"{name} = {value:.4g}" for name, value in facts.get("steps", {}).items()),
    ]
    if facts.get("compressor"):
        lines.append(f"  compressor {facts['compressor']}")
    if config:
        data, settings = config["data"], config["run"]
        lines.append(
            f"  data {data['name']}, {data['partition']}, batches of {data['batch_size']}; model "
            f"{config['model']['name']}; seed {settings['seed']}"
        )
    for when in ("first", "last"):
        if row := result[when]:
            lines.append(f"  {when} scores, round {int(row['t']) + 1}: {scores(row)}")
    if totals:
        lines += [
            f"  sent {size(totals['bits_up'])} up and {size(totals['bits_down'])} down, drew "
            f"{totals['drawn']:,} samples in {totals['seconds']:.1f} s",
            f"  {result['clients_heard']} clients were heard",
        ]
    lines += [f"  refused or missing, {n} times: {why}" for why, n in result["absences"].items()]
    versions = facts.get("versions", {})
    lines.append("  " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    if result["state"] == "interrupted":
        deployed = facts.get("fleet") == "flower"
        again = (
            "flwr run, with the same app" if deployed else f"tunefree run --resume {result['run']}"
        )
        lines.append(f"next: {again}")
    return "\n".join(line for line in lines if line.strip())


def scores(row: Row) -> str:
    return ", ".join(f"{name} {row[name]:.4f}" for name in SCORES if name in row)
