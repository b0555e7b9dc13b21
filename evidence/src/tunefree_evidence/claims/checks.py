"""The check that decides each empirical claim: pure functions from curves to verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple, TypeAlias

from tunefree.record import Row
from tunefree.report import width
from tunefree.search import late_mean, rounds_to
from tunefree_evidence.claims.recipes import methods_at
from tunefree_evidence.claims.verdicts import (
    Part,
    Verdict,
    above,
    below,
    decide,
    exact,
    fact,
    within,
)


class Curve(NamedTuple):
    """What a check uses of a run: its history, and whether it diverged."""

    history: Sequence[Row]
    T: int
    diverged: bool = False


Table: TypeAlias = Mapping[
    tuple[str, str], Mapping[int, Curve]
]  # (setting, method) -> seed -> curve
Score: TypeAlias = Callable[[Curve], float]
Check: TypeAlias = Callable[[Table], Verdict]

BASELINES = ("fedavg", "scaffold", "scaffold_m")
VR_STORM, VR_EMA = "padamfed_vr", "padamfed_vr:momentum=ema"
OURS = ("padamfed", VR_STORM)
TOP_10, TOP_5 = "comparfrefl:compressor=top:0.1", "comparfrefl:compressor=top:0.05"
SCAFCOM_10, SCAFCOM_5 = "scafcom:compressor=top:0.1", "scafcom:compressor=top:0.05"
CHANGING = "comparfrefl:compressor=any:top:0.02|top:0.05|top:0.2|sign"
LATE_BASELINES = ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl")
PICTURES = ("mnist-iid", "mnist-skew", "fashion-iid", "fashion-skew")
EMNIST_RATES = (3e-3, 1e-2, 3e-2, 1e-1)
WIDE_RATES = (*EMNIST_RATES, 3e-1)
IMAGE_RATES = (0.05, 0.1, 0.2, 0.5)
LOST = 10.0  # the difference of losses, or of logarithms, that stands for a diverged run
NEVER = 2.0  # the share of the rounds that stands for a target not reached
UNREACHED = 10.0  # the ratio of bits that stands for a target not reached


def late_score(curve: Curve, name: str = "accuracy") -> float:
    """The mean of a score over the last tenth of the rounds; a diverged run has accuracy 0."""
    if curve.diverged:
        return 0.0 if name == "accuracy" else math.inf
    return late_mean(curve.history, curve.T, name)


def throughout(curve: Curve) -> float:
    """The mean accuracy over all evaluations."""
    found = [row["accuracy"] for row in curve.history if "accuracy" in row]
    return 0.0 if curve.diverged or not found else fmean(found)


def scores(table: Table, where: str, method: str, score: Score = late_score) -> dict[int, float]:
    return {seed: score(curve) for seed, curve in table.get((where, method), {}).items()}


def gaps(
    table: Table, where: str, method: str, other: str, score: Score = late_score
) -> list[float]:
    """How far a method is ahead of another, seed by seed."""
    return minus(scores(table, where, method, score), scores(table, where, other, score))


def by_kind(
    table: Table, short: str, method: str, score: Score = late_score
) -> list[dict[int, float]]:
    """The scores with iid clients and with skewed ones."""
    return [scores(table, f"{short}-{kind}", method, score) for kind in ("iid", "skew")]


def minus(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """The differences, for each seed that both have."""
    return [value - theirs[seed] for seed, value in ours.items() if seed in theirs]


def margins(table: Table, where: str, method: str, others: Sequence[str]) -> dict[int, float]:
    """How far a method is ahead of the best of others, seed by seed."""
    ours = scores(table, where, method)
    theirs = [scores(table, where, other) for other in others]
    return {
        seed: value - max(each[seed] for each in theirs)
        for seed, value in ours.items()
        if all(seed in each for each in theirs)
    }


def rounds_share(table: Table, where: str, method: str, others: Sequence[str]) -> list[float]:
    """The share of rounds until a method has the final accuracy of the best of others."""
    margin, curves = margins(table, where, method, others), table.get((where, method), {})
    shares = []
    for seed, ahead in margin.items():
        curve = curves[seed]
        reached = rounds_to(late_score(curve) - ahead, curve.history)
        shares.append(NEVER if reached is None else reached / curve.T)
    return shares


def better(table: Table, where: str, ours: Sequence[str], others: Sequence[str]) -> list[Part]:
    """Each of ours ends above the best of the others and reaches it before the last round."""
    parts = []
    for method in ours:
        margin = list(margins(table, where, method, others).values())
        parts += [
            above(f"{where}: lead of {method} over the best baseline", margin, 0),
            below(
                f"{where}: share of rounds until {method} has the best baseline's final accuracy "
                f"({NEVER:g}: never)",
                rounds_share(table, where, method, others),
                1,
            ),
        ]
    return parts


def leads(*places: str) -> Check:
    def check(table: Table) -> Verdict:
        parts = [part for where in places for part in better(table, where, OURS, BASELINES)]
        return decide(parts)

    return check


def momentum_alone_is_slower(table: Table) -> Verdict:
    parts = []
    for where in ("emnist-iid", "emnist-skew"):
        parts += better(table, where, ("padamfed",), ("scaffold_m",))
    return decide(parts)


def reduction_helps(table: Table) -> Verdict:
    parts = [
        above(f"{where}: lead of {method} over padamfed", gaps(table, where, method, "padamfed"), 0)
        for where in ("emnist-iid", "emnist-skew")
        for method in (VR_STORM, VR_EMA)
    ]
    return decide(parts)


def wider_margin(table: Table, short: str) -> list[Part]:
    """The lead over the best baseline is larger with skew."""
    parts = []
    for method in OURS:
        iid = margins(table, f"{short}-iid", method, BASELINES)
        skew = margins(table, f"{short}-skew", method, BASELINES)
        parts.append(above(f"{short}: lead of {method}, skewed minus iid", minus(skew, iid), 0))
    return parts


def margin_grows(table: Table) -> Verdict:
    return decide(wider_margin(table, "emnist"))


def whole_range_above(where: str, limit: float) -> Check:
    def check(table: Table) -> Verdict:
        parts = [
            above(f"accuracy of {method}", list(scores(table, where, method).values()), limit)
            for step in ("gamma", "eta")
            for method in methods_at("padamfed", step, EMNIST_RATES)
        ]
        return decide(parts)

    return check


def widths(
    table: Table, where: str, method: str, step: str, rates: Sequence[float]
) -> dict[int, float]:
    """Decades of step sizes as good as the best, seed by seed; 0 if none works."""
    curves = [scores(table, where, each) for each in methods_at(method, step, rates)]
    seeds = set.intersection(*(set(curve) for curve in curves))
    found = {
        seed: width([(rate, curve[seed]) for rate, curve in zip(rates, curves, strict=True)])
        for seed in sorted(seeds)
    }
    return {seed: each.decades if each else 0.0 for seed, each in found.items()}


def wider_range(table: Table) -> Verdict:
    parts, numbers = [], dict[str, float | str]()
    for where in ("emnist-iid", "emnist-skew"):
        ours = widths(table, where, "padamfed", "gamma", WIDE_RATES)
        other = widths(table, where, "padamfed", "eta", WIDE_RATES)
        for name, found in (("gamma", ours), ("eta", other)):
            if found:
                numbers[f"{where}: decades of good step sizes, padamfed {name}"] = round(
                    fmean(found.values()), 3
                )
        for baseline in BASELINES:
            theirs = widths(table, where, baseline, "eta", WIDE_RATES)
            what = f"{where}: decades of good step sizes, padamfed gamma minus {baseline} eta"
            parts.append(above(what, minus(ours, theirs), 0))
    return decide(parts, numbers)


def skew_costs(table: Table) -> Verdict:
    parts = []
    for method in (*OURS, *BASELINES):
        iid, skew = by_kind(table, "cifar", method)
        parts.append(above(f"{method}: accuracy lost to skew", minus(iid, skew), 0))
        calm, wild = by_kind(table, "cifar", method, fluctuation)
        parts.append(above(f"{method}: growth of fluctuation with skew", minus(wild, calm), 0))
    for method in OURS:
        ahead = list(margins(table, "cifar-skew", method, BASELINES).values())
        parts.append(above(f"cifar-skew: lead of {method} over the best baseline", ahead, 0))
    return decide(parts)


def fluctuation(curve: Curve) -> float:
    """The mean change of accuracy from one evaluation to the next in the second half."""
    found = [r["accuracy"] for r in curve.history if "accuracy" in r and 2 * r["t"] >= curve.T]
    changes = [abs(after - before) for before, after in pairwise(found)]
    return fmean(changes) if changes else 0.0


def log_gradient(curve: Curve) -> float:
    """The mean logarithm of the gradient norm over all evaluations."""
    found = [math.log(row["grad_norm"]) for row in curve.history if "grad_norm" in row]
    return fmean(found) if found and not curve.diverged else math.inf


def clip(gaps: Sequence[float]) -> list[float]:
    """A run that diverged counts against its method; where both did, there is no difference."""
    return [0.0 if math.isnan(gap) else max(-LOST, min(LOST, gap)) for gap in gaps]


def momentum_flattens(table: Table) -> Verdict:
    parts = [
        below(
            f"{where}: log gradient norm, {method} minus {other}",
            clip(gaps(table, where, method, other, log_gradient)),
            0,
        )
        for where in ("cifar-iid", "cifar-skew")
        for method in (*OURS, "scaffold_m")
        for other in ("fedavg", "scaffold")
    ]
    return decide(parts)


def momentum_is_needed(table: Table) -> Verdict:
    parts = [
        above(
            f"lead of {method} over scaffold_norm",
            gaps(table, "ablation", method, "scaffold_norm"),
            0,
        )
        for method in ("scaffold", "padamfed")
    ]
    return decide(parts)


def leads_on_text(table: Table) -> Verdict:
    parts = [
        part for kind in ("iid", "skew") for part in better(table, f"imdb-{kind}", OURS, BASELINES)
    ]
    for kind in ("iid", "skew"):
        helped = gaps(table, f"imdb-{kind}", VR_STORM, "padamfed")
        parts.append(above(f"imdb-{kind}: lead of padamfed_vr over padamfed", helped, 0))
    return decide(parts + wider_margin(table, "imdb"))


def above_on_text(table: Table) -> Verdict:
    parts = []
    for kind in ("iid", "skew"):
        for rate in EMNIST_RATES:
            (ours,), (theirs,) = (
                methods_at("padamfed", "gamma", [rate]),
                methods_at("scaffold_m", "eta", [rate]),
            )
            ahead = gaps(table, f"imdb-{kind}", ours, theirs)
            what = f"imdb-{kind}: lead of padamfed over scaffold_m, at step size {rate:g}"
            parts.append(above(what, ahead, 0))
    for method in ("padamfed", "scaffold_m"):
        lost = minus(*by_kind(table, "imdb", method))
        parts += within(f"{method}: accuracy lost to skew", lost, 0.03)
    return decide(parts)


UNIT = "fedavg:eta=0.1"  # one model down and one up, the unit of the others
SENT = {  # (up, down) in models
    "padamfed": (2, 2),
    "scaffold:eta=0.1": (2, 2),
    "padamfed_vr:momentum=ema": (2, 3),
    "padamfed_vr": (3, 3),
    "parfrefl": (1, 1),
    "scafcom:eta=0.1,compressor=identity": (1, 2),
}


def message(curve: Curve, direction: str) -> float:
    """Bits of one client's message in a round, without the opening."""
    first = next((row for row in curve.history if row["t"] < 0), None)
    rounds = [row for row in curve.history if row["t"] >= 0]
    opening = first[f"bits_{direction}"] if first else 0
    return (rounds[-1][f"bits_{direction}"] - opening) / sum(row["clients"] for row in rounds)


def sends(*methods: str) -> Check:
    """Every message is as large as the paper says."""

    def check(table: Table) -> Verdict:
        parts = []
        for method in methods:
            for direction, models in zip(("up", "down"), SENT[method], strict=True):
                for seed, curve in table.get(("wire", method), {}).items():
                    unit = table.get(("wire", UNIT), {}).get(seed)
                    if unit is not None:
                        size = message(curve, direction) / message(unit, direction)
                        parts.append(exact(f"{method} models {direction}", size, models, 1e-9))
        missing = len(parts) < 2 * len(methods)
        parts += [above("runs are missing", [], 0)] if missing else []
        return decide(parts)

    return check


def parfrefl_beside_padamfed(table: Table) -> Verdict:
    parts = []
    for where in PICTURES:
        ahead = gaps(table, where, "parfrefl", "padamfed")
        what = f"{where}: lead of parfrefl over padamfed"
        parts += within(what, ahead, 0.01) if where.endswith("iid") else [above(what, ahead, 0)]
    return decide(parts)


def both_above_fedavg(table: Table) -> Verdict:
    parts = [
        above(
            f"{where}: lead of {method} over fedavg, {when}",
            gaps(table, where, method, "fedavg", score),
            0,
        )
        for where in PICTURES
        for method in ("parfrefl", "padamfed")
        for when, score in (("at the end", late_score), ("mean of all evaluations", throughout))
    ]
    return decide(parts)


def compression_costs_little(short: str, most: float) -> Check:
    def check(table: Table) -> Verdict:
        parts = [
            below(
                f"{where}: accuracy lost by {method}", gaps(table, where, "parfrefl", method), most
            )
            for where in (f"{short}-iid", f"{short}-skew")
            for method in (TOP_10, TOP_5)
        ]
        return decide(parts)

    return check


def beside_scafcom(table: Table) -> Verdict:
    parts = [
        above(f"{where}: lead of {ours} over scafcom", gaps(table, where, ours, theirs), -0.01)
        for where in PICTURES
        for ours, theirs in ((TOP_10, SCAFCOM_10), (TOP_5, SCAFCOM_5))
    ]
    return decide(parts)


def bits_to(target: float, curve: Curve, opening: bool) -> float:
    """Bits sent up by all clients until the target accuracy: values and positions."""
    for row in curve.history:
        if row.get("accuracy", -1.0) >= target:
            first = curve.history[0]
            return row["bits_up"] - (0 if opening or first["t"] >= 0 else first["bits_up"])
    return math.inf


def fewer_bits(table: Table) -> Verdict:
    parts, numbers = [], dict[str, float | str]()
    for where in PICTURES:
        ratios, whole = list[float](), list[float]()
        full, small = table.get((where, "parfrefl"), {}), table.get((where, TOP_5), {})
        for seed in full:
            if seed in small:
                target = 0.95 * late_score(full[seed])
                for found, opening in ((ratios, False), (whole, True)):
                    ratio = bits_to(target, small[seed], opening) / bits_to(
                        target, full[seed], opening
                    )
                    found.append(min(ratio, UNREACHED))
        parts.append(
            below(
                f"{where}: uplink bits to 95 % of parfrefl's accuracy, top 5 % over parfrefl "
                f"({UNREACHED:g}: never)",
                ratios,
                1 / 8,
            )
        )
        if whole:
            numbers[f"{where}: the same ratio with the opening"] = round(fmean(whole), 3)
    return decide(parts, numbers)


def faster_per_bit(table: Table) -> Verdict:
    parts = [
        above(
            f"{where}: lead of {TOP_5} over scafcom, mean of all evaluations",
            gaps(table, where, TOP_5, SCAFCOM_5, throughout),
            0,
        )
        for where in PICTURES
    ]
    return decide(parts)


def ranges(table: Table, where: str, method: str, step: str) -> dict[int, float]:
    """Best minus worst accuracy over the step sizes, seed by seed."""
    curves = [scores(table, where, each) for each in methods_at(method, step, IMAGE_RATES)]
    seeds = set.intersection(*(set(curve) for curve in curves))
    return {s: max(c[s] for c in curves) - min(c[s] for c in curves) for s in sorted(seeds)}


MOST_LOST = {"mnist-skew": 0.03, "fashion-skew": 0.05}


def steps_matter_little(table: Table) -> Verdict:
    parts, numbers = [], dict[str, float | str]()
    for where, most in MOST_LOST.items():
        ours = ranges(table, where, "parfrefl", "gamma")
        parts.append(
            below(
                f"{where}: best minus worst accuracy of parfrefl over gamma",
                list(ours.values()),
                most,
            )
        )
        for method in ("fedavg", SCAFCOM_5):
            theirs = ranges(table, where, method, "eta")
            what = (
                f"{where}: best minus worst accuracy of {method} over eta, minus that of parfrefl "
                "over gamma"
            )
            parts.append(above(what, minus(theirs, ours), 0))
        by_eta = ranges(table, where, "parfrefl", "eta")
        if by_eta:
            what = f"{where}: best minus worst accuracy of parfrefl over eta"
            numbers[what] = round(fmean(by_eta.values()), 4)
    return decide(parts, numbers)


def steps_matter_little_compressed(table: Table) -> Verdict:
    parts = [
        below(
            f"{where}: best minus worst accuracy of {method} over gamma",
            list(ranges(table, where, method, "gamma").values()),
            most,
        )
        for where, most in MOST_LOST.items()
        for method in (TOP_10, TOP_5)
    ]
    return decide(parts)


def loss_follows(table: Table) -> Verdict:
    """Wherever both differences are clear, the better accuracy has the lower loss."""
    parts = []
    for where in PICTURES:
        for ours, theirs in (
            ("parfrefl", "padamfed"),
            ("parfrefl", "fedavg"),
            ("padamfed", "fedavg"),
            (TOP_5, "parfrefl"),
        ):
            score = above("", gaps(table, where, ours, theirs), 0)
            for name in ("loss", "train_loss"):
                differences = gaps(table, where, ours, theirs, partial(late_score, name=name))
                loss = below(f"{where}: {name} of {ours} minus {theirs}", clip(differences), 0)
                if score.holds is not None and loss.holds is not None:
                    agrees = score.holds == loss.holds
                    parts.append(
                        fact(f"{loss.what} agrees with accuracy", float(agrees), 0.5, "above")
                    )
    return decide(parts, {"comparisons in which both differences are clear": len(parts)})


def compression_may_change(table: Table) -> Verdict:
    parts = [
        above(
            f"mnist-skew: lead of changing compression over {TOP_5}",
            gaps(table, "mnist-skew", CHANGING, TOP_5),
            -0.03,
        )
    ]
    for curve in table.get(("mnist-skew", CHANGING), {}).values():
        sizes = {after["bits_up"] - before["bits_up"] for before, after in pairwise(curve.history)}
        parts.append(fact("different sizes of a round's uploads", len(sizes), 1, "above"))
    return decide(parts)


def late_without_tuning(table: Table) -> Verdict:
    parts = [
        above(f"lead of adamasfl over {method}", gaps(table, "late-1", "adamasfl", method), -0.01)
        for method in LATE_BASELINES
    ]
    return decide(parts)


def drops(table: Table, method: str) -> dict[int, float]:
    """Accuracy lost between the fewest and the most jobs in flight, seed by seed."""
    few, many = scores(table, "late-0", method), scores(table, "late-3", method)
    return {seed: few[seed] - many[seed] for seed in few if seed in many}


def staleness_matters_little(table: Table) -> Verdict:
    ours = drops(table, "adamasfl")
    parts = [below("accuracy adamasfl loses to staleness", list(ours.values()), 0.02)]
    for method in LATE_BASELINES:
        what = f"how much more {method} loses to staleness than adamasfl"
        parts.append(above(what, minus(drops(table, method), ours), 0))
    return decide(parts)


def staleness_follows(levels: Sequence[int], S: int) -> Check:
    """Mean staleness is M_c / S - 1, and steps are more frequent with more jobs in flight."""

    def check(table: Table) -> Verdict:
        parts, times = [], []
        for place, jobs in enumerate(levels):
            curves = list(table.get((f"late-{place}", "adamasfl"), {}).values())
            expected = jobs / S - 1
            found = [fmean(r["tau_mean"] for r in c.history if r["t"] >= jobs / S) for c in curves]
            off = abs(fmean(found) - expected) if found else math.nan
            parts.append(
                fact(
                    f"{jobs} jobs in flight: mean staleness, distance from {expected:g}",
                    off,
                    0.1 + 0.1 * expected,
                    "below",
                )
                if found
                else above(f"{jobs} jobs in flight", [], 0)
            )
            if curves:
                times.append(fmean(c.history[-1]["virtual_seconds"] / c.T for c in curves))
        for (a, b), (slow, fast) in zip(pairwise(levels), pairwise(times), strict=False):
            what = f"virtual seconds per step, {b} over {a} jobs"
            parts.append(fact(what, fast / slow, 1, "below"))
        return decide(parts)

    return check
