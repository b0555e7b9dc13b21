"""`tunefree run`: train, and say what was done and what it cost."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree import config
from tunefree.cli import settings
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.run import Run


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="settings")
    settings.add_flags(command)
    command.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with an unfinished run file"
    )
    command.set_defaults(act=run_command)


def run_command(args: argparse.Namespace) -> int:
    from tunefree.api import prepare, resumed
    from tunefree.errors import WireError
    from tunefree.progress import show_progress as shown
    from tunefree.run import how_to_go_on

    flags = {key: getattr(args, key) for key, *_ in config.flags()}
    given = {key: value for key, value in flags.items() if value is not None}
    if args.resume is None:
        more = dict(config.parsed(each) for each in args.set)
        run = prepare(config.load(args.file, given | more))
    else:
        refuse_settings(given, bool(args.set or args.file))
        fleet, workers = given.get("run.fleet", "auto"), given.get("run.workers", 0)
        run = resumed(args.resume, fleet, workers)
    if args.format == "text":
        print(introduction(run))
    stop = Stop()
    try:
        with stop:
            for _ in shown(run):
                if stop.asked:
                    break
    except KeyboardInterrupt:
        stop.asked = True
    except WireError as error:
        print(f"tunefree: {error}; what came before is kept in {run.record.path}", file=sys.stderr)
        return 1
    if stop.asked and run.record.state != "done":
        print(
            f"\ninterrupted; what was done is kept in {run.record.path}\n"
            f"go on with: {how_to_go_on(run.record)}",
            file=sys.stderr,
        )
        return 130
    result = summary(run)
    print(json.dumps(result) if args.format == "json" else closing(result))
    return 0


def refuse_settings(given: dict[str, object], more: bool) -> None:
    """A run that goes on keeps its settings; only where its clients run may change."""
    wrong = sorted(set(given) - {"run.fleet", "run.workers"})
    if wrong or more:
        what = f"{', '.join(wrong)} cannot be given" if wrong else "no settings can be given"
        raise ConfigError(
            f"{what} with --resume: a run goes on with the settings it began with; leave it out, "
            "or begin a new run"
        )


class Stop:
    """Ctrl-C or a polite kill: once ends the run after its step, twice ends it at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nending after this round; once more to end at once", file=sys.stderr)


def introduction(run: Run) -> str:
    """What will be done, with every step size and the formula it came from."""
    from tunefree.algorithms import REGISTRY
    from tunefree.conformance.cost import costs

    chosen = run.record.facts()["config"]
    N, S, K, T = run.algo.sys
    about = REGISTRY[chosen["algorithm"]["name"]].about
    d = run.objective.d
    prices = costs(run.algo, d)
    down = size(32 * d * S * prices[0].down)
    ups = (size(32 * d * S * up) for up in sorted({price.up for price in prices}))
    lines = [
        f"{about.title} ({about.paper})",
        f"  N = {N} clients, S = {S} a round, K = {K} local steps, T = {T} rounds",
    ]
    for name, value in run.record.facts()["steps"].items():
        theory = name in about.steps and name not in chosen["algorithm"]["options"]
        source = f"= {about.steps[name]}" if theory else "chosen by hand"
        lines.append(f"  {name:<5} = {value:<9.4g} {source}")
    if compressor := run.record.facts().get("compressor"):
        lines.append(f"  compressor {compressor}")
    data, model = chosen["data"], chosen["model"]
    if (last := run.record.last()) is not None:
        lines.append(f"  goes on after round {last[0] + 1}")
    lines += [
        f"  data {data['name']}, {data['partition']}, batches of {data['batch_size']}",
        f"  model {model['name']}, d = {d:,} parameters; a round sends {down} down and "
        f"{' or '.join(ups)} up",
        f"  run file {run.record.path}",
    ]
    return "\n".join(lines)


def summary(run: Run) -> dict[str, Any]:
    """The result as one object."""
    chosen, last = run.record.facts()["config"], run.history[-1]
    return {
        "algorithm": chosen["algorithm"]["name"],
        "data": chosen["data"]["name"],
        "partition": chosen["data"]["partition"],
        "validation": chosen["data"].get("validation", 0),
        "model": chosen["model"]["name"],
        "parameters": run.objective.d,
        "system": run.algo.sys._asdict(),
        "steps": run.record.facts()["steps"],
        "compressor": run.record.facts().get("compressor"),
        "seed": chosen["run"]["seed"],
        "accuracy": last.get("accuracy"),
        "loss": last["loss"],
        "train_loss": last["train_loss"],
        "grad_norm": last.get("grad_norm"),
        "bits_up": last["bits_up"],
        "bits_down": last["bits_down"],
        "value_bits_up": last["value_bits_up"],
        "value_bits_down": last["value_bits_down"],
        "samples": last["drawn"],
        "virtual_seconds": last["time"],
        "staleness": run.record.staleness(),
        "uploads": sorted(run.record.uploads().values()),
        "absent": len(run.record.absences()),
        "seconds": last["seconds"],
        "seconds_per_round": last["seconds"] / run.algo.sys.T,
        "theta_sha256": run.theta_sha256,
        "run": str(run.record.path),
    }


def closing(result: dict[str, Any]) -> str:
    """The result in a few lines, and what to type next."""
    accuracy, whole = result["accuracy"], 32 * result["parameters"]
    score = f"loss {result['loss']:.4f}, training loss {result['train_loss']:.4f}"
    judge = "validation" if result["validation"] else "test"
    up, down = result["bits_up"], result["bits_down"]
    bare_up, bare_down = result["value_bits_up"], result["value_bits_down"]
    lines = [
        score if accuracy is None else f"{judge} accuracy {accuracy:.4f}, {score}",
        f"  sent {size(up)} up and {size(down)} down, the opening included, the size of "
        f"{count(up / whole)} and {count(down / whole)} models",
    ]
    if (bare_up, bare_down) != (up, down):
        lines.append(
            f"  without the positions of values, as some papers count: {size(bare_up)} up and "
            f"{size(bare_down)} down"
        )
    if result["virtual_seconds"]:
        late, uploads = result["staleness"], result["uploads"]
        mean = sum(tau * count for tau, count in late.items()) / sum(late.values())
        lines.append(
            f"  {result['virtual_seconds']:,.0f} virtual seconds; staleness {mean:.2f} on average, "
            f"{max(late)} at most; {uploads[0]} to {uploads[-1]} uploads of a client heard"
        )
    if result["absent"]:
        lines.append(f"  {result['absent']} replies were missing or refused: see `tunefree show`")
    return "\n".join(
        [
            *lines,
            f"  drew {result['samples']:,} samples in {result['seconds']:.1f} s, "
            f"{result['seconds_per_round']:.3f} s a round",
            f"  run file {result['run']}, theta {result['theta_sha256'][:12]}",
            "next: the same with a method that needs tuning, at a step size of your choice:",
            f"  tunefree run --algorithm fedavg --set algorithm.eta=0.1 --data {result['data']}",
        ]
    )


def count(models: float) -> str:
    """
    >>> count(0.266), count(1234.5)
    ('0.27', '1,234')
    """
    return f"{models:,.0f}" if models >= 10 else f"{models:.2g}"


def size(bits: float) -> str:
    """Bits in bytes that people read.

    >>> size(8_000_000)
    '1.0 MB'
    """
    amount = bits / 8
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
