"""Claims reproduced: plan what they need, play it once, decide each, keep the verdicts.

A folder holds the run files of every size, what was measured for the theorems, the pictures, and
verdicts.json. Asking again plays only what is not there; studies are independent, so that one that
fails is reported and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tunefree.errors import ConfigError, FleetError, RecordError, WireError
from tunefree.experiments import atomic_file
from tunefree.experiments.tune import Trial, TuningResult
from tunefree.fleet.pool import cores
from tunefree.plots.panels import Panel
from tunefree.plots.panels import save as save_panels
from tunefree.reproduce import estimate, figures, theory
from tunefree.reproduce.checks import Table
from tunefree.reproduce.claims import FIGURES
from tunefree.reproduce.estimate import Estimator, in_words
from tunefree.reproduce.folder import Row, keep
from tunefree.reproduce.own_units import OwnUnits
from tunefree.reproduce.plans import Failures, Key, Order, Plans, play, run_once, union
from tunefree.reproduce.recipes import TUNING_SEED
from tunefree.reproduce.rows import finals, judge, row_of
from tunefree.reproduce.sizes import played
from tunefree.reproduce.theory import Law, Measurement
from tunefree.reproduce.verdicts import Verdict

WRONG = (ConfigError, FleetError, RecordError, WireError, OSError)  # what a study may fail by

Say: TypeAlias = Callable[[str], None]


def reproduce(order: Order, say: Say) -> Iterator[Row]:
    """Decide the claims study by study; each verdict is kept as soon as it is known."""
    if TUNING_SEED in order.seeds:
        raise ConfigError(f"--seeds {TUNING_SEED} is what methods are tuned with; choose others")
    studies = order.studies()
    left = {} if order.scale == "smoke" else estimates(order)
    if left:
        say(f"about {in_words(sum(left.values()))} in all; what is finished is not played again")
    for study, claims in studies.items():
        say(f"{study}: claims {', '.join(map(str, claims))}")
        say(f"  {order.scale} size: {played(study, order.scale, order.seeds)}")
        if left:
            own, all_left = left.get(study, 0.0), sum(left.values())
            say(f"  about {in_words(own)}; {in_words(all_left)} left with what comes after it")
        verdicts = (
            decide_theorems(order, claims, say)
            if study == "theory"
            else decide_study(order, claims, say)
        )
        for row in verdicts:
            keep(order.folder, row)
            yield row
        left.pop(study, None)


def estimates(order: Order) -> dict[str, float]:
    """Seconds that each study still takes, from the time of a gradient on this machine.

    A study whose data are not at hand has none.
    """
    estimator, found = Estimator(), {}
    for study, claims in order.studies().items():
        try:
            if study == "theory":
                laws = (order.laws(claim) for claim in claims)
                rows = [row for path, rows in laws if not path.exists() for row in rows]
                cases = [case for row in rows for case in row.cases.values()]
                seconds = estimate.theory_seconds(cases) * len(order.theory_seeds)
            else:
                seconds = estimator.seconds(Plans(order, union(claims)).unfinished())
        except ConfigError:
            continue  # it will be said when its turn comes
        found[study] = seconds / (order.workers or cores())
    return found


def decide_study(order: Order, claims: Sequence[int], say: Say) -> Iterator[Row]:
    """The verdicts of one study."""
    try:
        plans = Plans(order, union(claims))
        say(f"  {plans.size}")
        found, failures = search(plans, say)
        planned = plans.runs(found)
        table, lost = play(planned, order.workers)
    except WRONG as error:
        say(f"  failed: {error}")
        for claim in claims:
            failed = Verdict("not decided", {}, f"failed: {error}")
            yield {**row_of(order, claim, failed, []), "failures": 1}
        return
    failures += lost
    failures += [(key, "no trial came to its end") for key in plans.needs if key not in planned]
    units = OwnUnits(plans)
    for claim in claims:
        mine = set(union([claim]))
        part = {key: curves for key, curves in table.items() if key in mine}
        bad = [failure for failure in failures if failure[0] in mine]
        verdict = judge(claim, order.scale, part, bad)
        seeds = sorted({seed for curves in part.values() for seed in curves})
        ask = order.own_units and verdict.word == "does not hold"
        yield {
            **row_of(order, claim, verdict, seeds),
            "failures": len(bad),
            "finals": finals(part),
            "tuned": bills(found, mine, plans),
            **(in_own_units(units, claim, part, say) if ask else {}),
        }
    for name, own in wholly(claims).items():
        if name in figures.KINDS:
            part = {key: table[key] for key in union(own) if key in table}
            draw(figures.KINDS[name](part, order.scale), order.picture(name), say)


def in_own_units(units: OwnUnits, claim: int, table: Table, say: Say) -> Row:
    """What the claim's row says of its steps, or nothing and why."""
    say(f"  claim {claim} once more, with the steps in the model's own unit")
    try:
        found = units.decide(claim, table)
    except WRONG as error:
        say(f"  failed: {error}")
        return {}
    if not found:
        say("  no method of it takes its steps from a theorem")
    return found


def draw(panels: Sequence[Panel], path: Path, say: Say) -> None:
    """Save a picture and say where it is, or why there is none."""
    if not panels:
        say(f"  no picture of {path.stem}: nothing was played")
        return
    try:
        say(f"  picture in {save_panels(panels, path)}")
    except ConfigError as error:
        say(f"  no picture: {error}")


def wholly(claims: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The figures all of whose claims are among these."""
    return {name: own for name, own in FIGURES.items() if set(own) <= set(claims)}


def search(plans: Plans, say: Say) -> tuple[dict[Key, TuningResult], Failures]:
    """Tune all methods of a study that need it, their trials side by side; and what went wrong."""
    failures: Failures = []
    searches = {key: plans.search(*key) for key in plans.searches}
    new = {key: search.points for key, search in searches.items()}
    while any(new.values()):
        runs = {
            (key, point): searches[key].plan(point, TUNING_SEED)
            for key, points in new.items()
            for point in points
        }
        say(f"  tuning: {len(runs)} trials")
        results = run_once(runs.values(), plans.order.workers)
        for (key, point), run in runs.items():
            result = results[run.path]
            searches[key].trials[point] = Trial(point, [result])
            if result.state == "failed":
                failures.append((key, f"{run.name}: {result.reason}"))
        grows = plans.order.scale != "smoke"
        new = {key: search.grow() if grows else [] for key, search in searches.items()}
    found = {key: search.result() for key, search in searches.items()}
    return {key: result for key, result in found.items() if result}, failures


def bills(found: Mapping[Key, TuningResult], mine: set[Key], plans: Plans) -> dict[str, str]:
    """For each tuned method the values found and what finding them took."""
    said = {}
    for where, method in sorted(mine):
        source = plans.settings[where].tuned_in or where
        if (source, method) in found and where == source:
            tuned = found[source, method]
            values = ", ".join(f"{name} = {tuned.options[name]:g}" for name in tuned.grid)
            bill = tuned.bill
            said[f"{where} {method}"] = (
                f"{values} in {bill['trials']:.0f} trials, {bill['rounds']:,.0f} rounds"
            )
    return said


def decide_theorems(order: Order, claims: Sequence[int], say: Say) -> Iterator[Row]:
    """The verdicts on theorems; what was measured is kept and not measured again."""
    laws: dict[int, list[Measurement]] = {}
    for claim in claims:
        path, rows = order.laws(claim)
        if path.exists():
            found = [Measurement(**each) for each in json.loads(path.read_text())]
        else:
            found = measure(claim, rows, order, say)
            atomic_file.write(path, json.dumps([each._asdict() for each in found]))
        laws[claim] = found
        yield row_of(order, claim, theory.verdict(claim, found), order.theory_seeds)
    for name, own in wholly(claims).items():
        shown = [law for claim in own for law in laws[claim] if law.power is not None]
        draw(figures.of_laws(shown), order.picture(name), say)


def measure(claim: int, rows: Sequence[Law], order: Order, say: Say) -> list[Measurement]:
    told = 0
    for news in theory.measure_laws(rows, order.theory_seeds, order.workers or cores()):
        if isinstance(news, list):
            return news
        done, of = news
        if done * 4 // of > told:
            told = done * 4 // of
            say(f"  claim {claim}: {done} of {of} plays")
    raise AssertionError("measure_laws ends with what was measured")
