"""Whether a claim does not hold because of the step sizes or because of the method.

The papers' theorems give eta and gamma as pure numbers, although they are lengths. A method's twin
multiplies both by ||theta0||, the norm of its run's initial model, which is the model's own unit of
length; beta has no unit and stays. The claim is then decided again, with the methods replaced by
their twins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tunefree import models
from tunefree.data import load
from tunefree.search import MethodSpec, PlannedRun, Settings, parse_method, plan, with_seed
from tunefree_evidence.claims import recipes
from tunefree_evidence.claims.checks import Table
from tunefree_evidence.claims.claims import study_of
from tunefree_evidence.claims.plans import Plans, run_planned
from tunefree_evidence.claims.rows import finals, judge, words_of
from tunefree_evidence.claims.verdicts import REASONS, Row

METHODS = ("padamfed", "padamfed_vr", "parfrefl", "comparfrefl", "adamasfl")
STEPS = ("eta", "gamma")
SUFFIX = ", own units"


def has_twin(claim: int, method: str) -> bool:
    """Whether the method takes its step sizes from a theorem that gives them as pure numbers."""
    of_papers = parse_method(method).name in METHODS
    return of_papers and not recipes.swept_step(method) and study_of(claim) != "wire"


class OwnUnits:
    """The twins of a study's methods; each data set is loaded once to build its models."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._lengths: dict[str, Mapping[int, float]] = {}

    def decide(self, claim: int, table: Table) -> Row:
        """The claim's verdict with its twins, and the reason; nothing if it has no twins."""
        keys = [(where, method) for where, method in table if has_twin(claim, method)]
        if not keys:
            return {}
        order = self._plans.order
        curves, failures = run_planned({key: self.twins(*key) for key in keys}, order.workers)
        swapped = {**table, **curves}
        found = words_of(judge(claim, order.scale, swapped, failures), order.scale)
        ends = [
            {**row, "method": row["method"] + SUFFIX} if has_twin(claim, row["method"]) else row
            for row in finals(swapped)
        ]
        return {"own_units": {**found, "finals": ends}, "reason": REASONS[found["verdict"]]}

    def twins(self, where: str, method: str) -> list[PlannedRun]:
        """The method's runs with its formulas' steps multiplied by ||theta0||."""
        full = self._plans.configure(where, method)
        seeds = self._plans.seeds(where, method)
        lengths, label = self.lengths(full), method + SUFFIX
        return [
            plan(self._plans.order.runs, label, with_seed(in_units(full, lengths[s]), s), "method")
            for s in seeds
        ]

    def lengths(self, config: Settings) -> Mapping[int, float]:
        """||theta0|| for each seed."""
        kind = repr((config.data, config.data_option, config.model, config.model_option))
        if kind not in self._lengths:
            self._lengths[kind] = lengths(config, self._plans.order.run_seeds)
        return self._lengths[kind]


def lengths(config: Settings, seeds: Sequence[int]) -> dict[int, float]:
    data = load(config.data, config.data_dir or None, **config.data_option)
    name, shape, classes = config.model or data.model, data.train.input_shape, data.classes
    built = {s: models.build(name, shape, classes, config.model_option, s) for s in seeds}
    return {
        seed: float(models.Objective(module).theta0.double().norm())
        for seed, module in built.items()
    }


def in_units(config: Settings, length: float) -> Settings:
    """Both steps multiplied and rounded to six digits, so that rounding changes no run's name."""
    compressor = {"compressor": config.compressor} if config.compressor else {}
    options: dict[str, object] = {**config.option, **compressor}
    method = MethodSpec(config.algorithm, options).bound(config.system)
    steps = {name: float(f"{length * getattr(method, name):.6g}") for name in STEPS}
    return replace(config, option={**config.option, **steps}, explicit_steps=True)
