"""`tunefree privacy`: what a budget buys before training, and an attack on the mechanism."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import Answer, Line, table
from tunefree.errors import ConfigError
from tunefree.settings import Settings

if TYPE_CHECKING:
    from tunefree.privacy.plan import RecordRow, Row
    from tunefree.privacy.promise import Privacy

LEAST = {  # of an audit
    **{"clients": 2, "per_round": 1, "rounds": 1, "runs": 40, "records": 2, "batch_size": 1}
}
COLUMNS = {  # of a plan -> what they are called
    **{"per_round": "per round", "batch_size": "batch", "rounds": "rounds", "sigma": "noise"},
    **{"noise": "noise/signal", "worth": "worth", "bits": "traffic", "needed": "needed"},
}
MEANING = {
    "client": (
        "noise: of the sum, in units of the largest upload; noise/signal: of a round's mean",
        "worth: gradients that all rounds are worth; needed: clients for a noise/signal of 1",
    ),
    "record": (
        "noise: of a sum, in units of the largest gradient; noise/signal: of one client's upload",
        "worth: gradients without noise that all rounds of all clients are worth",
    ),
}


def add_to(command: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    plan = verbs.add_parser("plan", help="noise, rounds and clients per round for a budget")
    plan.set_defaults(act=plan_command)
    add = partial(flags.add, plan)
    add_promise(plan, clients=1000)
    add("--per-round X ...", "clients per round to try; of records one number, or all", int, [])
    add("--batch-size X ...", "with records: batch sizes to try", int, [])
    add("--rounds X ...", "rounds to try", int, [])
    add("--local-steps X", f"default {Settings.local_steps}", int, Settings.local_steps)
    add("--data X", f"data the model is for (default {Settings.data})", default=Settings.data)
    add("--model X", "by default the data's", default="")
    add("--picture FILE", "also draw the plan, PNG or SVG", Path)

    about = "attack the mechanism with canary clients: epsilon has to hold"
    audit = verbs.add_parser("audit", help=about)
    audit.set_defaults(act=audit_command)
    add = partial(flags.add, audit)
    add_promise(audit, clients=50)
    add("--per-round X", "default 10", int, 10)
    add("--rounds X", "default 5", int, 5)
    add("--batch-size X", "with records: records in a batch (default 16)", int, 16)
    add("--runs X", "with and without a canary (default 1000)", int, 1000)
    add("--seed X", "of the runs (default 0)", int, 0)


def add_promise(verb: argparse.ArgumentParser, clients: int) -> None:
    add = partial(flags.add, verb)
    flags.add_format(verb)
    add("--epsilon X", "the budget (default 8)", float, 8.0)
    add("--delta X", "how likely it may fail (default 1e-5, or less)", float)
    add("--participations X", "of a client at most, in place of secret coins", int)
    add("--clients X", f"default {clients}", int, clients)
    add("--unit X", "what is protected: client (default), or record", default="client")
    add("--records X", "with --unit record: of a client (default 1000)", int, 1000)


def promise(args: argparse.Namespace) -> Privacy:
    from tunefree.privacy.promise import Privacy

    return Privacy(args.epsilon, args.unit, delta=args.delta, participations=args.participations)


def plan_command(args: argparse.Namespace) -> Answer:
    from tunefree.core import System
    from tunefree.data.sources import load
    from tunefree.models import build
    from tunefree.privacy.plan import ROUNDS, advised, dimension, plan, plan_records

    data, privacy = load(args.data), promise(args)
    name = args.model or data.model
    model = build(name, data.train.input_shape, data.classes)
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    of_records, rounds = args.unit == "record", args.rounds or ROUNDS
    delta = privacy.delta_for(args.records if of_records else args.clients)
    title = f"epsilon {args.epsilon:g} at delta {delta:.2g}, {args.clients:,} clients"
    rows: Sequence[Row] | Sequence[RecordRow]
    if of_records:
        title += f" of {args.records:,} records"
        sys = System(args.clients, min([args.clients, *args.per_round]), args.local_steps, 0)
        rows = plan_records(privacy, sizes, sys, args.records, args.batch_size, rounds)
        best: Row | RecordRow = advised(rows)
    else:
        rows = plan(privacy, sizes, args.clients, args.local_steps, args.per_round, rounds)
        best = advised(rows)
    if args.picture:
        from tunefree.plots.data import draw_plan

        draw_plan(rows, args.picture, f"{title}, {sum(sizes):,} numbers")

    listed = [row._asdict() for row in rows]
    columns = [COLUMNS[name] for name in listed[0]]
    name_of_size, size = next(iter(best._asdict().items()))
    lines: list[Line] = [
        f"{title}; {name} with {sum(sizes):,} numbers in {len(sizes)} tensors, "
        f"D = {dimension(sizes):,.0f}",
        *table(columns, [[shown(*item) for item in row.items()] for row in listed], right=columns),
        *MEANING[args.unit],
        f"advised: --{name_of_size.replace('_', '-')} {size} --rounds {best.rounds}",
    ]
    return Answer({"delta": delta, "rows": listed, "advised": best._asdict()}, lines)


def shown(name: str, value: float) -> str:
    """A number of a plan."""
    if name == "bits":
        return f"{value / 8e9:.3g} GB"
    return f"{value:.2f}" if name in ("sigma", "noise") else f"{value:,.0f}"


def audit_command(args: argparse.Namespace) -> Answer:
    from tunefree.core import System
    from tunefree.privacy.audit import audit, audit_records, ours
    from tunefree.privacy.calls import Calls
    from tunefree.privacy.records import of_calls

    for name, least in LEAST.items():
        if (value := getattr(args, name)) < least:
            raise ConfigError(f"must be at least {least}", setting=name, value=value)
    if args.per_round > args.clients:
        raise ConfigError(
            "exceeds {clients}", "lower {per_round}", setting="per_round", value=args.per_round
        )
    if args.unit == "record":
        given = args.records, args.batch_size, args.rounds
        found = audit_records(of_calls(promise(args), *given, (Calls((1,)),)), args.runs, args.seed)
    else:
        sys = System(args.clients, args.per_round, 1, args.rounds)
        guarantee = promise(args).in_a(sys)
        found = audit(ours(sys, guarantee), sys, guarantee, args.runs, args.seed)
    holds = all(finding.holds for finding in found)

    said = "promise holds" if holds else "promise is BROKEN: more was proved than claimed"
    cells = [(f"{f.delta:.2g}", f"{f.claimed:.3f}", f"{f.proved:.3f}", f.by) for f in found]
    columns = ("delta", "claimed epsilon", "proved at least", "by")
    data = {"holds": holds, "findings": [finding._asdict() for finding in found]}
    return Answer(data, (*table(columns, cells), f"the {said}"), failed=not holds)
