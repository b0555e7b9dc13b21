"""What can be given as a method, checked before anything runs.

It is a value, a class that derives from `core.Method`, or a function that makes a value from the
system constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from inspect import get_annotations
from typing import Any, TypeAlias, get_type_hints

from tunefree.core import About, Method, Step, System, about, is_option
from tunefree.errors import ConfigError

Maker: TypeAlias = Method | type[Method] | Callable[[System], Method]


def checked_maker(name: str, found: Any) -> Maker:
    """What was found under a name or given, after checking it."""
    complaint = class_complaint(found) if isinstance(found, type) else ""
    if not callable(found) and not isinstance(found, Method):
        complaint = f"it is a {type(found).__name__}; name a class, or a function of the System"
    if complaint:
        raise ConfigError(f"is not an algorithm: {complaint}", setting="algorithm", value=name)
    maker: Maker = found
    return maker


def class_complaint(cls: type[Any]) -> str:
    """What a class must change to be a method; empty if nothing."""
    if not issubclass(cls, Method):
        return f"{cls.__name__} is not a tunefree.Method; write class {cls.__name__}(Method)"
    own = [hint for hint in get_annotations(cls).values() if "ClassVar" not in str(hint)]
    if own and "__dataclass_params__" not in vars(cls):
        return f"{cls.__name__} is not a frozen dataclass; write @dataclass(frozen=True) above it"
    if missing := sorted(cls.__abstractmethods__):
        return f"it has no `{'` and no `'.join(missing)}`; a method has server and round"
    wrong = [name for name, step in cls.about.steps.items() if not isinstance(step, Step)]
    if wrong:
        return f"the formula of its step `{wrong[0]}` is no Step; write Step(text, function)"
    return ""


def made(maker: Maker, sys: System, given: Mapping[str, Any]) -> Method:
    """The method with these options; a function gets the constants alone, and is checked."""
    if isinstance(maker, Method):
        return replace(maker, **given)
    try:
        method: Any = maker(**given) if isinstance(maker, type) else maker(sys)
    except TypeError as error:
        raise ConfigError(
            f"{title_of(maker)} cannot be made from the system constants alone ({error}); give "
            "every field a default, or a value as an option"
        ) from error
    if complaint := class_complaint(type(method)):
        raise ConfigError(f"{title_of(maker)} does not make an algorithm: {complaint}")
    return method  # type: ignore[no-any-return]


def about_of(maker: Maker) -> About:
    """What a method says about itself; a function has its name only."""
    if isinstance(maker, Method | type):
        return about(maker)
    return About(title_of(maker))


def title_of(maker: Maker) -> str:
    return str(getattr(maker, "__name__", type(maker).__name__))


def options_in(maker: Maker) -> dict[str, object]:
    """The type of each field that may be set, by name; a function has none.

    A type that cannot be resolved is unknown and accepts any value.
    """
    if not isinstance(maker, Method | type):
        return {}
    try:
        hints = get_type_hints(maker if isinstance(maker, type) else type(maker))
    except (NameError, TypeError):
        hints = {}
    return {f.name: hints.get(f.name) for f in fields(maker) if f.init and is_option(f.name)}
