"""A user's own method: what `package.module:Name` names, checked before anything runs.

It is a frozen dataclass with the contract of `core.Algorithm`, or a function that makes one
from the system constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, TypeAlias, get_type_hints

from tunefree.core import About, Algorithm, System
from tunefree.errors import ConfigError

Maker: TypeAlias = type[Any] | Callable[[System], Algorithm]
PARTS = ("sys", "server", "client", "opening", "round")


def checked_maker(path: str, found: Any) -> Maker:
    """The class or function that the path names, after checking it."""
    complaint = "" if not isinstance(found, type) else next(class_complaints(found), "")
    if not callable(found):
        complaint = f"it is a {type(found).__name__}; name a class, or a function of the System"
    if complaint:
        raise ConfigError(f"is not an algorithm: {complaint}", setting="algorithm", value=path)
    maker: Maker = found
    return maker


def class_complaints(cls: type[Any]) -> Iterator[str]:
    """What a class lacks that all algorithms have."""
    if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        yield (
            f"{cls.__name__} is not a frozen dataclass; write @dataclass(frozen=True) above its "
            "class"
        )
        return
    known = {f.name for f in fields(cls)} | set(dir(cls))
    for name in PARTS:
        if name not in known:
            yield f"it has no `{name}`; an algorithm has {', '.join(PARTS)}"


def complaints(algo: Algorithm) -> Iterator[str]:
    """The same for a finished algorithm."""
    for name in PARTS:
        if not hasattr(algo, name):
            yield f"it has no `{name}`; an algorithm has {', '.join(PARTS)}"
    yield from class_complaints(type(algo))
    if not isinstance(algo.sys, System):
        yield "`sys` is not a tunefree.System; store the one it was made with"


def made(maker: Maker, sys: System, **given: Any) -> Algorithm:
    """The algorithm with these constants and options, after checking it."""
    theory = getattr(maker, "theory", None)
    try:
        algo: Algorithm = maker(sys, **given) if theory is None else theory(sys)
    except TypeError as error:
        raise ConfigError(
            f"{title_of(maker)} cannot be made from the system constants alone ({error}); give "
            "every other field a default, or a value as an option"
        ) from error
    complaint = next(complaints(algo), "")
    if complaint:
        raise ConfigError(f"{title_of(maker)} does not make an algorithm: {complaint}")
    return algo


def about_of(maker: Maker) -> About:
    """A class's `about`; a user's own class may have none, and a function cannot."""
    said = getattr(maker, "about", None)
    return said if isinstance(said, About) else About(title_of(maker), "", "")


def title_of(maker: Maker) -> str:
    return getattr(maker, "__name__", type(maker).__name__)


def options_in(maker: Maker) -> dict[str, object]:
    """The type of each field that may be set, by name; a function has none.

    A type that cannot be resolved is unknown and accepts any value.
    """
    if not isinstance(maker, type):
        return {}
    try:
        hints = get_type_hints(maker)
    except (NameError, TypeError):
        hints = {}
    return {f.name: hints.get(f.name) for f in fields(maker) if is_option(f)}


def is_option(f: Field[Any]) -> bool:
    return f.init and f.name not in ("sys", "shapes")
