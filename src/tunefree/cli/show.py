"""`tunefree show`: a run in words."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.cli import flags
from tunefree.cli.tables import Answer, Line, table

if TYPE_CHECKING:
    from tunefree.record import Record, Row, Summary

ENDS = ("worst", "best")
SHOWN = 5  # clients at either end
BARS, LONG = 8, 40  # ranges of a score, and characters in the longest bar


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "RUN", "a run file, or the folder of a federation", Path)
    also = "also show each client: what it sent, and the model's scores on its samples"
    flags.add(command, "--clients", also)
    command.set_defaults(act=show_command)


def show_command(args: argparse.Namespace) -> Answer:
    from tunefree.errors import ConfigError
    from tunefree.record import Record

    if args.run.is_dir():
        from tunefree.flower.status import find

        args.run = find(args.run)
    with closing(Record.open(args.run)) as record:
        run = record.summary()
        shown, lines = overview(record), in_words(run)
    if args.clients and run.clients:
        shown["evidence"] = [each._asdict() for each in run.clients]
        lines += [*words_on_uploads(run)]
    if args.clients:
        from tunefree.run.evaluate import spread
        from tunefree.run.files import client_scores

        try:
            rows = client_scores(args.run)
        except ConfigError as error:
            if not run.clients:
                raise
            return Answer(shown, [*lines, f"no scores of clients: {error}"])
        shown |= {"clients": rows, "spread": {name: spread(rows, name) for name in scored(rows)}}
        lines += words_on_clients(rows)
    return Answer(shown, lines)


def overview(record: Record) -> dict[str, Any]:
    run = record.summary()
    scored: Sequence[Mapping[str, float] | None] = run.scored_rows or [None]
    called = run.facts.called if run.facts.names and not run.facts.deployed else int
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
            {"t": t, "exchange": exchange, "client": called(client), "reason": why}
            for t, exchange, client, why in record.absences()
        ],
    }


def in_words(run: Summary) -> list[Line]:
    from tunefree.record.summary import on_clients, size

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
        data = f"{facts.data}, {facts.partition}" if facts.data else "of your own"
        model = f"; model {facts.model_words}" if facts.model else ""
        lines.append(f"  data {data}, batches of {facts.batch_size}{model}; seed {facts.seed}")
    lines += [f"  privacy, {part}: {words}" for part, words in run.promise.items()]
    if run.scored_rows:
        for when, row in (("first", run.scored_rows[0]), ("last", run.scored_rows[-1])):
            lines.append(f"  {when} scores, round {int(row['t']) + 1}: {scores(row, run.measures)}")
    if run.rows:
        lines += [
            f"  sent {size(total('bits_up'))} up and {size(total('bits_down'))} down, drew "
            f"{total('samples'):,} samples in {total('seconds'):.1f} s",
            f"  {len(run.uploads)} clients participated",
        ]
    lines += [f"  refused or missing, {n} times: {why}" for why, n in run.absences.items()]
    if facts.attack:
        lines.append(f"  {facts.attack_words}")
    lines += on_clients(run)
    lines.append("  " + ", ".join(f"{name} {number}" for name, number in facts.versions.items()))
    if run.state == "interrupted":
        lines.append(f"next: {facts.how_to_resume(run.path)}")
    return [line for line in lines if line.strip()]


def scores(row: Mapping[str, float], measures: Sequence[str]) -> str:
    return ", ".join(f"{name} {row[name]:.4f}" for name in measures if name in row)


def words_on_uploads(run: Summary) -> Iterator[Line]:
    """What each client sent, those that stand apart first."""
    yield "what each client sent: how much, how late and how long, and whether they agree:"
    head = ("client", "uploads", "refused or missing", "tau", "length", "agreement", "against")
    cells = [
        (*map(str, each[:3]), *(f"{x:.2f}" for x in (each.tau, *each[5:]) if x is not None))
        for each in sorted(run.clients, key=lambda each: each.client not in run.outliers)
    ]
    blank = ("-",) * 3
    yield from table(head, [(*row, *blank)[: len(head)] for row in cells], head)


def words_on_clients(rows: Sequence[Row]) -> list[Line]:
    """How the scores differ between clients: their spread, a histogram, the worst and the best."""
    from tunefree.run.evaluate import spread

    lines: list[Line] = [
        f"on each client's own training samples, mean ± std over {len(rows)} clients:"
    ]
    for name in scored(rows):
        over = spread(rows, name)
        ends = (f"{end} {over[end]:.4f} (client {over[f'{end}_client']})" for end in ENDS)
        lines.append(f"  {name:<8} {over['mean']:.4f} ± {over['std']:.4f}, {', '.join(ends)}")
    first = scored(rows)[0]
    lines += bars([row[first] for row in rows], first)
    ordered = sorted(rows, key=lambda row: row[first], reverse=first == "loss")
    columns = ("client", "samples", *scored(rows))
    cells = [
        (f"{row['client']}", f"{row['n']:,}", *(f"{row[name]:.4f}" for name in scored(rows)))
        for row in ordered
    ]
    if len(rows) > 2 * SHOWN:
        cells[SHOWN:-SHOWN] = [("...", *[""] * (len(columns) - 1))]
    return [*lines, *table(columns, cells, columns)]


def scored(rows: Sequence[Row]) -> list[str]:
    return [name for name in rows[0] if name not in ("client", "n")]


def bars(values: Sequence[float], name: str) -> list[str]:
    """A histogram of the scores; none if all are equal."""
    import numpy as np

    if min(values) == max(values):
        return []
    counts, edges = np.histogram(values, BARS)
    return [f"  clients by {name}:"] + [
        f"  {edges[i]:8.4f} to {edges[i + 1]:.4f}  {'#' * -(-LONG * count // max(counts))} {count}"
        for i, count in enumerate(counts)
    ]
