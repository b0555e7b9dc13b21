"""`tunefree-evidence claims`: run and decide the papers' claims."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError
from tunefree_evidence.cli.terminal import check_out, interrupted, print_table

FOLDER = Path("runs") / "claims"
PAGE = Path("docs") / "evidence.md"


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        nargs="+",
        metavar="WHAT",
        help="claims (24, 37-39), figures, studies or all; or list or evidence alone",
    )
    command.add_argument(
        "--scale",
        choices=("smoke", "small", "paper"),
        default="small",
        help="smoke: seconds, decides nothing; small: minutes; paper: the papers' sizes "
        "(default small)",
    )
    command.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="X", help="of the methods"
    )
    command.add_argument(
        "--out",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"folder of all runs (default {FOLDER})",
    )
    command.add_argument(
        "--workers", type=int, default=0, metavar="X", help="runs at once; 0 is one per core"
    )
    command.add_argument("--data-dir", default="", metavar="X", help="where data files are")
    command.add_argument(
        "--own-units",
        action="store_true",
        help="where a claim does not hold, run it again with the papers' eta and gamma times the "
        "norm of the initial model, and report whether the steps are the reason",
    )
    command.add_argument(
        "-o",
        dest="page",
        type=Path,
        default=PAGE,
        metavar="FILE",
        help=f"written by evidence (default {PAGE})",
    )
    command.set_defaults(act=claims_command)


def claims_command(args: argparse.Namespace) -> int:
    if args.data_dir:
        os.environ["TUNEFREE_DATA"] = args.data_dir  # worker processes inherit it
    if args.workers < 0 or any(seed < 0 for seed in args.seeds):
        raise ConfigError("--workers and --seeds must be at least 0")
    if len(set(args.seeds)) < len(args.seeds):
        raise ConfigError(f"--seeds {args.seeds} has the same seed twice; remove one")
    if args.what == ["list"]:
        return list_claims(args)
    if args.what == ["evidence"]:
        return write_evidence(args)
    check_out(args.out)
    return decide(args)


def list_claims(args: argparse.Namespace) -> int:
    from tunefree_evidence.claims.claims import FIGURES, SENTENCES, study_of

    figures = {claim: name for name, claims in FIGURES.items() for claim in claims}
    rows = [
        {"claim": n, "figure": figures[n], "study": study_of(n), "sentence": SENTENCES[n]}
        for n in SENTENCES
    ]
    if args.format == "json":
        print(json.dumps(rows))
        return 0
    print_table(
        ("claim", "figure", "study", "in our words"),
        [(str(r["claim"]), str(r["figure"]), str(r["study"]), str(r["sentence"])) for r in rows],
        wrapped=("in our words",),
    )
    return 0


def decide(args: argparse.Namespace) -> int:
    from tunefree_evidence.claims.claims import choose
    from tunefree_evidence.claims.plans import Order
    from tunefree_evidence.claims.studies import decide_all

    how = tuple(args.seeds), args.workers, args.own_units
    order = Order(choose(args.what), args.scale, args.out, *how)
    rows: list[dict[str, Any]] = []
    try:
        for row in decide_all(order, lambda text: print(text, file=sys.stderr, flush=True)):
            rows.append(row)
            print(f"  claim {row['claim']}: {verdict(row)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return interrupted(args.out)
    if args.format == "json":
        print(json.dumps(rows))
    else:
        print_table(
            ("claim", "verdict", "why"),
            [(str(row["claim"]), verdict(row), short(row["why"])) for row in rows],
            wrapped=("verdict", "why"),
        )
        for text, claims in by_size(rows).items():
            print(f"claims {', '.join(map(str, claims))} at {args.scale} size: {text}")
        print(f"all numbers are in {args.out / 'verdicts.json'}")
    return 1 if any(row.get("failures") for row in rows) else 0


def verdict(row: dict[str, Any]) -> str:
    """The verdict, with its reason if there is one."""
    return (
        f"{row['verdict']}; the reason: {row['reason']}" if "reason" in row else str(row["verdict"])
    )


def by_size(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The sizes that were run -> the claims decided with them."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["played"], []).append(row["claim"])
    return found


def short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " ..."


def write_evidence(args: argparse.Namespace) -> int:
    from tunefree_evidence.claims.evidence import page
    from tunefree_evidence.claims.folder import challenge, pictures, publish, read

    beside = args.page.parent / args.page.stem.lower()
    try:
        if not read(args.out) and not read(beside):
            raise ConfigError(
                f"--out '{args.out}' has no verdicts; decide some claims first, as with "
                "`tunefree-evidence claims 24`"
            )
        publish(args.out, beside)
        rows, drawn = read(beside), pictures(beside)
        links = {figure: f"{beside.name}/{path.name}" for figure, path in drawn.items()}
        args.page.write_text(page(rows, links, challenge(beside)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"-o '{args.page}' cannot be written ({error.strerror})") from error
    result = {"page": str(args.page), "verdicts": len(rows), "pictures": len(drawn)}
    text = f"{args.page} has {len(rows)} verdicts and {len(drawn)} pictures, stored in {beside}"
    print(json.dumps(result) if args.format == "json" else text)
    return 0
