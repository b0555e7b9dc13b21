"""The data sets that this distribution offers to `--data`, described."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from tunefree.data import Dataset, Images, Samples, Source
from tunefree.errors import ConfigError
from tunefree_evidence.datasets import cache, official, synthetic, text
from tunefree_evidence.datasets.cache import FileSet

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


def pictures(
    files: FileSet,
    about: str,
    citation: str,
    licence: str,
    model: str,
    names: tuple[str, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Source:
    """The description of a data set of images."""

    def build(data_dir: str | Path | None = None) -> Dataset:
        return images(files, model, names, mean, std, data_dir)

    return Source(
        name=files.name,
        about=about,
        train=files.train,
        test=files.test,
        classes=files.classes,
        model=model,
        citation=citation,
        licence=licence,
        build=build,
        here=partial(cache.at_hand, files),
    )


emnist = partial(
    pictures,
    citation="Cohen, Afshar, Tapson, van Schaik 2017, arXiv:1702.05373",
    licence="none stated, citation asked for; from NIST Special Database 19",
    model="cnn_emnist",
    mean=(0.1735,),
    std=(0.3316,),
)

MNIST = pictures(
    official.MNIST,
    about="handwritten digits, 28x28 grey",
    citation="LeCun, Bottou, Bengio, Haffner 1998, Proc. IEEE 86(11)",
    licence="copyright Y. LeCun and C. Cortes; elsewhere stated as CC BY-SA 3.0",
    model="cnn_mnist",
    names=DIGITS,
    mean=(0.1307,),
    std=(0.3081,),
)
FASHION_MNIST = pictures(
    official.FASHION_MNIST,
    about="pictures of clothes, 28x28 grey",
    citation="Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747",
    licence="MIT (Zalando SE)",
    model="cnn_mnist",
    names=CLOTHES,
    mean=(0.2860,),
    std=(0.3530,),
)
EMNIST = emnist(
    official.EMNIST, about="EMNIST Balanced: digits and letters, 28x28 grey", names=MERGED
)
EMNIST_BYCLASS = emnist(
    official.EMNIST_BYCLASS,
    about="EMNIST ByClass: digits, upper and lower case, unbalanced",
    names=DIGITS + UPPER + LOWER,
)
EMNIST_BYMERGE = emnist(
    official.EMNIST_BYMERGE,
    about="EMNIST ByMerge: look-alike cases merged, unbalanced",
    names=MERGED,
)
EMNIST_PART = emnist(
    official.EMNIST_PART,
    about="the 47-class part of EMNIST that its two test splits give, unbalanced",
    names=MERGED,
)
EMNIST_PART_BALANCED = emnist(
    official.EMNIST_PART_BALANCED,
    about="the same part with 600 train and 150 test pictures of each class",
    names=MERGED,
)
CIFAR10 = pictures(
    official.CIFAR10,
    about="photographs, 32x32 colour",
    citation="Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
    licence="none stated, citation asked for",
    model="resnet18_cifar",
    names=THINGS,
    mean=(0.49139968, 0.48215841, 0.44653091),
    std=(0.24703223, 0.24348513, 0.26158784),
)
IMDB = Source(
    name="imdb",
    about="film reviews, 10,000 words of vocabulary, 200 words each",
    train=25_000,
    test=25_000,
    classes=2,
    model="lstm_imdb",
    citation="Maas, Daly, Pham, Huang, Ng, Potts 2011, ACL",
    licence="none stated, citation asked for",
    build=reviews,
    here=partial(cache.at_hand, official.IMDB),
)
SYNTHETIC_QUADRATIC = Source(
    name="synthetic-quadratic",
    about="quadratics with a known optimum and natural clients",
    train=10_000,
    test=2_000,
    classes=None,
    model="quadratic",
    citation="none, it is generated",
    licence="public domain",
    build=synthetic.quadratic,
)
