"""What a study runs at each size, described from its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tunefree.data import describe as describe_data
from tunefree_evidence.claims.claims import CLAIMS
from tunefree_evidence.claims.recipes import (
    LEVELS,
    SEEDS,
    THEORY_ROUNDS,
    THEORY_SEEDS,
    Scale,
    Setting,
    settings,
    swept_step,
)


def describe(study: str, scale: Scale, asked: Sequence[int] = ()) -> str:
    """One line: sizes, data, model and seeds; the size's own seeds unless others are asked for.

    >>> describe("theory", "small")
    'at most 4,096 rounds on synthetic problems; seeds 0, 1, 2, 3, 4'
    """
    if study == "theory":
        seeds = list_of(asked or THEORY_SEEDS[scale])
        return f"at most {THEORY_ROUNDS[scale]:,} rounds on synthetic problems; seeds {seeds}"
    needs: dict[str, list[str]] = {}
    for claim in CLAIMS.values():
        if claim.study == study:
            for where, methods in claim.needs.items():
                needs.setdefault(where, []).extend(methods)
    known = settings(scale)
    mine = [known[where] for where in needs]
    late = [LEVELS[scale][int(where[-1])] for where in needs if where.startswith("late-")]
    return "; ".join(
        text
        for text in (
            each(map(sizes, mine)),
            f"{each(map(data, mine))}, partition {each(map(partition, mine))}",
            f"model {each(map(model, mine))}",
            f"{list_of(sorted(late))} jobs in flight" if late else "",
            words_on_seeds(needs, known, asked or SEEDS[scale]),
        )
        if text
    )


def sizes(setting: Setting) -> str:
    keys = setting.settings
    names = ("clients", "per_round", "local_steps", "rounds")
    N, S, K, T = (keys[name] for name in names)
    return f"N = {N}, S = {S}, K = {K}, batch {keys['batch_size']}, {T} rounds"


def data(setting: Setting) -> str:
    return str(setting.settings["data"]) + options(setting, "data_option.length")


def partition(setting: Setting) -> str:
    return str(setting.settings["partition"])


def model(setting: Setting) -> str:
    source = describe_data(str(setting.settings["data"]))
    name = setting.settings.get("model", source and source.model)
    return f"{name}{options(setting, 'model_option.embedding', 'model_option.hidden')}"


def options(setting: Setting, *keys: str) -> str:
    """Those of these keys that are set, in brackets."""
    given = [
        f"{key.partition('.')[2]} {setting.settings[key]}" for key in keys if key in setting[0]
    ]
    return f" ({', '.join(given)})" if given else ""


def words_on_seeds(
    needs: Mapping[str, Sequence[str]], known: Mapping[str, Setting], asked: Sequence[int]
) -> str:
    """The seeds of methods, and of methods at given step sizes if these are fewer."""
    methods, swept = set[int](), set[int]()
    for where, names in needs.items():
        for method in names:
            if swept_step(method):
                swept |= set(asked[: known[where].sweep_seeds])
            else:
                methods |= set(asked[: known[where].seeds])
    if not methods or not swept or methods == swept:
        return f"seeds {list_of(sorted(methods | swept))}"
    return f"seeds {list_of(sorted(methods))}, at given step sizes {list_of(sorted(swept))}"


def title(where: str, scale: Scale) -> str:
    """The name of a setting; for late clients, the jobs in flight.

    >>> title("mnist-iid", "small"), title("late-1", "small")
    ('mnist-iid', '10 jobs in flight')
    """
    if where.startswith("late-"):
        return f"{LEVELS[scale][int(where.removeprefix('late-'))]} jobs in flight"
    return where


def each(words: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(words))


def list_of(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
