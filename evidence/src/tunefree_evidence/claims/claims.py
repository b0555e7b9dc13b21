"""The papers' claims in our words: the runs that each needs, and the check that decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tunefree.errors import ConfigError, unknown_name
from tunefree_evidence.claims import checks
from tunefree_evidence.claims.checks import (
    BASELINES,
    CHANGING,
    EMNIST_RATES,
    IMAGE_RATES,
    LATE_BASELINES,
    OURS,
    PICTURES,
    SCAFCOM_5,
    SCAFCOM_10,
    TOP_5,
    TOP_10,
    UNIT,
    VR_EMA,
    WIDE_RATES,
    Check,
)
from tunefree_evidence.claims.recipes import LEVELS, Scale, methods_at, settings

Needs = Mapping[str, Sequence[str]]  # setting -> methods


class Claim(NamedTuple):
    """A claim that runs decide."""

    sentence: str
    study: str  # claims of one study share their runs
    needs: Needs
    check: Callable[[Scale], Check]


def at(check: Check) -> Callable[[Scale], Check]:
    """The same check at every size."""
    return lambda _: check


def both(short: str, methods: Sequence[str]) -> Needs:
    return {f"{short}-{kind}": methods for kind in ("iid", "skew")}


def pictures(*methods: str) -> Needs:
    return dict.fromkeys(PICTURES, methods)


def staleness(scale: Scale) -> Check:
    return checks.staleness_follows(
        LEVELS[scale], int(str(settings(scale)["late-0"].settings["per_round"]))
    )


EMNIST_SWEEP = [a for step in ("gamma", "eta") for a in methods_at("padamfed", step, EMNIST_RATES)]
WIDE_SWEEP = [
    *(a for step in ("gamma", "eta") for a in methods_at("padamfed", step, WIDE_RATES)),
    *(a for name in BASELINES for a in methods_at(name, "eta", WIDE_RATES)),
]
TEXT_SWEEP = [
    *methods_at("padamfed", "gamma", EMNIST_RATES),
    *methods_at("scaffold_m", "eta", EMNIST_RATES),
]
IMAGE_SWEEP = [
    *(a for step in ("gamma", "eta") for a in methods_at("parfrefl", step, IMAGE_RATES)),
    *(a for name in ("fedavg", SCAFCOM_5) for a in methods_at(name, "eta", IMAGE_RATES)),
]
COMPRESSED_SWEEP = [
    a for method in (TOP_10, TOP_5) for a in methods_at(method, "gamma", IMAGE_RATES)
]
SKEWED = ("mnist-skew", "fashion-skew")
WIRE_PADAMFED = ("padamfed", "scaffold:eta=0.1", "padamfed_vr:momentum=ema", "padamfed_vr")
WIRE_PARFREFL = ("parfrefl", "padamfed")
WIRE_ALL = ("parfrefl", "scafcom:eta=0.1,compressor=identity", "padamfed")

CLAIMS: dict[int, Claim] = {
    10: Claim(
        "On EMNIST, PAdaMFed and PAdaMFed-VR are faster and end higher than FedAvg, SCAFFOLD and "
        "SCAFFOLD-M, with iid clients and with skewed ones.",
        "emnist",
        both("emnist", (*OURS, *BASELINES)),
        at(checks.leads("emnist-iid", "emnist-skew")),
    ),
    11: Claim(
        "SCAFFOLD-M, which has the momentum but not the normalisation, is slower than PAdaMFed "
        "and ends lower.",
        "emnist",
        both("emnist", ("padamfed", "scaffold_m")),
        at(checks.momentum_alone_is_slower),
    ),
    12: Claim(
        "Variance reduction improves PAdaMFed further.",
        "emnist",
        both("emnist", (*OURS, VR_EMA)),
        at(checks.reduction_helps),
    ),
    13: Claim(
        "The lead over the baselines is larger where clients differ.",
        "emnist",
        both("emnist", (*OURS, *BASELINES)),
        at(checks.margin_grows),
    ),
    14: Claim(
        "On iid EMNIST, PAdaMFed passes accuracy 0.8 in 400 rounds at every step size from 0.003 "
        "to 0.1.",
        "emnist-steps",
        {"emnist-iid": EMNIST_SWEEP},
        at(checks.whole_range_above("emnist-iid", 0.8)),
    ),
    15: Claim(
        "On EMNIST partitioned by Dirichlet(1), PAdaMFed passes 0.7 over the same range.",
        "emnist-steps",
        {"emnist-skew": EMNIST_SWEEP},
        at(checks.whole_range_above("emnist-skew", 0.7)),
    ),
    16: Claim(
        "FedAvg, SCAFFOLD and SCAFFOLD-M work over a much narrower range of step sizes.",
        "emnist-steps",
        both("emnist", WIDE_SWEEP),
        at(checks.wider_range),
    ),
    17: Claim(
        "On CIFAR-10 the methods rank in the same order as on EMNIST.",
        "cifar",
        both("cifar", (*OURS, *BASELINES)),
        at(checks.leads("cifar-iid", "cifar-skew")),
    ),
    18: Claim(
        "On skewed CIFAR-10 all methods lose accuracy and fluctuate more; their order stays.",
        "cifar",
        both("cifar", (*OURS, *BASELINES)),
        at(checks.skew_costs),
    ),
    19: Claim(
        "On CIFAR-10 methods with momentum reduce the gradient norm faster than those without.",
        "cifar",
        both("cifar", (*OURS, *BASELINES)),
        at(checks.momentum_flattens),
    ),
    20: Claim(
        "Normalising SCAFFOLD's steps without momentum makes it worse; PAdaMFed needs both.",
        "ablation",
        {"ablation": ("padamfed", "scaffold", "scaffold_norm")},
        at(checks.momentum_is_needed),
    ),
    21: Claim(
        "On IMDB the proposed methods lead too, variance reduction helps, and the lead is larger "
        "where clients differ. (That curves are smoother than for images is not checked.)",
        "imdb",
        both("imdb", (*OURS, *BASELINES)),
        at(checks.leads_on_text),
    ),
    22: Claim(
        "On IMDB PAdaMFed is above SCAFFOLD-M at every step size, and skew costs neither of them "
        "much.",
        "imdb",
        both("imdb", (*TEXT_SWEEP, "padamfed", "scaffold_m")),
        at(checks.above_on_text),
    ),
    23: Claim(
        "PAdaMFed sends as much as SCAFFOLD, two models up and two down; with variance reduction "
        "three models down.",
        "wire",
        {"wire": (*WIRE_PADAMFED, UNIT)},
        at(checks.sends(*WIRE_PADAMFED)),
    ),
    24: Claim(
        "ParFreFL sends half as much as PAdaMFed: one model up, one down.",
        "wire",
        {"wire": (*WIRE_PARFREFL, UNIT)},
        at(checks.sends(*WIRE_PARFREFL)),
    ),
    25: Claim(
        "ParFreFL equals PAdaMFed on iid MNIST and Fashion-MNIST and beats it on skewed ones.",
        "images",
        pictures("parfrefl", "padamfed"),
        at(checks.parfrefl_beside_padamfed),
    ),
    26: Claim(
        "On MNIST and Fashion-MNIST, ParFreFL and PAdaMFed are above tuned FedAvg throughout.",
        "images",
        pictures("parfrefl", "padamfed", "fedavg"),
        at(checks.both_above_fedavg),
    ),
    27: Claim(
        "On MNIST, ComParFreFL keeping 10 % or 5 % of the values tracks ParFreFL.",
        "images",
        both("mnist", ("parfrefl", TOP_10, TOP_5)),
        at(checks.compression_costs_little("mnist", 0.01)),
    ),
    28: Claim(
        "On Fashion-MNIST the same compression costs little accuracy.",
        "images",
        both("fashion", ("parfrefl", TOP_10, TOP_5)),
        at(checks.compression_costs_little("fashion", 0.03)),
    ),
    29: Claim(
        "Round for round, ComParFreFL keeps up with tuned SCAFCOM at each compression.",
        "images",
        pictures(TOP_10, TOP_5, SCAFCOM_10, SCAFCOM_5),
        at(checks.beside_scafcom),
    ),
    30: Claim(
        "ComParFreFL at 5 % needs about a tenth of the uplink bits of uncompressed messages.",
        "images",
        pictures(
            "parfrefl", "padamfed", TOP_10, TOP_5
        ),  # more than the check needs, for the picture
        at(checks.fewer_bits),
    ),
    31: Claim(
        "For the same number of bits, both at 5 %, ComParFreFL is ahead of SCAFCOM.",
        "images",
        pictures(TOP_5, SCAFCOM_5),
        at(checks.faster_per_bit),
    ),
    32: Claim(
        "Uncompressed messages, in models up/down: ParFreFL 1/1, SCAFCOM 1/2, PAdaMFed 2/2.",
        "wire",
        {"wire": (*WIRE_ALL, UNIT)},
        at(checks.sends(*WIRE_ALL)),
    ),
    33: Claim(
        "From 0.05 to 0.5 the step size hardly matters to ParFreFL, but it does to FedAvg and "
        "SCAFCOM.",
        "images",
        dict.fromkeys(SKEWED, IMAGE_SWEEP),
        at(checks.steps_matter_little),
    ),
    34: Claim(
        "From 0.05 to 0.5 the step size hardly matters to ComParFreFL at 10 % and 5 % either.",
        "images",
        dict.fromkeys(SKEWED, COMPRESSED_SWEEP),
        at(checks.steps_matter_little_compressed),
    ),
    35: Claim(
        "Losses rank the methods as accuracies do.",
        "images",
        pictures("parfrefl", "padamfed", "fedavg", TOP_5),
        at(checks.loss_follows),
    ),
    36: Claim(
        "Clients may change their compressor from round to round without any other change.",
        "images",
        {"mnist-skew": (CHANGING, TOP_5)},
        at(checks.compression_may_change),
    ),
    37: Claim(
        "With late clients (Fashion-MNIST, Dirichlet 0.5), AdaMasFL at its formulas' step sizes "
        "is as good as tuned FedBuff, CA2FL, DeFedAvg-nIID, FADAS and MasFL.",
        "late",
        {"late-1": ("adamasfl", *LATE_BASELINES)},
        at(checks.late_without_tuning),
    ),
    38: Claim(
        "As more clients train at once and models get staler, AdaMasFL keeps its accuracy, better "
        "than any other method at its fixed step sizes.",
        "late",
        {f"late-{place}": ("adamasfl", *LATE_BASELINES) for place in (0, 1, 3)},
        at(checks.staleness_matters_little),
    ),
    39: Claim(
        "More clients training at once mean more frequent steps and staler models.",
        "late",
        {f"late-{place}": ("adamasfl",) for place in (0, 1, 2, 3)},
        staleness,
    ),
}

THEORY: dict[int, str] = {
    40: "PAdaMFed's mean gradient norm falls like (S K T)^(-1/4).",
    41: "PAdaMFed-VR's mean gradient norm falls like (S K T)^(-1/3).",
    42: "PAdaMFed and PAdaMFed-VR gain as much from more clients per round or more local steps as "
    "from more rounds.",
    43: "With S K growing like T^(1/3), PAdaMFed's mean gradient norm falls like T^(-1/3); with "
    "variance reduction and S K growing like T^(1/2), like T^(-1/2).",
    44: "The steps do not depend on the scale of the loss: multiplying it by 1000 changes no "
    "trajectory.",
    45: "Clients' optima may be arbitrarily far apart; FedAvg with several local steps stalls.",
    46: "ParFreFL's mean gradient norm falls like (S K T)^(-1/4), and with S K growing like T, "
    "like T^(-1/2).",
    47: "ComParFreFL's mean gradient norm falls as fast as ParFreFL's, with the same steps "
    "whatever the compressor.",
    48: "MasFL's mean squared gradient norm falls like (S K T)^(-1/2), at steps that need the "
    "smoothness constant L.",
    49: "AdaMasFL's mean gradient norm falls like (S K T)^(-1/4) despite delays it does not know.",
}
SENTENCES = {number: claim.sentence for number, claim in CLAIMS.items()} | THEORY
STUDIES = (
    "wire",
    "images",
    "late",
    "ablation",
    "emnist-steps",
    "emnist",
    "cifar",
    "imdb",
    "theory",
)
FIGURES: dict[str, tuple[int, ...]] = {
    "padamfed-emnist": (10, 11, 12, 13),
    "padamfed-emnist-steps": (14, 15, 16),
    "padamfed-cifar": (17, 18),
    "padamfed-gradient": (19,),
    "padamfed-ablation": (20,),
    "padamfed-imdb": (21,),
    "padamfed-imdb-steps": (22,),
    "padamfed-theory": (40, 41, 42, 43, 44, 45),
    "parfrefl-rounds": (25, 26),
    "parfrefl-compression": (27, 28, 29, 36),
    "parfrefl-bits": (30, 31),
    "parfrefl-steps": (33, 34),
    "parfrefl-loss": (35,),
    "parfrefl-theory": (46, 47),
    "adamasfl-rounds": (37,),
    "adamasfl-staleness": (38, 39),
    "adamasfl-theory": (48, 49),
    "wire": (23, 24, 32),
}


def study_of(number: int) -> str:
    return CLAIMS[number].study if number in CLAIMS else "theory"


def choose(words: Sequence[str]) -> list[int]:
    """The claims given by numbers, ranges, figures, studies or `all`.

    >>> choose(["24", "37-39", "padamfed-ablation"])
    [20, 24, 37, 38, 39]
    """
    found: set[int] = set()
    for word in words:
        first, dash, last = word.partition("-")
        if word == "all":
            found |= set(SENTENCES)
        elif word in FIGURES:
            found |= set(FIGURES[word])
        elif word in STUDIES:
            found |= {number for number in SENTENCES if study_of(number) == word}
        elif first.isdigit() and (not dash or last.isdigit()):
            numbers = set(range(int(first), int(last or first) + 1))
            if not numbers:
                raise ConfigError(f"claims {word}: write the smaller number first")
            if not numbers <= set(SENTENCES):
                least, most = min(SENTENCES), max(SENTENCES)
                raise ConfigError(f"claim {word} is not known; claims are {least} to {most}")
            found |= numbers
        elif word in ("list", "evidence"):
            raise ConfigError(
                f"`tunefree-evidence claims {word}` stands alone; drop the other words"
            )
        else:
            raise unknown_name("claim or figure", word, {*FIGURES, *STUDIES, "all"})
    return sorted(found)
