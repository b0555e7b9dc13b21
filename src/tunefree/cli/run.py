"""`tunefree run`: train, then print the scores and costs."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import Answer
from tunefree.errors import NOTHING, ConfigError

if TYPE_CHECKING:
    from tunefree.record import Facts, Summary


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "[FILE.toml]", "a settings file", Path)
    flags.add_flags(command)
    resumed = "resume this run file; --rounds may be raised if no step size depends on T"
    flags.add(command, "--resume RUN", resumed, Path)
    readmit = "with --resume: ask these clients again, which are in quarantine"
    flags.add(command, "--readmit CLIENT ...", readmit, int, [])
    without = "with --resume: leave these clients out for good, with what the server remembers"
    flags.add(command, "--without CLIENT ...", without, str, [])
    back = "with --resume: go back to the end of this round first, and forget what came after it"
    flags.add(command, "--from-round ROUND", back, int)
    command.set_defaults(act=run_command)


def run_command(args: argparse.Namespace) -> Answer | int:
    from tunefree import derive
    from tunefree.errors import WireError
    from tunefree.run.progress import Stop, show_progress
    from tunefree.run.run import prepare, resume_command
    from tunefree.run.text import introduction

    if args.resume is None and (args.readmit or args.without or args.from_round is not None):
        raise ConfigError(
            "--readmit, --without and --from-round need --resume RUN: a new run has not begun"
        )
    if args.resume is None:
        run = prepare(derive.settings(args.file, flags.given_by(args)))
    else:
        given = flags.flags_given(args)
        refuse_settings(given, bool(args.set or args.file))
        fleet, workers = given.get("fleet", "auto"), given.get("workers", 0)
        more = args.readmit, args.without, args.from_round
        run = resume_command(args.resume, fleet, workers, given.get("rounds"), *more)
    if args.format == "text":
        print(introduction(run))
        if run.step is not None:
            print(f"  resumes after round {run.step.t + 1}")
    stop = Stop(signal.SIGINT, signal.SIGTERM)
    try:
        with stop:
            for _ in show_progress(run):
                if stop.asked:
                    break
    except KeyboardInterrupt:
        stop.asked = True
    except WireError as error:
        print(f"tunefree: {error}; earlier rounds are saved in {run.record.path}", file=sys.stderr)
        return 1
    if stop.asked and run.record.state != "done":
        print(
            f"\ninterrupted; finished rounds are saved in {run.record.path}\n"
            f"resume with: {run.record.facts().how_to_resume(run.record.path)}",
            file=sys.stderr,
        )
        return 130
    summary, sha = run.record.summary(), run.record.theta_sha256()
    return Answer({**summary.as_dict(), "theta_sha256": sha}, closing(summary, sha))


def refuse_settings(given: dict[str, object], more: bool) -> None:
    """A resumed run keeps its settings, except the rounds and where its clients run."""
    wrong = sorted(set(given) - {"fleet", "workers", "rounds"})
    if wrong or more:
        words = ", ".join(flags.typed(name, NOTHING) for name in wrong)
        what = f"{words} cannot be given" if wrong else "no settings can be given"
        raise ConfigError(
            f"{what} with --resume: a run resumes with the settings it started with; remove them, "
            "or start a new run"
        )


def closing(run: Summary, theta_sha256: str) -> list[str]:
    """The result in a few lines, and what to type next."""
    from tunefree.record.summary import BITS, on_clients, size

    facts, total, whole = run.facts, run.total, 32 * run.facts.parameters
    loss, train_loss, accuracy = map(run.last, ("loss", "train_loss", "accuracy"))
    score = f"loss {loss:.4f}"
    if train_loss is not None:  # it is not computed with privacy
        score += f", training loss {train_loss:.4f}"
    if (spent := run.last("epsilon")) is not None:
        score += f", epsilon {spent:.3g} of {facts.privacy['epsilon']:g}"
    up, down, value_up, value_down = map(total, BITS)
    opening = ", the opening included," if run.rows and run.rows[0]["bits_up"] else ","
    lines = [
        score if accuracy is None else f"{run.scored_on} accuracy {accuracy:.4f}, {score}",
        f"  sent {size(up)} up and {size(down)} down{opening} the size of "
        f"{count(up / whole)} and {count(down / whole)} models",
    ]
    if (value_up, value_down) != (up, down):
        lines.append(
            f"  without the positions of values, as some papers count: {size(value_up)} up and "
            f"{size(value_down)} down"
        )
    if total("virtual_seconds"):
        late, uploads = run.staleness, run.uploads.values()
        mean = sum(tau * times for tau, times in late.items()) / sum(late.values())
        lines.append(
            f"  {total('virtual_seconds'):,.0f} virtual seconds; staleness {mean:.2f} on average, "
            f"{max(late)} at most; {min(uploads)} to {max(uploads)} uploads per sampled client"
        )
    if absent := sum(run.absences.values()):
        lines.append(f"  {absent} replies were missing or refused: see `tunefree show`")
    if facts.attack:
        lines.append(f"  {facts.attack_words}")
    lines += on_clients(run)
    return [
        *lines,
        f"  drew {total('samples'):,} samples in {total('seconds'):.1f} s, "
        f"{run.seconds_per_round:.3f} s per round",
        f"  run file {run.path}, theta {theta_sha256[:12]}",
        *suggestion(facts),
    ]


def suggestion(facts: Facts) -> list[str]:
    """What to type next: the same run with a method of the other kind."""
    same = flags.flags_of(facts)
    if not facts.tuning_free:
        return ["next: the same with nothing to tune:", f"  tunefree run {same}"]
    tuned = "fedbuff" if "--schedule buffered" in same else "fedavg"
    return [
        "next: the same with a method that needs tuning, at a step size of your choice:",
        f"  tunefree run --algorithm {tuned} --set option.eta=0.1 {same}",
    ]


def count(models: float) -> str:
    """
    >>> count(0.266), count(1234.5)
    ('0.27', '1,234')
    """
    return f"{models:,.0f}" if models >= 10 else f"{models:.2g}"
