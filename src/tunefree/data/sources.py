"""Named data sets: those inside scikit-learn, and those that installed packages offer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from tunefree.core import stream
from tunefree.data import user_data
from tunefree.data.samples import Dataset, Images, Index, Samples
from tunefree.errors import ConfigError, unknown_name
from tunefree.importing import offered

DIGITS = tuple("0123456789")
OWN = "your own: a file that ends in .csv, leaf:FOLDER, or package.module:function"


class Source(NamedTuple):
    """The description of a named data set, which has the same samples wherever it is built.

    Attributes:
        name: The name that it is offered by.
        about: What it is, in a line.
        train: The number of training samples.
        test: The number of test samples.
        classes: The number of classes; None if it is not a classification task.
        model: The name of the model that goes with it by default.
        citation: Whom to cite.
        licence: The licence of the data.
        build: Returns the data set. Its keywords are the options of the data set; a keyword
            `data_dir`, the folder of its files, is not one of them.
        here: Whether it can be built without the network, given `data_dir`; omitted if always.

    >>> from tunefree.data import Source, load
    >>> mine = Source("mine", "digits", 1438, 359, 10, "mlp", "-", "-", lambda: load("digits"))
    >>> mine.model
    'mlp'
    """

    name: str
    about: str
    train: int
    test: int
    classes: int | None
    model: str
    citation: str
    licence: str
    build: Callable[..., Dataset]
    here: Callable[[str | Path | None], bool] | None = None


def digits() -> Dataset:
    """1,797 handwritten digits, 8x8 grey, embedded in scikit-learn; a fifth is the test set."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images.astype(np.uint8))
    y = torch.from_numpy(bunch.target.astype(np.int64))
    train, test = split("digits", len(y))
    prepare = Images(white=16, mean=(0.305,), std=(0.376,))
    return Dataset(
        name="digits",
        train=Samples(x[train], y[train], prepare),
        test=Samples(x[test], y[test], prepare),
        classes=10,
        model="mlp",
        names=DIGITS,
    )


def breast_cancer() -> Dataset:
    """569 tumours by 30 measures, embedded in scikit-learn; a fifth is the test set."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    train, test = split("breast-cancer", len(bunch.target))
    known = bunch.data[train]
    x = torch.from_numpy(((bunch.data - known.mean(0)) / known.std(0)).astype(np.float32))
    y = torch.from_numpy(bunch.target.astype(np.int64))
    return Dataset(
        name="breast-cancer",
        train=Samples(x[train], y[train]),
        test=Samples(x[test], y[test]),
        classes=2,
        model="mlp",
        names=tuple(map(str, bunch.target_names)),
    )


def split(name: str, n: int) -> tuple[Index, Index]:
    """Indices to train on and, a fifth of all, to test on."""
    order: Index = stream(0, f"{name} split").permutation(n)
    return order[n // 5 :], order[: n // 5]


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="digits",
            about="handwritten digits, 8x8 grey, inside scikit-learn",
            train=1438,
            test=359,
            classes=10,
            model="mlp",
            citation="Alpaydin, Kaynak 1998, UCI Optical Recognition of Handwritten Digits",
            licence="CC BY 4.0 (UCI)",
            build=digits,
        ),
        Source(
            name="breast-cancer",
            about="tumours, benign or malignant, by 30 measures, inside scikit-learn",
            train=456,
            test=113,
            classes=2,
            model="mlp",
            citation="Street, Wolberg, Mangasarian 1993, UCI Breast Cancer Wisconsin (Diagnostic)",
            licence="CC BY 4.0 (UCI)",
            build=breast_cancer,
        ),
    )
}


def find(name: str) -> Source | str:
    """The description of the data of this name; for a user's own, the table or function itself.

    A package may offer a function, which then is like a user's own `package.module:function`.
    """
    if user_data.is_own(name):
        return name
    if name in SOURCES:
        return SOURCES[name]
    offer = offered("data", name, SOURCES, more=f"give {OWN}")
    found = offer.load()
    return found if isinstance(found, Source) else offer.path


def describe(name: str) -> Source | None:
    """The description of a named data set; None for a table or a function.

    >>> describe("digits").train, describe("mypackage.data:load")
    (1438, None)
    """
    found = find(name)
    return found if isinstance(found, Source) else None


def usual_model(name: str) -> str:
    """The model that goes with this data by default; that of a user's own if it is not here."""
    try:
        source = describe(name)
    except ConfigError:
        return user_data.MODEL
    return source.model if source else user_data.MODEL


def load(name: str, data_dir: str | Path | None = None, **chosen: object) -> Dataset:
    """The data set of this name, ours or one that a package offers; or a user's own.

    Args:
        name: A name that `tunefree data list` shows, a CSV file, leaf:FOLDER, or
            package.module:function.
        data_dir: The folder of its files, for named data sets that need some.
        chosen: The options of the data set.

    >>> data = load("digits")
    >>> len(data.train), len(data.test), data.train.input_shape
    (1438, 359, (1, 8, 8))
    """
    source = find(name)
    if isinstance(source, str):
        if data_dir:
            raise ConfigError(
                "is for named data sets",
                "omit it, and give the full path of your own as data",
                setting="data_dir",
                value=str(data_dir),
            )
        return user_data.load(source, **chosen)._replace(name=name)
    parameters = inspect.signature(source.build).parameters
    allowed = [key for key in parameters if key != "data_dir"]
    for key in chosen:
        if not allowed:
            raise ConfigError(
                f"was given, but {name} takes no options",
                "omit it",
                setting=f"data_option.{key}",
                value=chosen[key],
            )
        if key not in allowed:
            raise unknown_name(f"option of {name}", key, allowed)
    where = {"data_dir": data_dir} if "data_dir" in parameters else {}
    return source.build(**where, **chosen)


def classes_of(name: str, data_dir: str | Path | None = None, **chosen: object) -> int | None:
    """How many classes the data has; only a user's own data is loaded for this."""
    source = describe(name)
    return source.classes if source else load(name, data_dir, **chosen).classes
