"""The page docs/evidence.md: what became of every claim, at every size that was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tunefree.reproduce.claims import FIGURES, SENTENCES, STUDIES, study_of
from tunefree.reproduce.recipes import SCALES
from tunefree.reproduce.sizes import played
from tunefree.reproduce.theory import TOLERANCE
from tunefree.reproduce.verdicts import RULE, Part

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


TALLY = {
    **{"holds": "hold", "does not hold": "do not hold", "not decided": "are not decided"},
    **{"runs": "run", "fails": "fail"},
}
WORDS = {True: "yes", False: "no", None: "open"}


def page(
    rows: Sequence[Mapping[str, Any]], pictures: Mapping[str, str] = {}, challenge: str = ""
) -> str:
    """The whole page, from verdicts of any sizes and the files with pictures of figures."""
    found = {(row["claim"], row["scale"]): row for row in rows}
    parts = [
        "# Evidence",
        "Written by `tunefree reproduce evidence`; do not edit. Claims are in our words; their "
        "numbers are ours too. Each verdict is about the size it was run at, "
        "not about the paper's own experiment, unless that size is `paper`.",
        *(["## The challenge", challenge] if challenge else []),
        "## The claims",
        RULE,
        f"For theorems the number is the slope of the gradient norm on logarithmic axes, with a "
        f"95 % interval over seeds; it may be {TOLERANCE} above the power in the theorem.",
        *(tally(found, scale) for scale in SCALES if any(row["scale"] == scale for row in rows)),
        summary(found),
    ]
    for study in sorted(STUDIES, key=lambda s: min(n for n in SENTENCES if study_of(n) == s)):
        parts.append(f"## {TITLES[study]}")
        mine = [claim for claim in SENTENCES if study_of(claim) == study]
        parts.append(bullets(what_was_played(study, [r for r in rows if r["claim"] in mine])))
        for figure, claims in FIGURES.items():
            if figure in pictures and set(claims) <= set(mine):
                about = f"claim{'s' * (len(claims) > 1)} {', '.join(map(str, claims))}"
                parts.append(f"![{figure}: {about}]({pictures[figure]})")
        for claim in mine:
            parts.append(f"### {claim}. {SENTENCES[claim]}")
            rows_of = [found[claim, s] for s in reversed(SCALES) if (claim, s) in found]
            parts += [section(row) for row in best(rows_of)] or ["Not run."]
    parts += ["## What a reader must know about the papers", bullets(GAPS)]
    return "\n\n".join(parts) + "\n"


def what_was_played(study: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each size, also for those that were not run, to compare with.

    A row that does not tell what was played is of the settings that there are now.
    """
    lines = []
    for scale in SCALES:
        own = [row for row in rows if row["scale"] == scale]
        texts = dict.fromkeys(str(row.get("played") or played(study, scale)) for row in own)
        lines += [f"`{scale}`: {text}" for text in texts]
        if not own and scale != "smoke":
            lines.append(f"`{scale}`, not run: {played(study, scale)}")
    return lines


def best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that can decide something; a smoke run is shown only where there is no other."""
    real = [row for row in rows if row["scale"] != "smoke"]
    return real or list(rows)


def word_of(row: Mapping[str, Any] | None) -> str:
    """The verdict in a table; a smoke run decides nothing, it runs or fails."""
    if row is None:
        return "not run"
    if row["scale"] == "smoke":
        return "fails" if row.get("failures") else "runs"
    return str(row["verdict"])


def tally(found: Mapping[tuple[int, str], Mapping[str, Any]], scale: str) -> str:
    """How many claims have which verdict at a size."""
    words = Counter(word_of(row) for (_, its), row in found.items() if its == scale)
    counts = ", ".join(f"{words[word]} {many}" for word, many in TALLY.items() if words[word])
    return f"At `{scale}` size: {counts}; {len(SENTENCES) - words.total()} of all were not run."


def summary(found: Mapping[tuple[int, str], Mapping[str, Any]]) -> str:
    lines = [
        (f"{claim}. {sentence}", *(word_of(found.get((claim, scale))) for scale in SCALES))
        for claim, sentence in SENTENCES.items()
    ]
    return table(("claim", *SCALES), lines)


def section(row: Mapping[str, Any]) -> str:
    """One verdict: the word, what it rests on, how to repeat it, and what is known of the steps."""
    seeds = ", ".join(map(str, row["seeds"])) or "none"
    word = word_of(row)
    blocks = [
        f"**{word}** at `{row['scale']}` size, seeds {seeds}: `{row['command']}`",
        *basis(row),
    ]
    if row.get("tuned"):
        blocks.append("Tuned: " + "; ".join(f"{k} to {v}" for k, v in row["tuned"].items()) + ".")
    if own := row.get("own_units"):
        said = (
            f"**{own['verdict']}**, `{row['command']} --own-units`. The reason is {row['reason']}."
        )
        blocks += [f"With the tuning-free methods' eta and gamma times ||theta0||: {said}"]
        blocks += basis(own)
    return "\n\n".join(blocks)


def basis(row: Mapping[str, Any]) -> list[str]:
    """The parts of a verdict, further numbers, and how the methods ended."""
    blocks, parts = [], row.get("parts", ())
    if parts:
        blocks.append(table(("", "found", "must be", "holds"), map(part_line, parts)))
    else:
        blocks.append(sentence(str(row["why"])))
    named = {part["what"] for part in parts}
    numbers = [f"{k}: {number(v)}" for k, v in row["numbers"].items() if k not in named]
    if numbers:
        blocks.append(bullets(numbers))
    if row.get("finals"):
        blocks.append(ends(row["finals"]))
    return blocks


def part_line(part: Mapping[str, Any]) -> tuple[str, ...]:
    found = Part(**part)
    number = "nothing" if part["value"] is None else found.number
    return found.what, number, f"{found.side} {found.limit:.4g}", WORDS[found.holds]


def ends(finals: Sequence[Mapping[str, Any]]) -> str:
    """Accuracy at the end: a row for each method, a column for each setting."""
    places = list(dict.fromkeys(str(row["where"]) for row in finals))
    cells: dict[str, dict[str, str]] = {}
    for row in finals:
        lost = f", {row['diverged']} diverged" if row["diverged"] else ""
        text = f"{row['accuracy']:.3f} ± {row['spread']:.3f}{lost}"
        cells.setdefault(row["method"], {})[row["where"]] = text
    lines = ([method, *(own.get(place, "") for place in places)] for method, own in cells.items())
    return table(("accuracy at the end", *places), lines)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows
    )


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def number(value: object) -> str:
    if value is None:
        return "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
