"""Named data sets: descriptions and loading."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from tunefree.core import stream
from tunefree.data import own
from tunefree.data.named import cache, official, synthetic, text
from tunefree.data.named.cache import FileSet
from tunefree.data.samples import Dataset, Images, Samples
from tunefree.errors import ConfigError, choices, unknown_name

__all__ = ["SOURCES", "Dataset", "Images", "Source", "at_hand", "classes_of", "load", "options"]

DIGITS = tuple("0123456789")
UPPER = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
LOWER = tuple("abcdefghijklmnopqrstuvwxyz")
MERGED = (
    DIGITS + UPPER + tuple("abdefghnqrt")
)  # lower-case letters that differ from their upper case
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


class Source(NamedTuple):
    """The description of a named data set."""

    name: str
    about: str
    train: int  # samples
    test: int
    classes: int | None
    model: str
    citation: str
    licence: str
    build: Callable[..., Dataset]  # its keywords after data_dir are the data set's options
    files: FileSet | None = None


def digits() -> Dataset:
    """1,797 handwritten digits, 8x8 grey, embedded in scikit-learn; a fifth is the test set."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images.astype(np.uint8))
    y = torch.from_numpy(bunch.target.astype(np.int64))
    order = torch.from_numpy(stream(0, "digits split").permutation(len(y)))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
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
    order = stream(0, "breast-cancer split").permutation(len(bunch.target))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    known = bunch.data[train]
    x = torch.from_numpy(((bunch.data - known.mean(0)) / known.std(0)).astype(np.float32))
    y = long(bunch.target)
    return Dataset(
        name="breast-cancer",
        train=Samples(x[train], y[train]),
        test=Samples(x[test], y[test]),
        classes=2,
        model="mlp",
        names=tuple(map(str, bunch.target_names)),
    )


def images(
    files: FileSet,
    model: str,
    names: tuple[str, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    data_dir: str | Path | None = None,
) -> Dataset:
    """A data set of images that comes as files."""
    arrays = cache.arrays_of(files, data_dir)
    prepare = Images(white=255, mean=mean, std=std)
    train, test = (
        Samples(torch.from_numpy(arrays[f"x_{split}"]), long(arrays[f"y_{split}"]), prepare)
        for split in ("train", "test")
    )
    return Dataset(files.name, train, test, files.classes, model, names)


def reviews(data_dir: str | Path | None = None, length: int = 200) -> Dataset:
    """IMDB: the first `length` words of each review, padded at the end."""
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= 3000:
        raise ConfigError(f"imdb length = {length!r} must be a whole number from 1 to 3000")
    arrays = cache.arrays_of(official.IMDB, data_dir)

    def split(part: str) -> Samples:
        tokens, starts = arrays[f"x_{part}"], arrays[f"starts_{part}"]
        rows = text.pad(np.asarray(tokens, np.int16), np.asarray(starts, np.int64), length)
        return Samples(torch.from_numpy(rows), long(arrays[f"y_{part}"]), text.TokenIds())

    return Dataset(
        name="imdb",
        train=split("train"),
        test=split("test"),
        classes=2,
        model="lstm_imdb",
        names=("negative", "positive"),
        words=tuple(str(word) for word in arrays["words"]),
    )


def long(labels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(labels.astype(np.int64))


def picture_source(
    files: FileSet,
    about: str,
    citation: str,
    licence: str,
    model: str,
    names: tuple[str, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Source:
    build = partial(images, files, model, names, mean, std)
    return Source(
        *(files.name, about, files.train, files.test, files.classes, model),
        *(citation, licence, build, files),
    )


emnist_source = partial(
    picture_source,
    citation="Cohen, Afshar, Tapson, van Schaik 2017, arXiv:1702.05373",
    licence="none stated, citation asked for; from NIST Special Database 19",
    model="cnn_emnist",
    mean=(0.1735,),
    std=(0.3316,),
)

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
        picture_source(
            official.MNIST,
            about="handwritten digits, 28x28 grey",
            citation="LeCun, Bottou, Bengio, Haffner 1998, Proc. IEEE 86(11)",
            licence="copyright Y. LeCun and C. Cortes; elsewhere stated as CC BY-SA 3.0",
            model="cnn_mnist",
            names=DIGITS,
            mean=(0.1307,),
            std=(0.3081,),
        ),
        picture_source(
            official.FASHION_MNIST,
            about="pictures of clothes, 28x28 grey",
            citation="Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747",
            licence="MIT (Zalando SE)",
            model="cnn_mnist",
            names=CLOTHES,
            mean=(0.2860,),
            std=(0.3530,),
        ),
        emnist_source(
            official.EMNIST, about="EMNIST Balanced: digits and letters, 28x28 grey", names=MERGED
        ),
        emnist_source(
            official.EMNIST_BYCLASS,
            about="EMNIST ByClass: digits, upper and lower case, unbalanced",
            names=DIGITS + UPPER + LOWER,
        ),
        emnist_source(
            official.EMNIST_BYMERGE,
            about="EMNIST ByMerge: look-alike cases merged, unbalanced",
            names=MERGED,
        ),
        emnist_source(
            official.EMNIST_PART,
            about="the 47-class part of EMNIST that its two test splits give, unbalanced",
            names=MERGED,
        ),
        emnist_source(
            official.EMNIST_PART_BALANCED,
            about="the same part with 600 train and 150 test pictures of each class",
            names=MERGED,
        ),
        picture_source(
            official.CIFAR10,
            about="photographs, 32x32 colour",
            citation="Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
            licence="none stated, citation asked for",
            model="resnet18_cifar",
            names=THINGS,
            mean=(0.49139968, 0.48215841, 0.44653091),
            std=(0.24703223, 0.24348513, 0.26158784),
        ),
        Source(
            name="imdb",
            about="film reviews, 10,000 words of vocabulary, 200 words each",
            train=25_000,
            test=25_000,
            classes=2,
            model="lstm_imdb",
            citation="Maas, Daly, Pham, Huang, Ng, Potts 2011, ACL",
            licence="none stated, citation asked for",
            build=reviews,
            files=official.IMDB,
        ),
        Source(
            name="synthetic-quadratic",
            about="quadratics with a known optimum and natural clients",
            train=10_000,
            test=2_000,
            classes=None,
            model="quadratic",
            citation="none, it is generated",
            licence="public domain",
            build=synthetic.quadratic,
        ),
    )
}


def options(name: str) -> tuple[str, ...]:
    """The options that this data set takes.

    >>> options("imdb")
    ('length',)
    """
    parameters = inspect.signature(source_of(name).build).parameters
    return tuple(
        key for key, p in parameters.items() if p.kind != p.VAR_KEYWORD and key != "data_dir"
    )


def at_hand(name: str, data_dir: str | Path | None = None) -> bool:
    """Whether the data set can be loaded without the network."""
    files = source_of(name).files
    return files is None or cache.at_hand(files, data_dir)


def load(name: str, data_dir: str | Path | None = None, **chosen: object) -> Dataset:
    """The named data set, fetched if it is not in any folder; or a user's own, see `own`.

    >>> data = load("digits")
    >>> len(data.train), len(data.test), data.train.input_shape
    (1438, 359, (1, 8, 8))
    """
    if own.is_own(name):
        if data_dir:
            raise ConfigError(
                "is for named data sets",
                "omit it, and give the full path of your own as data",
                setting="data_dir",
                value=str(data_dir),
            )
        return own.load(name, **chosen)
    source, allowed = source_of(name), options(name)
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
    if source.files is None:
        return source.build(**chosen)
    return source.build(data_dir=data_dir, **chosen)


def classes_of(name: str, data_dir: str | Path | None = None, **chosen: object) -> int | None:
    """How many classes the data has; only a user's own data is loaded for this."""
    if own.is_own(name):
        return load(name, data_dir, **chosen).classes
    return source_of(name).classes


def source_of(name: str) -> Source:
    if name not in SOURCES:
        raise ConfigError(
            "is not known",
            f"{choices(name, SOURCES)}, or give your own: a file that ends in .csv, or "
            "package.module:function",
            setting="data",
            value=name,
        )
    return SOURCES[name]
