"""A verdict as it is stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from tunefree_evidence.claims import recipes
from tunefree_evidence.claims.checks import Table, late_score
from tunefree_evidence.claims.claims import CLAIMS, SENTENCES, study_of
from tunefree_evidence.claims.plans import Failures, Order
from tunefree_evidence.claims.recipes import Scale
from tunefree_evidence.claims.sizes import describe
from tunefree_evidence.claims.verdicts import Row, Verdict


def judge(claim: int, scale: Scale, table: Table, failures: Failures) -> Verdict:
    """The verdict of the claim's check on its methods' curves; not decided if a run failed."""
    verdict = CLAIMS[claim].check(scale)(table)
    if not failures:
        return verdict
    why = f"{len(failures)} runs failed: {failures[0][1]}; without them: {verdict.why}"
    return verdict._replace(word="not decided", why=why)


def row_of(order: Order, claim: int, verdict: Verdict, seeds: Sequence[int]) -> Row:
    """The claim's verdict, and the command that repeats it."""
    return {
        "claim": claim,
        "sentence": SENTENCES[claim],
        **words_of(verdict, order.scale),
        "seeds": list(seeds),
        "scale": order.scale,
        "played": describe(study_of(claim), order.scale, order.seeds),
        "command": order.command(claim),
    }


def words_of(verdict: Verdict, scale: Scale) -> Row:
    """The verdict, why, and all numbers; at smoke size nothing is decided."""
    smoke = scale == "smoke"
    return {
        "verdict": "not decided" if smoke else verdict.word,
        "parts": [{**part._asdict(), "value": json_value(part.value)} for part in verdict.parts],
        "numbers": {what: json_value(value) for what, value in verdict.numbers.items()},
        "why": f"smoke size shows only that it runs; {verdict.why}" if smoke else verdict.why,
    }


def json_value(value: float | str) -> float | str | None:
    """The same, but null for a NaN, which JSON does not have."""
    return None if isinstance(value, float) and math.isnan(value) else value


def finals(table: Table) -> list[Row]:
    """How every method ended; methods at given step sizes are in the picture only."""
    rows = []
    for (where, method), curves in table.items():
        scored = [c for c in curves.values() if any("accuracy" in row for row in c.history)]
        if scored and not recipes.swept_step(method):
            ends = [late_score(curve) for curve in scored]
            spread = stdev(ends) if len(ends) > 1 else 0.0
            lost = sum(curve.diverged for curve in scored)
            rows.append(
                {"where": where, "method": method, "accuracy": round(fmean(ends), 4)}
                | {"spread": round(spread, 4), "diverged": lost}
            )
    return rows
