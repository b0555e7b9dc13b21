"""Reproducing claims: plan their runs, run each once, decide each claim, store the verdicts.

A folder has the run files of every size, the measurements for the theorems, the pictures, and
verdicts.json. A second call runs only what is missing; studies are independent: one that fails is
reported and the others continue.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tunefree.errors import ConfigError, FleetError, RecordError, WireError
from tunefree.search import Trial, TuningResult
from tunefree_evidence.claims import estimate, figures, theory
from tunefree_evidence.claims.checks import Table
from tunefree_evidence.claims.claims import FIGURES
from tunefree_evidence.claims.estimate import Estimator, in_words
from tunefree_evidence.claims.folder import save
from tunefree_evidence.claims.own_units import OwnUnits
from tunefree_evidence.claims.plans import Failures, Key, Order, Plans, run_once, run_planned, union
from tunefree_evidence.claims.recipes import TUNING_SEED
from tunefree_evidence.claims.rows import finals, judge, row_of
from tunefree_evidence.claims.sizes import describe
from tunefree_evidence.claims.theory import Law, Measurement
from tunefree_evidence.claims.verdicts import Row, Verdict
from tunefree_evidence.figures.panels import Panel
from tunefree_evidence.figures.panels import save as save_panels
from tunefree_evidence.machine import cores, write_whole

WRONG = (ConfigError, FleetError, RecordError, WireError, OSError)  # how a study may fail

Log: TypeAlias = Callable[[str], None]


def decide_all(order: Order, log: Log) -> Iterator[Row]:
    """Decide the claims study by study; each verdict is stored as soon as it is known."""
    if TUNING_SEED in order.seeds:
        raise ConfigError(
            f"--seeds {TUNING_SEED} is the seed that methods are tuned with; choose others"
        )
    studies = order.studies()
    left = {} if order.scale == "smoke" else estimates(order)
    if left:
        log(f"about {in_words(sum(left.values()))} in all; finished runs are not repeated")
    for study, claims in studies.items():
        log(f"{study}: claim{'s' * (len(claims) > 1)} {', '.join(map(str, claims))}")
        log(f"  {order.scale} size: {describe(study, order.scale, order.seeds)}")
        if left:
            own, all_left = left.get(study, 0.0), sum(left.values())
            log(f"  about {in_words(own)}; {in_words(all_left)} with all later studies")
        verdicts = (
            decide_theorems(order, claims, log)
            if study == "theory"
            else decide_study(order, claims, log)
        )
        for row in verdicts:
            save(order.folder, row)
            yield row
        left.pop(study, None)


def estimates(order: Order) -> dict[str, float]:
    """Seconds that each study still takes, from the time of a gradient on this machine.

    A study whose data are missing has no estimate.
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
            continue  # reported when the study runs
        found[study] = seconds / (order.workers or cores())
    return found


def decide_study(order: Order, claims: Sequence[int], log: Log) -> Iterator[Row]:
    """The verdicts of one study."""
    try:
        plans = Plans(order, union(claims))
        log(f"  {plans.size}")
        found, failures = search(plans, log)
        planned = plans.runs(found)
        table, lost = run_planned(planned, order.workers)
    except WRONG as error:
        log(f"  failed: {error}")
        for claim in claims:
            failed = Verdict("not decided", {}, f"failed: {error}")
            yield {**row_of(order, claim, failed, []), "failures": 1}
        return
    failures += lost
    failures += [(key, "no trial finished") for key in plans.needs if key not in planned]
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
            "tuned": tuning_bills(found, mine, plans),
            **(in_own_units(units, claim, part, log) if ask else {}),
        }
    for name, own in complete_figures(claims).items():
        if name in figures.KINDS:
            part = {key: table[key] for key in union(own) if key in table}
            draw(figures.KINDS[name](part, order.scale), order.picture(name), log)


def in_own_units(units: OwnUnits, claim: int, table: Table, log: Log) -> Row:
    """The claim's verdict in own units; nothing if it has none, and the reason is logged."""
    log(f"  claim {claim} again, with step sizes in the model's own unit of length")
    try:
        found = units.decide(claim, table)
    except WRONG as error:
        log(f"  failed: {error}")
        return {}
    if not found:
        log("  none of its methods takes its step sizes from a theorem")
    return found


def draw(panels: Sequence[Panel], path: Path, log: Log) -> None:
    """Save a picture and log where it is, or why there is none."""
    if not panels:
        log(f"  no picture of {path.stem}: no runs")
        return
    try:
        log(f"  picture in {save_panels(panels, path)}")
    except ConfigError as error:
        log(f"  no picture: {error}")


def complete_figures(claims: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The figures all of whose claims are among these."""
    return {name: own for name, own in FIGURES.items() if set(own) <= set(claims)}


def search(plans: Plans, log: Log) -> tuple[dict[Key, TuningResult], Failures]:
    """Tune all methods of a study that need it, in parallel; and the trials that failed."""
    failures: Failures = []
    searches = {key: plans.search(*key) for key in plans.searches}
    new = {key: search.points for key, search in searches.items()}
    while any(new.values()):
        runs = {
            (key, point): searches[key].plan(point, TUNING_SEED)
            for key, points in new.items()
            for point in points
        }
        log(f"  tuning: {len(runs)} trials")
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


def tuning_bills(found: Mapping[Key, TuningResult], mine: set[Key], plans: Plans) -> dict[str, str]:
    """For each tuned method the values found, and the trials and rounds of the search."""
    bills = {}
    for where, method in sorted(mine):
        source = plans.settings[where].tuned_in or where
        if (source, method) in found and where == source:
            tuned = found[source, method]
            values = ", ".join(f"{name} = {tuned.options[name]:g}" for name in tuned.grid)
            bill = tuned.bill
            bills[f"{where} {method}"] = (
                f"{values} in {bill['trials']:.0f} trials, {bill['rounds']:,.0f} rounds"
            )
    return bills


def decide_theorems(order: Order, claims: Sequence[int], log: Log) -> Iterator[Row]:
    """The verdicts on theorems; measurements are stored and not repeated."""
    laws: dict[int, list[Measurement]] = {}
    for claim in claims:
        path, rows = order.laws(claim)
        if path.exists():
            found = [Measurement(**each) for each in json.loads(path.read_text())]
        else:
            found = measure(claim, rows, order, log)
            write_whole(path, json.dumps([each._asdict() for each in found]))
        laws[claim] = found
        yield row_of(order, claim, theory.verdict(claim, laws[claim]), order.theory_seeds)
    for name, own in complete_figures(claims).items():
        shown = [law for claim in own for law in laws[claim] if law.power is not None]
        draw(figures.of_laws(shown), order.picture(name), log)


def measure(claim: int, rows: Sequence[Law], order: Order, log: Log) -> list[Measurement]:
    reported = 0
    for news in theory.measure_laws(rows, order.theory_seeds, order.workers or cores()):
        if isinstance(news, list):
            return news
        done, of = news
        if done * 4 // of > reported:
            reported = done * 4 // of
            log(f"  claim {claim}: {done} of {of} trajectories")
    raise AssertionError("measure_laws ends with the measurements")
