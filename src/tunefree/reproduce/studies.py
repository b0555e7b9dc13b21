"""Claims reproduced: plan what they need, play it once, decide each, keep the verdicts.

A folder holds the run files of every size, what was measured for the theorems, the pictures, and
verdicts.json. Asking again plays only what is not there; studies are independent, so that one that
fails is reported and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple, TypeAlias

from tunefree import config
from tunefree.config import Config
from tunefree.errors import ConfigError, FleetError, RecordError, WireError
from tunefree.experiments import arms, atomic_file, tune
from tunefree.experiments.batch import PlannedRun, Result, Role, is_finished, plan, run_all
from tunefree.experiments.compare import with_seed
from tunefree.experiments.sweep import theory_of
from tunefree.experiments.tune import Search, Trial, TuningResult
from tunefree.fleet.pool import cores
from tunefree.plots.panels import Panel
from tunefree.plots.panels import save as save_panels
from tunefree.reproduce import estimate, figures, recipes, theory
from tunefree.reproduce.checks import Curve, Table, late_score
from tunefree.reproduce.claims import CLAIMS, FIGURES, SENTENCES, STUDIES, study_of
from tunefree.reproduce.estimate import Estimator, in_words
from tunefree.reproduce.folder import PICTURES, Row, keep
from tunefree.reproduce.recipes import TUNING_SEED, Scale, Setting
from tunefree.reproduce.theory import Law, Measurement
from tunefree.reproduce.verdicts import Verdict

THEORY_ROUNDS: Mapping[Scale, int] = {"smoke": 64, "small": 4096, "paper": 16384}
THEORY_SEEDS: Mapping[Scale, tuple[int, ...]] = {
    "smoke": (0, 1),
    "small": tuple(range(5)),
    "paper": tuple(range(10)),
}

Key: TypeAlias = tuple[str, str]  # setting and arm
Failures: TypeAlias = list[tuple[Key, str]]
Say: TypeAlias = Callable[[str], None]


class Order(NamedTuple):
    """What is asked for."""

    claims: Sequence[int]
    scale: Scale
    folder: Path
    seeds: tuple[int, ...] = ()  # none: those of the size
    workers: int = 0

    @property
    def runs(self) -> Path:
        return self.folder / self.scale

    def picture(self, name: str) -> Path:
        return self.folder / PICTURES / f"{name}-{self.scale}.png"

    @property
    def arm_seeds(self) -> tuple[int, ...]:
        return self.seeds or recipes.SEEDS[self.scale]

    @property
    def theory_seeds(self) -> tuple[int, ...]:
        return self.seeds or THEORY_SEEDS[self.scale]

    def laws(self, claim: int) -> tuple[Path, list[Law]]:
        """What a theorem promises, and the file that holds what was measured of it."""
        rows = theory.laws(claim, THEORY_ROUNDS[self.scale])
        what = json.dumps([claim, self.theory_seeds, rows], default=asdict)
        mark = hashlib.sha256(what.encode()).hexdigest()[:12]
        return self.runs / f"theory-{claim}-{mark}.json", rows

    def command(self, claim: int) -> str:
        seeds = f" --seeds {' '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"tunefree reproduce {claim} --scale {self.scale}{seeds}"

    def studies(self) -> dict[str, list[int]]:
        """The claims by study, in the order of studies."""
        found = {study: [c for c in self.claims if study_of(c) == study] for study in STUDIES}
        return {study: claims for study, claims in found.items() if claims}


def reproduce(order: Order, say: Say) -> Iterator[Row]:
    """Decide the claims study by study; each verdict is kept as soon as it is known."""
    studies = order.studies()
    left = {} if order.scale == "smoke" else estimates(order)
    if left:
        say(f"about {in_words(sum(left.values()))} in all; what is finished is not played again")
    for study, claims in studies.items():
        say(f"{study}: claims {', '.join(map(str, claims))}")
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


def row_of(order: Order, claim: int, verdict: Verdict, seeds: Sequence[int]) -> Row:
    """A verdict as it is written; at smoke size nothing is ever decided."""
    smoke = order.scale == "smoke"
    why = f"smoke size only shows that it runs; {verdict.why}" if smoke else verdict.why
    return {
        "claim": claim,
        "sentence": SENTENCES[claim],
        "verdict": "not decided" if smoke else verdict.word,
        "parts": [{**part._asdict(), "value": json_value(part.value)} for part in verdict.parts],
        "numbers": {what: json_value(value) for what, value in verdict.numbers.items()},
        "seeds": list(seeds),
        "scale": order.scale,
        "command": order.command(claim),
        "why": why,
    }


def json_value(value: float | str) -> float | str | None:
    """The same, or nothing in place of what JSON has no word for."""
    return None if isinstance(value, float) and math.isnan(value) else value


def decide_study(order: Order, claims: Sequence[int], say: Say) -> Iterator[Row]:
    """The verdicts of one study."""
    needs = union(claims)
    try:
        plans = Plans(order, needs)
        say(f"  {plans.size}")
        found, lost = search(plans, say)
        table, failures = run_arms(plans, found)
        failures += lost
    except (ConfigError, FleetError, RecordError, WireError, OSError) as error:
        say(f"  failed: {error}")
        for claim in claims:
            failed = Verdict("not decided", {}, f"failed: {error}")
            yield {**row_of(order, claim, failed, []), "failures": 1}
        return
    for claim in claims:
        mine = set(union([claim]))
        part = {key: curves for key, curves in table.items() if key in mine}
        verdict = CLAIMS[claim].check(order.scale)(part)
        bad = [text for key, text in failures if key in mine]
        if bad:
            why = f"{len(bad)} runs failed: {bad[0]}; without them: {verdict.why}"
            verdict = verdict._replace(word="not decided", why=why)
        seeds = sorted({seed for curves in part.values() for seed in curves})
        yield {
            **row_of(order, claim, verdict, seeds),
            "failures": len(bad),
            "finals": finals(part),
            "tuned": bills(found, mine, plans),
        }
    for name, own in wholly(claims).items():
        if name in figures.KINDS:
            part = {key: table[key] for key in union(own) if key in table}
            draw(figures.KINDS[name](part, order.scale), order.picture(name), say)


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


def finals(table: Table) -> list[Row]:
    """How every arm ended; arms at written step sizes are left to the picture."""
    rows = []
    for (where, arm), curves in table.items():
        scored = [c for c in curves.values() if any("accuracy" in row for row in c.history)]
        if scored and not recipes.swept_step(arm):
            ends = [late_score(curve) for curve in scored]
            spread = stdev(ends) if len(ends) > 1 else 0.0
            lost = sum(curve.diverged for curve in scored)
            rows.append(
                {"where": where, "arm": arm, "accuracy": round(fmean(ends), 4)}
                | {"spread": round(spread, 4), "diverged": lost}
            )
    return rows


def union(claims: Iterable[int]) -> list[Key]:
    """Every arm that one of the claims needs, once."""
    keys = ((w, arm) for claim in claims for w, each in CLAIMS[claim].needs.items() for arm in each)
    return list(dict.fromkeys(keys))


class Plans:
    """What a study's arms come to: settings to be tuned, and runs."""

    def __init__(self, order: Order, needs: Sequence[Key]) -> None:
        self.order, self.needs = order, needs
        self._configs: dict[Key, Config] = {}
        self.settings = recipes.settings(order.scale)
        self.searches = {
            (self.settings[where].tuned_in or where, arm): None
            for where, arm in needs
            if recipes.is_tuned(arm)
        }

    def configure(self, where: str, arm: str) -> Config:
        """The arm's settings, steps that are to be tuned left out."""
        if (where, arm) not in self._configs:
            self._configs[where, arm] = self._configure(where, arm)
        return self._configs[where, arm]

    def _configure(self, where: str, arm: str) -> Config:
        keys = dict(self.settings[where].settings)
        spec = arms.parse_arm(arm)
        if spec.name == "defedavg_niid":
            keys["schedule.dispatch"] = "queue"  # the method's own rule
        if recipes.swept_step(arm):
            keys["run.eval_every"] = keys["system.T"]  # only its end is looked at
        return arms.configure(spec, config.load(None, keys))[0]

    def search(self, where: str, arm: str) -> Search:
        """The search for an arm's steps, on samples held out, scored once at the end."""
        full = self.configure(where, arm)
        trial = replace(
            full,
            data=replace(full.data, validation=tune.SHARE),
            run=replace(full.run, eval_every=full.system.T),
        )
        grid = recipes.grid_of(arms.parse_arm(arm).name, self.order.scale)
        return Search(trial, grid, self.order.runs)

    def seeds(self, where: str, arm: str) -> tuple[int, ...]:
        setting: Setting = self.settings[where]
        few = setting.sweep_seeds if recipes.swept_step(arm) else setting.seeds
        return self.order.arm_seeds[:few]

    def runs(self, found: Mapping[Key, TuningResult]) -> dict[Key, list[PlannedRun]]:
        """The runs of every arm whose steps are known."""
        planned: dict[Key, list[PlannedRun]] = {}
        for where, arm in self.needs:
            full, facts = self.configure(where, arm), dict[str, object]()
            if recipes.is_tuned(arm):
                tuned = found.get((self.settings[where].tuned_in or where, arm))
                if tuned is None:
                    continue
                full = replace(full, algorithm=replace(full.algorithm, options=tuned.options))
                facts["tuning"] = tuned.bill
            step = recipes.swept_step(arm)
            if step:
                facts["sweep"] = sweep_fact(full, step)
            role: Role = "sweep" if step else "arm"
            planned[where, arm] = [
                plan(self.order.runs, arm, with_seed(full, seed), role, facts)
                for seed in self.seeds(where, arm)
            ]
        return planned

    def trials(self) -> Iterator[PlannedRun]:
        """The searches before they grow."""
        for key in self.searches:
            search = self.search(*key)
            yield from (search.plan(point, TUNING_SEED) for point in search.points)

    def unfinished(self) -> list[Config]:
        """The settings of trials and runs that are not there yet, for an estimate.

        Runs at steps that a search is still to find are counted whether they are there or not.
        """
        known = (run for runs in self.runs({}).values() for run in runs)
        left = [run.config for run in (*self.trials(), *known) if not is_finished(run)]
        tuned = ((where, arm) for where, arm in self.needs if recipes.is_tuned(arm))
        return left + [self.configure(*key) for key in tuned for _ in self.seeds(*key)]

    @property
    def size(self) -> str:
        finals = sum(len(self.seeds(where, arm)) for where, arm in self.needs)
        return f"{len(list(self.trials()))} tuning trials or more, {finals} runs"


def sweep_fact(config: Config, step: str) -> dict[str, object]:
    """Which step size a run stands for, and what the formulas would give."""
    chosen = config.algorithm
    theory = theory_of(chosen.name, step, config)
    return {"over": step, "value": chosen.options[step], "theory": theory}


def search(plans: Plans, say: Say) -> tuple[dict[Key, TuningResult], Failures]:
    """Tune all arms of a study that need it, their trials side by side; and what went wrong."""
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


def run_once(runs: Iterable[PlannedRun], workers: int) -> dict[Path, Result]:
    """Play runs of which several may be the same."""
    different = {run.path: run for run in runs}
    return dict(zip(different, run_all(list(different.values()), workers), strict=True))


def run_arms(plans: Plans, found: Mapping[Key, TuningResult]) -> tuple[Table, Failures]:
    """The curves of all arms, and what went wrong."""
    planned = plans.runs(found)
    results = run_once((run for runs in planned.values() for run in runs), plans.order.workers)
    table: dict[Key, dict[int, Curve]] = {}
    failures = [(key, "no trial came to its end") for key in plans.needs if key not in planned]
    for key, runs in planned.items():
        table[key] = {}
        for run in runs:
            result, T = results[run.path], run.config.system.T
            if result.state == "failed":
                failures.append((key, f"{run.name}: {result.reason}"))
            else:
                diverged = result.state == "diverged"
                table[key][run.config.run.seed] = Curve(result.history, T, diverged)
    return table, failures


def bills(found: Mapping[Key, TuningResult], mine: set[Key], plans: Plans) -> dict[str, str]:
    """For each tuned arm the values found and what finding them took."""
    said = {}
    for where, arm in sorted(mine):
        source = plans.settings[where].tuned_in or where
        if (source, arm) in found and where == source:
            tuned = found[source, arm]
            values = ", ".join(f"{name} = {tuned.options[name]:g}" for name in tuned.grid)
            bill = tuned.bill
            said[f"{where} {arm}"] = (
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
