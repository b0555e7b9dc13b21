"""What a name stands for: ours, an installed package's, or the user's own `package.module:name`.

A package offers data sets, networks and methods by name as entry points of three groups, each with
the value `package.module:object`. They are loaded only when they are asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.errors import ConfigError, failure_of, unknown

GROUPS = {"data": "tunefree.data", "model": "tunefree.models", "algorithm": "tunefree.methods"}
EVIDENCE = {  # what the distribution in evidence/ offers, for the error where it is not installed
    "data": "mnist fashion-mnist emnist emnist-byclass emnist-bymerge emnist-part "
    "emnist-part-balanced cifar10 imdb synthetic-quadratic",
    "model": "cnn_mnist cnn_emnist rnn3_emnist resnet18_cifar lstm_imdb transformer_imdb quadratic",
    "algorithm": "scaffold_m scaffold_m_vr scaffold_norm slowmo fedexp feddyn fedcm fedams_server "
    "fedams_local mime mime_lite fedsps delta_sgd fafed scafcom scallion fed_ef_sgd fed_ef_ams "
    "local_sgd_c ca2fl defedavg_niid fadas fedmuon_server local_muon fedmuon fedmuon_liu muloco "
    "fedadamw fedacg fedsmoo local_prodigy local_dog local_schedule_free server_dog",
}


class Offer(NamedTuple):
    """What an installed package offers by name."""

    setting: str
    name: str
    package: str
    path: str  # package.module:object

    def load(self) -> Any:
        """The object itself."""
        try:
            return imported(self.path)
        except Exception as error:  # the package may raise anything
            raise ConfigError(
                f"is offered by the package {self.package}, but {self.path} could not be "
                f"imported: {reason(error)}",
                "install that package again, or remove it",
                setting=self.setting,
                value=self.name,
            ) from error


def offers(setting: str) -> list[Offer]:
    """What installed packages offer as `data`, `model` or `algorithm`."""
    return sorted(
        Offer(setting, each.name, each.dist.name if each.dist else "?", each.value.split(" ")[0])
        for each in entry_points(group=GROUPS[setting])
    )


def offered(setting: str, name: str, known: Iterable[str], more: str = "") -> Offer:
    """The offer of this name; the error for another one lists all names that are `known`."""
    found = offers(setting)
    match [offer for offer in found if offer.name == name]:
        case [offer]:
            return offer
        case [one, other, *_]:
            raise ConfigError(
                f"is offered by the packages {one.package} and {other.package}",
                f"remove one of them, or write {one.path} or {other.path}",
                setting=setting,
                value=name,
            )
    if name in EVIDENCE[setting].split():
        raise ConfigError(
            "is offered by the package tunefree-evidence, which is not installed",
            "install it with `pip install ./evidence` in a clone of tunefree's repository",
            setting=setting,
            value=name,
        )
    raise unknown(setting, name, {*known, *(offer.name for offer in found)}, more)


def named(setting: str, name: str, known: Mapping[str, Any], more: str = "") -> Any:
    """The object of this name: one of those that are `known`, a package's or the user's own."""
    if ":" in name:
        return import_name(setting, name)
    return known[name] if name in known else offered(setting, name, known, more).load()


def import_name(setting: str, path: str) -> Any:
    """The object that `package.module:name` names; modules in the current folder count too."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return imported(path)
    except Exception as error:  # the user's module may raise anything
        raise ConfigError(
            f"could not be imported: {reason(error)}",
            "write it as package.module:name and run where the package can be imported",
            setting=setting,
            value=path,
        ) from error


def imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return attrgetter(name)(importlib.import_module(module))


def reason(error: Exception) -> str:
    """Why an import failed, in a line."""
    usual = isinstance(error, ImportError | AttributeError | ValueError)
    return str(error) if usual else failure_of(error)
