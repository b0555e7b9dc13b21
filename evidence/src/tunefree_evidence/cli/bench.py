"""`tunefree-evidence bench`: our speed compared with a plain PyTorch loop on this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tunefree.errors import ConfigError
from tunefree_evidence.cli.terminal import check_out, print_table


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "workload",
        nargs="?",
        default="A",
        metavar="WORKLOAD",
        help="A, B, C, C2, D or E (default A)",
    )
    command.add_argument("--rounds", type=int, default=3, metavar="X", help="per turn (default 3)")
    command.add_argument(
        "--turns", type=int, default=5, metavar="X", help="of each contestant (default 5)"
    )
    command.add_argument("--toy", action="store_true", help="tiny sizes, only to see that it runs")
    command.add_argument(
        "--out", type=Path, metavar="X", help="folder for bench-NAME.json and .png"
    )
    command.set_defaults(act=bench_command)


def bench_command(args: argparse.Namespace) -> int:
    if min(args.rounds, args.turns) < 1:
        raise ConfigError("--rounds and --turns must be at least 1")
    if args.out:
        check_out(args.out)
    return scaling_bench(args) if args.workload == "E" else speed_bench(args)


def speed_bench(args: argparse.Namespace) -> int:
    from tunefree_evidence.speed.measure import measure, opening, polar_seconds, shares
    from tunefree_evidence.speed.workloads import workload

    w = workload(args.workload, args.toy)
    start = opening(w)
    times = measure(w, args.rounds, args.turns)
    parts = shares(w, args.rounds)
    best = min(t.median for t in times if t.name.startswith("bare"))
    result = {
        "workload": {**w._asdict(), "options": dict(w.options)},
        "contestants": [
            {
                **{"name": t.name, "first": t.first, "median": t.median, "ratio": t.median / best},
                **{"low": min(t.rounds), "high": max(t.rounds), "rounds": t.rounds},
            }
            for t in times
        ],
        "shares": parts._asdict(),
        "opening": start._asdict(),
        "polar": polar_seconds(w),
    }
    if args.out:
        from tunefree_evidence.figures.bench import draw_times

        save(args.out, w.name, result)
        draw_times(result, args.out / f"bench-{w.name}.png")
    if args.format == "json":
        print(json.dumps(result))
        return 0
    print(f"{w.name}: {w.about}; S = {w.S}, K = {w.K}, batch {w.batch}")
    print_table(
        ("", "s/round", "low-high", "ratio", "first after"),
        [
            (
                *(t.name, f"{t.median:.4f}", f"{min(t.rounds):.4f}-{max(t.rounds):.4f}"),
                *(f"{t.median / best:.2f}", f"{t.first:.1f} s"),
            )
            for t in times
        ],
        right=("s/round",),
    )
    print(
        f"ratio: to the best bare loop. A serial round: {parts.gradients:.0%} gradients, "
        f"{parts.batches:.0%} making batches, {parts.commit:.1%} committing to the run file, "
        f"{parts.rest:.1%} the rest. PolarFL's polar step on the server: {result['polar']:.4f} s.\n"
        f"Pool: ready after {start.data:.1f} s, opening {start.opening:.1f} s, first round "
        f"{start.first:.1f} s; {start.peak:,.0f} MiB with its workers"
    )
    return 0


def scaling_bench(args: argparse.Namespace) -> int:
    from tunefree_evidence.speed.measure import scaling

    sizes = (100, 1000) if args.toy else (10**3, 10**4, 10**5, 10**6)
    rows = list(scaling(sizes, args.rounds * args.turns))
    if args.out:
        save(args.out, "E", [row._asdict() for row in rows])
    if args.format == "json":
        print(json.dumps([row._asdict() for row in rows]))
        return 0
    print("E: softmax regression, S = 100, K = 2, states starting at zero, serial")
    print_table(
        ("clients", "s/round", "peak memory"),
        [(f"{row.N:,}", f"{row.seconds:.4f}", f"{row.peak:,.0f} MiB") for row in rows],
        right=("clients", "s/round", "peak memory"),
    )
    return 0


def save(folder: Path, name: str, numbers: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"bench-{name}.json").write_text(json.dumps(numbers, indent=1))
