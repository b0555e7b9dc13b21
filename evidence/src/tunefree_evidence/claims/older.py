"""Stored verdicts in today's words: what older versions wrote is reworded when it is read."""

from __future__ import annotations

import re

from tunefree_evidence.claims.claims import SENTENCES
from tunefree_evidence.claims.verdicts import REASONS, Row

NAMES = (  # of parts and numbers, as they were and as they are; none of the latter matches again
    (r"(.+) ahead of (.+) over all evaluations", r"lead of \1 over \2, mean of all evaluations"),
    (r"(.+) ahead of (.+) at the end", r"lead of \1 over \2, at the end"),
    (r"(.+) ahead of (.+) at ([\d.]+)", r"lead of \1 over \2, at step size \3"),
    (r"(.+) ahead of (.+)", r"lead of \1 over \2"),
    (
        r"share of rounds in which (.+) has the best baseline's accuracy",
        r"share of rounds until \1 has the best baseline's final accuracy (2: never)",
    ),
    (r"(\S+) accuracy", r"accuracy of \1"),
    (r"decades of (\w+ (?:gamma|eta)(?: minus .+)?)", r"decades of good step sizes, \1"),
    (r"growth of swings by skew", "growth of fluctuation with skew"),
    (r"lost by (.+)", r"accuracy lost by \1"),
    (
        r"bits to 95 %, top 5 % over all",
        "uplink bits to 95 % of parfrefl's accuracy, top 5 % over parfrefl (10: never)",
    ),
    (r"the same with the opening", "the same ratio with the opening"),
    (r"best minus worst of (\S+) (gamma|eta)", r"best minus worst accuracy of \1 over \2"),
    (r"accuracy adamasfl loses", "accuracy adamasfl loses to staleness"),
    (r"comparisons that are clear both ways", "comparisons in which both differences are clear"),
    (r"(\d+) jobs out", r"\1 jobs in flight"),
    (r"seconds a step, (\d+) over (\d+) jobs", r"virtual seconds per step, \1 over \2 jobs"),
    (r"(.+) moves by", r"trajectory shift of \1"),
)
PLACED = (  # those whose meaning depends on the setting before them
    (
        r"([\w-]+): how much more (\S+) loses",
        r"\1: best minus worst accuracy of \2 over eta, minus that of parfrefl over gamma",
    ),
    (r"how much more (\S+) loses", r"how much more \1 loses to staleness than adamasfl"),
    (
        r"(\d+) jobs out: staleness minus (\S+), at most",
        r"\1 jobs in flight: mean staleness, distance from \2",
    ),
    (r"(.+)\((\d+) jobs out\)(.+)", r"\1(\2 jobs in flight)\3"),
    (
        r"(.+): gradient, many rounds over few",
        r"\1: gradient after many rounds over that after few",
    ),
)
PHRASES = (  # of the text on a study's size
    ("jobs out at a time", "jobs in flight"),
    ("at written step sizes", "at given step sizes"),
)


def today(row: Row) -> Row:
    """The row in the words of this version; its numbers stay as they are."""
    new: Row = {"sentence": SENTENCES[row["claim"]]}
    if "played" in row:
        new["played"] = reworded(row["played"])
    if own := row.get("own_units"):
        new["own_units"] = basis(own)
        new["reason"] = REASONS[own["verdict"]]
    return row | basis(row) | new


def basis(row: Row) -> Row:
    """What a verdict rests on: its parts and numbers, why, and how the methods ended."""
    names = {part["what"]: name(part["what"]) for part in row.get("parts", ())}
    why = row.get("why", "")
    for old, now in names.items():
        why = why.replace(f"{old}: ", f"{now}: ")
    new: Row = {
        "parts": [part | {"what": names[part["what"]]} for part in row.get("parts", ())],
        "numbers": {name(what): value for what, value in row.get("numbers", {}).items()},
        "finals": [with_method(end) for end in row.get("finals", ())],
        "why": why,
    }
    return row | {key: value for key, value in new.items() if key in row}


def name(what: str) -> str:
    """The name of a part or a number, in today's words.

    >>> name("emnist-iid: padamfed ahead of the best baseline")
    'emnist-iid: lead of padamfed over the best baseline'
    >>> name("lead of padamfed over fedavg")
    'lead of padamfed over fedavg'
    """
    for old, new in PLACED:
        if found := re.fullmatch(old, what):
            return found.expand(new)
    place = found[0] if (found := re.match(r"[\w-]+: ", what)) else ""
    for old, new in NAMES:
        if found := re.fullmatch(old, what.removeprefix(place)):
            return place + found.expand(new)
    return what


def reworded(text: str) -> str:
    for old, new in PHRASES:
        text = text.replace(old, new)
    return text


def with_method(end: Row) -> Row:
    """How a method ended, with `method` where older versions wrote `arm`."""
    return {"method" if key == "arm" else key: value for key, value in end.items()}
