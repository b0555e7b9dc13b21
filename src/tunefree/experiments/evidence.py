"""EVIDENCE.md: what became of every claim, at every size that was run, in one page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tunefree.experiments.claims import SENTENCES, STUDIES, study_of
from tunefree.experiments.recipes import REDUCED, SCALES
from tunefree.experiments.theory import TOLERANCE
from tunefree.experiments.verdicts import RULE

MOST = 14  # numbers shown of a claim
TITLES = {
    "emnist": "PAdaMFed on EMNIST",
    "emnist-steps": "PAdaMFed's step sizes on EMNIST",
    "cifar": "PAdaMFed on CIFAR-10",
    "ablation": "Normalisation without momentum",
    "imdb": "PAdaMFed on IMDB",
    "wire": "What is sent",
    "images": "ParFreFL and ComParFreFL on MNIST and Fashion-MNIST",
    "late": "AdaMasFL with late clients",
    "theory": "Theorems, on synthetic problems",
}
SIZES = {"emnist-steps": "emnist"}  # studies with the sizes of another
GAPS = (
    "Of all numbers of rounds only one is given, 400 for the step sizes on EMNIST. Batch sizes, "
    "local steps (but for MNIST), the sizes of the LSTM and the RNN, the split of EMNIST, the "
    "grids of the baselines, the number of seeds and the law of delays are ours.",
    "The EMNIST network is a CNN in the paper and a three-layer RNN on the slides; we use the CNN.",
    "21,840 parameters, given for a network with three convolutions, are those of the well-known "
    "one with two; we use that.",
    "PAdaMFed-VR's listing and proof update the momentum differently. We have both: `storm` is the "
    "one proved and sends three models up, `ema` the one listed and sends two.",
    "With K = 12 and at most 120 rounds ParFreFL's formula gives beta = 1, no momentum at all, "
    "although the text calls momentum essential. Either K counts epochs or there were more rounds; "
    "we count K in mini-batches and use rounds enough for beta < 1.",
    "Top-k is said to have a small compression constant q; for k = 0.05 it is 0.975, so the number "
    "of rounds from which compression is free in theory is out of reach on any image task.",
    "Which step size the sweeps vary is not said. We vary gamma with eta from its formula, and eta "
    "with gamma from its formula.",
    "Step-size formulas of ParFreFL and ComParFreFL were not legible in our copy of the paper; "
    "they are reconstructed from the terms of the bound.",
    "DeFedAvg-nIID is rebuilt from its abstract and from tables; no listing was found.",
)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The whole page, from verdicts of any sizes."""
    found = {(row["claim"], row["scale"]): row for row in rows}
    run_here = [scale for scale in SCALES if any(row["scale"] == scale for row in rows)]
    parts = [
        "# Evidence",
        "Written by `tunefree reproduce evidence`; do not edit. Claims are in our words; their "
        "numbers are ours too. Each verdict is about the size it was run at, "
        "not about the paper's own experiment, unless that size is `paper`.",
        RULE,
        f"For theorems the number is the slope of the gradient norm on logarithmic axes, with a "
        f"95 % interval over seeds; it may be {TOLERANCE} above the power in the theorem.",
        summary(found, run_here),
    ]
    for study in sorted(STUDIES, key=lambda s: min(n for n in SENTENCES if study_of(n) == s)):
        parts.append(f"## {TITLES[study]}")
        size = SIZES.get(study, study)
        if size in REDUCED and "small" in run_here:
            parts.append(f"At `small` size: {REDUCED[size]}.")
        for claim in (n for n in SENTENCES if study_of(n) == study):
            parts.append(f"### {claim}. {SENTENCES[claim]}")
            rows_of = [found[claim, s] for s in reversed(SCALES) if (claim, s) in found]
            parts += [section(row) for row in best(rows_of)] or ["Not run."]
    parts += ["## What a reader must know about the papers", bullets(GAPS)]
    return "\n\n".join(parts) + "\n"


def best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that can decide something; a smoke run is shown only where there is no other."""
    real = [row for row in rows if row["scale"] != "smoke"]
    return real or list(rows)


def summary(found: Mapping[tuple[int, str], Mapping[str, Any]], scales: Sequence[str]) -> str:
    if not scales:
        return "Nothing has been run yet."
    lines = [f"| claim | {' | '.join(scales)} |", "|---|" + "---|" * len(scales)]
    for claim in SENTENCES:
        words = [str(found.get((claim, s), {"verdict": "not run"})["verdict"]) for s in scales]
        lines.append(f"| {claim}. {SENTENCES[claim]} | {' | '.join(words)} |")
    return "\n".join(lines)


def section(row: Mapping[str, Any]) -> str:
    """One verdict: the word, why, the numbers, and how to repeat it."""
    seeds = ", ".join(map(str, row["seeds"])) or "none"
    lines = [
        f"**{row['verdict']}** at `{row['scale']}` size, seeds {seeds}: `{row['command']}`",
        "",
        f"{sentence(str(row['why']))}",
    ]
    numbers = list(row["numbers"].items())
    if numbers:
        lines += ["", *(f"- {name}: {shown(value)}" for name, value in numbers[:MOST])]
    if len(numbers) > MOST:
        lines.append(f"- and {len(numbers) - MOST} more in verdicts.json")
    return "\n".join(lines)


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
