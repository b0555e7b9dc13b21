"""The page docs/evidence.md: the verdict on every claim, at every size that was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tunefree_evidence.claims.claims import FIGURES, SENTENCES, STUDIES, study_of
from tunefree_evidence.claims.recipes import SCALES, Scale, settings
from tunefree_evidence.claims.sizes import describe, title
from tunefree_evidence.claims.theory import TOLERANCE
from tunefree_evidence.claims.verdicts import REASONS, RULE, Part

TITLES = {
    "emnist": "PAdaMFed on EMNIST",
    "emnist-steps": "PAdaMFed's step sizes on EMNIST",
    "cifar": "PAdaMFed on CIFAR-10",
    "ablation": "Normalisation without momentum",
    "imdb": "PAdaMFed on IMDB",
    "wire": "Traffic",
    "images": "ParFreFL and ComParFreFL on MNIST and Fashion-MNIST",
    "late": "AdaMasFL with late clients",
    "theory": "Theorems, on synthetic problems",
}
GAPS = (
    "Only one number of rounds is given: 400, for the step sizes on EMNIST. The other numbers of "
    "rounds, batch sizes, local steps (except on MNIST), the sizes of the LSTM and the RNN, the "
    "split of EMNIST, the grids of the baselines, the number of seeds and the distribution of "
    "delays are our choices.",
    "The EMNIST network is a CNN in the paper and a three-layer RNN on the slides; we use the CNN.",
    "The 21,840 parameters given for a network with three convolutions are those of a well-known "
    "network with two; we use that one.",
    "PAdaMFed-VR's listing and its proof update the momentum differently. We have both: `storm` is "
    "the proved one and sends three models up, `ema` the listed one and sends two.",
    "With K = 12 and at most 120 rounds ParFreFL's formula gives beta = 1, no momentum at all, "
    "although the text calls momentum essential. Either K counts epochs or there were more rounds; "
    "we count K in mini-batches and use enough rounds for beta < 1.",
    "Top-k is said to have a small compression constant q; for k = 0.05 it is 0.975, so the number "
    "of rounds from which compression is free in theory is out of reach on any image task.",
    "The papers do not state which step size their sweeps vary. We vary gamma with eta from its "
    "formula, and eta with gamma from its formula.",
    "The step-size formulas of ParFreFL and ComParFreFL were not legible in our copy of the paper; "
    "they are reconstructed from the terms of the bound.",
    "DeFedAvg-nIID is reconstructed from its abstract and from tables; no listing was found.",
)


TALLY = {  # a verdict on one claim and on several
    **{"holds": "hold", "does not hold": "do not hold", "not decided": "not decided"},
    **{"runs": "run", "fails": "fail", "not run": "not run"},
}
SIZES = {scale: place for place, scale in enumerate(SCALES)}
WORDS = {True: "yes", False: "no", None: "not decided"}
FIRST = (
    "First the challenge, PolarFL without tuning against tuned methods; then the papers' claims."
)
ALONE = "The papers' claims, run and decided."
INTRODUCTION = (
    "The claims are in our words and have our numbers. A verdict is about the size at which a "
    "claim was run; only `paper` is the size of the papers' own experiments. `tunefree-evidence "
    "claims evidence` writes this page; do not edit it."
)
READING = (
    "± is the standard error over seeds in tables of parts, and the standard deviation in tables "
    "of final accuracy, which is the mean over the evaluations in the last tenth of a run and 0 if "
    "it diverged. For theorems the number is the slope of the gradient norm on logarithmic axes, "
    f"with a 95 % interval over seeds; it may be {TOLERANCE} above the power in the theorem. "
    "`smoke` size shows only that a claim runs.",
    "N is the number of clients, S the clients per round, K the local steps of each, T the rounds.",
)


def page(
    rows: Sequence[Mapping[str, Any]], pictures: Mapping[str, str] = {}, challenge: str = ""
) -> str:
    """The whole page, from verdicts of all sizes and links to the pictures of figures."""
    found = {(row["claim"], row["scale"]): row for row in rows}
    parts = [
        "# Evidence",
        f"{FIRST if challenge else ALONE} {INTRODUCTION}",
        *(["## The challenge", challenge] if challenge else []),
        "## The claims",
        headline(rows),
        bullets(tally(found, s) for s in SCALES if any(row["scale"] == s for row in rows)),
        summary(found),
        "## How claims are decided",
        RULE,
        *READING,
    ]
    for study in sorted(STUDIES, key=lambda s: min(n for n in SENTENCES if study_of(n) == s)):
        parts.append(f"## {TITLES[study]}")
        mine = [claim for claim in SENTENCES if study_of(claim) == study]
        parts.append(bullets(what_was_run(study, [r for r in rows if r["claim"] in mine])))
        for figure, claims in FIGURES.items():
            if figure in pictures and set(claims) <= set(mine):
                about = f"claim{'s' * (len(claims) > 1)} {', '.join(map(str, claims))}"
                parts.append(f"![{figure}: {about}]({pictures[figure]})")
        for claim in mine:
            parts += [f"### Claim {claim}", f"*{SENTENCES[claim]}*"]
            rows_of = [found[claim, s] for s in reversed(SCALES) if (claim, s) in found]
            parts += [section(row) for row in best(rows_of)] or ["Not run."]
    parts += ["## What the papers leave open", bullets(GAPS)]
    return "\n\n".join(parts) + "\n"


def what_was_run(study: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each size, also for those that were not run, to compare with.

    A row without a description was run with the settings of this version.
    """
    lines = []
    for scale in SCALES:
        own = [row for row in rows if row["scale"] == scale]
        texts = dict.fromkeys(str(row.get("played") or describe(study, scale)) for row in own)
        lines += [f"`{scale}`: {text}" for text in texts]
        if not own and scale != "smoke":
            lines.append(f"`{scale}`, not run: {describe(study, scale)}")
    return lines


def best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows that decide something; one of smoke size is shown only if there is no other."""
    real = [row for row in rows if row["scale"] != "smoke"]
    return real or list(rows)


def word_of(row: Mapping[str, Any] | None) -> str:
    """The verdict in a table; at smoke size a claim only runs or fails."""
    if row is None:
        return "not run"
    if row["scale"] == "smoke":
        return "fails" if row.get("failures") else "runs"
    return str(row["verdict"])


def headline(rows: Iterable[Mapping[str, Any]]) -> str:
    """All verdicts in a sentence, each at the largest size that decides something."""
    decided = (row for row in rows if row["scale"] != "smoke")
    largest = {row["claim"]: row for row in sorted(decided, key=lambda row: SIZES[row["scale"]])}
    words = {claim: word_of(largest.get(claim)) for claim in SENTENCES}
    kinds = [(study_of(claim), word) for claim, word in words.items()]
    rates, traffic = ([w for study, w in kinds if study == name] for name in ("theory", "wire"))
    others = Counter(word for study, word in kinds if study not in ("theory", "wire"))
    return (
        f"Of the papers' claims, {rates.count('holds')} of {len(rates)} on convergence rates and "
        f"{traffic.count('holds')} of {len(traffic)} on traffic hold. Of {others.total()} on "
        f"experiments {counts(others)}, each at the largest size it was run at."
    )


def tally(found: Mapping[tuple[int, str], Mapping[str, Any]], scale: str) -> str:
    """How many claims have which verdict at a size."""
    words = Counter(word_of(found.get((claim, scale))) for claim in SENTENCES)
    return f"At `{scale}` size: {counts(words)}."


def counts(words: Mapping[str, int]) -> str:
    """How often each verdict comes.

    >>> counts({"holds": 1, "does not hold": 3})
    '1 holds, 3 do not hold'
    """
    return ", ".join(
        f"{words[one]} {one if words[one] == 1 else many}"
        for one, many in TALLY.items()
        if words.get(one)
    )


def summary(found: Mapping[tuple[int, str], Mapping[str, Any]]) -> str:
    lines = [
        (
            f"[{claim}](#claim-{claim})",
            sentence,
            *(word_of(found.get((claim, scale))) for scale in SCALES),
        )
        for claim, sentence in SENTENCES.items()
    ]
    return table(("", "claim", *SCALES), lines)


def section(row: Mapping[str, Any]) -> str:
    """One verdict, how to repeat it, what it rests on, and the verdict in own units if any."""
    seeds = ", ".join(map(str, row["seeds"])) or "none"
    word = word_of(row)
    blocks = [
        f"**{word}** at `{row['scale']}` size, seeds {seeds}; repeat it with `{row['command']}`.",
        *basis(row, row["scale"]),
    ]
    if row.get("tuned"):
        blocks.append(tuned(row["tuned"], row["scale"]))
    if own := row.get("own_units"):
        blocks += [
            f"**{own['verdict']}** with eta and gamma of the tuning-free methods multiplied by "
            f"||theta0||; repeat it with `{row['command']} --own-units`. The reason is "
            f"{REASONS[own['verdict']]}.",
            *basis(own, row["scale"]),
        ]
    return "\n\n".join(blocks)


def basis(row: Mapping[str, Any], scale: Scale) -> list[str]:
    """The parts of a verdict, further numbers, and how the methods ended."""
    blocks, parts = [], row.get("parts", ())
    if parts:
        blocks.append(table(("part", "measured", "must be", "holds"), map(part_line, parts)))
    else:
        blocks.append(sentence(str(row["why"])))
    named = {part["what"] for part in parts}
    numbers = {what: value for what, value in row["numbers"].items() if what not in named}
    if numbers:
        blocks.append(bullets(number_lines(numbers)))
    if trained := [end for end in row.get("finals", ()) if end["where"] != "wire"]:
        blocks.append(ends(trained, scale))
    return blocks


def number_lines(numbers: Mapping[str, object]) -> list[str]:
    """A line for each number; those along a law, such as `A against T, at 64`, share a line."""
    laws: dict[str, list[str]] = {}
    lines = []
    for what, value in numbers.items():
        law, at, x = what.rpartition(", at ")
        if at and x.isdigit():
            laws.setdefault(law, []).append(f"{number(value)} at {x}")
        else:
            lines.append(f"{what}: {number(value)}")
    return lines + [f"{law}: {', '.join(values)}" for law, values in laws.items()]


def part_line(part: Mapping[str, Any]) -> tuple[str, ...]:
    found = Part(**part)
    number = "missing" if part["value"] is None else found.number
    return found.what, number, f"{found.side} {found.limit:.4g}", WORDS[found.holds]


def ends(finals: Sequence[Mapping[str, Any]], scale: Scale) -> str:
    """The final accuracy of each method in each setting."""
    cells = {}
    for row in finals:
        diverged = f", {row['diverged']} diverged" if row["diverged"] else ""
        text = f"{row['accuracy']:.3f} ± {row['spread']:.3f}{diverged}"
        cells[row["where"], row["method"]] = text
    return by_setting("final accuracy", cells, scale)


def tuned(bills: Mapping[str, str], scale: Scale) -> str:
    """The values that each method was tuned to in each setting, and what the search took."""
    cells = {}
    for key, text in bills.items():
        where, _, method = key.partition(" ")
        cells[where, method] = text
    return by_setting("tuned to", cells, scale)


def by_setting(head: str, cells: Mapping[tuple[str, str], str], scale: Scale) -> str:
    """A table with a row for each method and a column for each setting."""
    known = list(settings(scale))
    places = sorted({where for where, _ in cells}, key=known.index)
    lines = (
        [method, *(cells.get((where, method), "") for where in places)]
        for method in dict.fromkeys(method for _, method in cells)
    )
    return table((head, *(title(where, scale) for where in places)), lines)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows
    )


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def number(value: object) -> str:
    if value is None:
        return "missing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
