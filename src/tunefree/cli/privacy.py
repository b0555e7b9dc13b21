"""`tunefree privacy`: what a budget buys before training, and an attack on the mechanism."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tunefree.cli.tables import print_table
from tunefree.errors import ConfigError
from tunefree.settings import Settings


def add_to(command: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    plan = verbs.add_parser("plan", help="noise, rounds and clients per round for a budget")
    add_promise(plan, clients=1000)
    plan.add_argument(
        "--per-round", type=int, nargs="+", default=[], metavar="X", help="clients per round to try"
    )
    plan.add_argument(
        "--rounds", type=int, nargs="+", default=[], metavar="X", help="rounds to try"
    )
    plan.add_argument(
        "--local-steps", type=int, default=Settings.local_steps, metavar="X", help="default 10"
    )
    plan.add_argument("--data", default=Settings.data, metavar="X", help="data the model is for")
    plan.add_argument("--model", default="", metavar="X", help="its model by default")
    plan.add_argument("--picture", type=Path, metavar="FILE", help="also draw the plan, PNG or SVG")
    plan.set_defaults(act=plan_command)
    audit = verbs.add_parser(
        "audit", help="attack the mechanism with canary clients: epsilon has to hold"
    )
    add_promise(audit, clients=50)
    audit.add_argument("--per-round", type=int, default=10, metavar="X", help="default 10")
    audit.add_argument("--rounds", type=int, default=5, metavar="X", help="default 5")
    audit.add_argument(
        "--runs", type=int, default=1000, metavar="X", help="with and without a canary"
    )
    audit.add_argument("--seed", type=int, default=0, metavar="X", help="of the runs (default 0)")
    audit.set_defaults(act=audit_command)
    for verb in (plan, audit):
        verb.add_argument("--format", choices=("text", "json"), default="text", help="of results")


def add_promise(verb: argparse.ArgumentParser, clients: int) -> None:
    verb.add_argument(
        "--epsilon", type=float, default=8.0, metavar="X", help="the budget (default 8)"
    )
    verb.add_argument(
        "--delta", type=float, metavar="X", help="how likely it may fail (default 1e-5, or less)"
    )
    verb.add_argument(
        "--participations",
        type=int,
        metavar="X",
        help="of a client at most, in place of secret coins",
    )
    verb.add_argument(
        "--clients", type=int, default=clients, metavar="X", help=f"default {clients}"
    )


def plan_command(args: argparse.Namespace) -> int:
    from tunefree.data.sources import load
    from tunefree.models import build
    from tunefree.privacy.plan import ROUNDS, advised, dimension, plan
    from tunefree.privacy.promise import Privacy

    data = load(args.data, None)
    model = build(args.model or data.model, data.train.input_shape, data.classes)
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    privacy = Privacy(args.epsilon, delta=args.delta, participations=args.participations)
    delta = privacy.delta_for(args.clients)
    rows = plan(
        privacy, sizes, args.clients, args.local_steps, args.per_round, args.rounds or ROUNDS
    )
    best = advised(rows)
    title = f"epsilon {args.epsilon:g} at delta {delta:.2g}, {args.clients:,} clients"
    if args.picture:
        from tunefree.plots.privacy import draw_plan

        draw_plan(rows, args.picture, f"{title}, {sum(sizes):,} numbers")
    if args.format == "json":
        listed = [row._asdict() for row in rows]
        print(json.dumps({"delta": delta, "rows": listed, "advised": best._asdict()}))
        return 0
    print(
        f"{title}; {args.model or data.model} with {sum(sizes):,} numbers in {len(sizes)} tensors, "
        f"D = {dimension(sizes):,.0f}"
    )
    print_table(
        ("per round", "rounds", "epsilon", "noise", "noise/signal", "worth", "traffic", "needed"),
        [
            (
                *(f"{row.per_round:,}", f"{row.rounds:,}", f"{args.epsilon:g}"),
                *(f"{row.sigma:.2f}", f"{row.noise:.2f}", f"{row.worth:,.0f}"),
                *(f"{row.bits / 8e9:.3g} GB", f"{row.needed:,}"),
            )
            for row in rows
        ],
        right=("per round", "rounds", "noise", "noise/signal", "worth", "traffic", "needed"),
    )
    print(
        "noise: of the sum, in units of the largest upload; noise/signal: of a round's mean\n"
        "worth: gradients that all rounds are worth; needed: clients for a noise/signal of 1\n"
        f"advised: --per-round {best.per_round} --rounds {best.rounds}"
    )
    return 0


def audit_command(args: argparse.Namespace) -> int:
    from tunefree.core import System
    from tunefree.privacy.audit import audit, ours
    from tunefree.privacy.promise import Privacy

    for name, least in (("clients", 2), ("per_round", 1), ("rounds", 1), ("runs", 40)):
        if getattr(args, name) < least:
            raise ConfigError(f"must be at least {least}", setting=name, value=getattr(args, name))
    if args.per_round > args.clients:
        raise ConfigError(
            "exceeds {clients}", "lower {per_round}", setting="per_round", value=args.per_round
        )
    sys = System(args.clients, args.per_round, 1, args.rounds)
    privacy = Privacy(args.epsilon, delta=args.delta, participations=args.participations)
    guarantee = privacy.in_a(sys)
    found = audit(ours(sys, guarantee), sys, guarantee, args.runs, args.seed)
    holds = all(finding.holds for finding in found)
    if args.format == "json":
        print(json.dumps({"holds": holds, "findings": [f._asdict() for f in found]}))
        return 0 if holds else 1
    print_table(
        ("delta", "claimed epsilon", "proved at least", "by"),
        [(f"{f.delta:.2g}", f"{f.claimed:.3f}", f"{f.proved:.3f}", f.by) for f in found],
    )
    print("the promise holds" if holds else "the promise is BROKEN: more was proved than claimed")
    return 0 if holds else 1
