"""A user's own data by name: a CSV table, a folder of LEAF's, or a function."""

from __future__ import annotations

import csv
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import stream
from tunefree.data.clients import apart, federation_from
from tunefree.data.samples import Dataset, Federation, Index, Partition, Samples, tensors_of
from tunefree.errors import ConfigError, failure_of, no_argument, unknown
from tunefree.importing import import_name

SHARE = 0.2  # of the samples become the test set, if none is given
MODEL = "mlp"
LEAF = "leaf:"
TASKS = ("classification", "regression")
WHOLE = re.compile(r"\s*[+-]?\d+\s*")


class Table(NamedTuple):
    """The contents of a CSV file: inputs, targets, and perhaps each row's client."""

    x: NDArray[np.float32]
    y: NDArray[Any]
    names: tuple[str, ...]  # of the classes; empty for a regression
    groups: Index | None
    clients: tuple[str, ...] = ()  # the names of the groups


def is_own(name: str) -> bool:
    """Whether this names a table or a function rather than a data set.

    >>> is_own("patients.csv"), is_own("leaf:femnist/data"), is_own("mypackage.data:load")
    (True, True, True)
    """
    return is_table(name) or ":" in name


def is_table(name: str) -> bool:
    return name.lower().endswith(".csv")


def load(name: str, **options: Any) -> Dataset:
    """The data of this name; a share of it becomes the test set unless it has one.

    If `fingerprint` is given, the samples must still have it.
    """
    wanted, share = options.pop("fingerprint", ""), options.pop("test", SHARE)
    if isinstance(share, bool) or not isinstance(share, float) or not 0 < share < 1:
        raise ConfigError(
            "must be the share of samples to test on, between 0 and 1",
            setting="data_option.test",
            value=share,
        )
    if is_file := is_table(name) or name.startswith(LEAF):
        data = (from_table if is_table(name) else from_leaf)(name, share, options)
    else:
        data = called(name, share, options)
    if wanted and (found := fingerprint(data)) != wanted:
        same = "" if is_file else ", by a function that returns the same samples every time"
        raise ConfigError(
            f"has changed: its samples had the fingerprint {wanted}, and now it is {found}",
            f"give them as they were{same}, or start a new run",
            setting="data",
            value=name,
        )
    return data


def fingerprint(data: Dataset) -> str:
    """Twelve letters and digits that change if samples, targets or clients do."""
    mark = hashlib.sha256()
    for samples in (data.train, data.test):
        inputs = {} if samples.lazy else tensors_of(samples.x)
        for tensor in (*inputs.values(), samples.y):
            mark.update(str(tuple(tensor.shape)).encode())
            mark.update(np.ascontiguousarray(tensor.numpy()).data)
    if data.groups is not None:
        mark.update(np.ascontiguousarray(data.groups).data)
    return mark.hexdigest()[:12]


# A function


def called(name: str, share: float, options: dict[str, Any]) -> Dataset:
    """What the function returns, as a data set."""
    function = import_name("data", name)
    if not callable(function):
        raise ConfigError(
            "is not a function", "give one that returns data", setting="data", value=name
        )
    accepted = list(inspect.signature(function).parameters)
    for key in options:
        if key not in accepted:
            raise no_argument(f"data = {name!r}", key, [*accepted, "test"], "option")
    try:
        given = given_by(function, json.dumps(options))  # a list cannot be a key of the cache
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"your function {name} failed with {failure_of(error)}; call it in Python to see more"
        ) from error
    return dataset_of(name, given, share)


@lru_cache(maxsize=1)  # one command may ask several times
def given_by(function: Callable[..., Any], options: str) -> Any:
    return function(**json.loads(options))


def dataset_of(name: str, given: Any, share: float) -> Dataset:
    """A data set from clients in a list, from clients and a test set, or from all samples as one.

    In a tuple of two, the second decides: numbers are targets, a Partition assigns the samples to
    clients, and all else is a test set.
    """
    if isinstance(given, Dataset):
        return given._replace(name=name)
    data, test = given, None
    if isinstance(given, tuple) and len(given) == 2 and not is_one(given):
        data, test = given
    several = isinstance(data, list | dict) or (is_one(data) and isinstance(data[1], Partition))
    federation = apart(federation_from(data if several else [data], test), words=True)
    groups = owners(federation) if several else None
    train = federation.train
    if groups is not None and (groups < 0).any():  # a partition may exclude samples
        train, groups = train.subset(np.flatnonzero(groups >= 0)), groups[groups >= 0]
    test = federation.test
    if test is None:
        left, aside = split(len(train), groups, share)
        test, train = train.subset(aside), train.subset(left)
        groups = None if groups is None else groups[left]
    train, test = (with_columns(samples) for samples in (train, test))
    classes = classes_in(train, test)
    names, clients = federation.labels, federation.names
    return Dataset(name, train, test, classes, MODEL, names, groups=groups, clients=clients)


def is_one(data: Any) -> bool:
    """Whether this is (x, y), or one data set and a partition."""
    kinds = torch.Tensor, np.ndarray, Partition
    return isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], kinds)


def owners(federation: Federation) -> Index:
    """The client of each sample; -1 if none has it."""
    owner = np.full(len(federation.train), -1, dtype=np.int64)
    sizes = federation.parts.sizes
    owner[federation.parts.order] = np.repeat(np.arange(len(sizes)), sizes)
    return owner


def with_columns(samples: Samples) -> Samples:
    """Real targets as a column, the shape of a model with one output."""
    real = samples.y.is_floating_point() and samples.y.dim() == 1
    return samples.with_targets(as_column) if real else samples


def as_column(y: torch.Tensor) -> torch.Tensor:
    return y.unsqueeze(1)


def classes_in(*parts: Samples) -> int | None:
    """One more than the largest label; None for a regression."""
    if any(part.y.is_floating_point() or part.y.dim() != 1 for part in parts):
        return None
    return 1 + max(int(part.y.max()) for part in parts)


def split(n: int, groups: Index | None, share: float) -> tuple[Index, Index]:
    """Indices to train on and to test on: of all samples, or of each client's own."""
    rng = stream(0, "test split")
    if groups is None:
        order = rng.permutation(n)
        cut = min(max(1, round(share * n)), n - 1)
        return np.sort(order[cut:]), np.sort(order[:cut])
    mixed = rng.permutation(n)
    mixed = mixed[np.argsort(groups[mixed], kind="stable")]  # client by client, in a random order
    _, first, count = np.unique(groups[mixed], return_index=True, return_counts=True)
    rank = np.arange(n) - np.repeat(first, count)
    most = np.minimum(np.round(share * count), count - 1)
    aside = rank < np.repeat(most, count)
    if not aside.any():
        raise ConfigError(
            "leaves nothing to test on, as clients have so few samples",
            "give a larger share",
            setting="data_option.test",
            value=share,
        )
    return np.sort(mixed[~aside]), np.sort(mixed[aside])


# A folder as the LEAF benchmark writes it


def from_leaf(name: str, share: float, options: dict[str, Any]) -> Dataset:
    """The folder's users as clients; the samples in its test files, if any, are the test set."""
    for key in options:
        raise no_argument(f"data = {name!r}", key, ["test"], "option")
    folder = Path(name.removeprefix(LEAF))
    if not (trained := files_in(folder / "train")):
        raise ConfigError(
            "has no file train/*.json", "give LEAF's folder `data`", setting="data", value=name
        )
    users = users_in(trained)
    tests = list(users_in(files_in(folder / "test")).values())
    if not tests:
        return dataset_of(name, users, share)
    x, y = (np.concatenate(parts) for parts in zip(*tests, strict=True))
    return dataset_of(name, (users, (x, y)), share)


def files_in(folder: Path) -> tuple[tuple[Path, int], ...]:
    """Its JSON files, and when they changed."""
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.json")))


@lru_cache(maxsize=2)  # one command may ask several times
def users_in(files: tuple[tuple[Path, int], ...]) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """The inputs and the targets of every user with samples."""
    found: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
    for path, _ in files:
        try:
            given = json.loads(path.read_text("utf-8"))
            for user in given["users"]:
                own = given["user_data"][user]
                x, y = np.array(own["x"]), np.array(own["y"])
                if len(y):
                    found[user] = (x.astype(np.float32), y)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"'{path}' does not give every one of its users numbers x and y in user_data "
                f"({failure_of(error)}); for texts, write a function, package.module:function"
            ) from error
    return found


# A table


def from_table(name: str, share: float, options: dict[str, Any]) -> Dataset:
    """The rows of a CSV file: numbers as inputs, standardised to mean 0 and deviation 1."""
    allowed = ("target", "client_column", "drop", "task")
    for key, value in options.items():
        if key not in allowed:
            raise no_argument(f"data = {name!r}", key, [*allowed, "test"], "option")
        if not isinstance(value, str):
            raise ConfigError("must be text", setting=f"data_option.{key}", value=value)
    try:
        about = Path(name).stat()
    except OSError as error:
        raise ConfigError(
            f"cannot be read ({error.strerror})", "check the path", setting="data", value=name
        ) from error
    target, client_column, drop, task = (options.get(key, "") for key in allowed)
    changed = (about.st_mtime_ns, about.st_size)
    table = read_table(name, target, client_column, drop, task, changed)
    left, aside = split(len(table.y), table.groups, share)
    mean = table.x[left].mean(axis=0, dtype=np.float64)
    deviation = table.x[left].std(axis=0, dtype=np.float64)
    deviation[deviation == 0] = 1
    x = ((table.x - mean) / deviation).astype(np.float32)
    train, test = (
        Samples(torch.from_numpy(x[at]), torch.from_numpy(table.y[at])) for at in (left, aside)
    )
    groups = None if table.groups is None else table.groups[left]
    classes = len(table.names) or None
    return Dataset(
        name, train, test, classes, MODEL, table.names, groups=groups, clients=table.clients
    )


@lru_cache(maxsize=1)
def read_table(
    name: str, target: str, client_column: str, drop: str, task: str, changed: tuple[int, int]
) -> Table:
    """The columns of the file, cached while `changed`, its time stamp and size, stays as it is."""
    if task and task not in TASKS:
        raise unknown("data_option.task", task, TASKS)
    head, between = header(name)
    if not target:
        raise ConfigError(
            "needs a target",
            f"name its column: --target-column {head[-1]} (columns: {', '.join(head)})",
            setting="data",
            value=name,
        )
    left_out = [word.strip() for word in drop.split(",") if word.strip()]
    wanted = {"data_option.target": target, "data_option.client_column": client_column}
    for key, column in (*wanted.items(), *(("data_option.drop", each) for each in left_out)):
        if column and column not in head:
            raise unknown(key, column, head)
    inputs = [i for i, c in enumerate(head) if c not in (target, client_column, *left_out)]
    if not inputs:
        raise ConfigError(
            f"has no column to learn from beside {target!r}", setting="data", value=name
        )
    places = [head.index(column) for column in (target, client_column) if column]
    cells = [(line, *(row[i] for i in places)) for line, row in rows(name, head)]
    if not cells:
        raise ConfigError("has no rows below its header", "add some", setting="data", value=name)
    try:
        x = np.loadtxt(
            name,
            dtype=np.float32,
            delimiter=between,
            skiprows=1,
            usecols=inputs,
            quotechar='"',
            comments=None,
            encoding="utf-8-sig",
            ndmin=2,
        )
    except ValueError as error:
        raise bad_cell(name, head, inputs) or ConfigError(
            f"cannot be read: {error}", setting="data", value=name
        ) from error
    if not np.isfinite(x).all():
        raise bad_cell(name, head, inputs) or ConfigError(
            "has a number that is too large", setting="data", value=name
        )
    lines, *texts = zip(*cells, strict=True)
    y, names = targets(name, target, texts[0], lines, task)
    if not texts[1:]:
        return Table(x, y, names, None)
    clients, groups = np.unique(texts[1], return_inverse=True)
    return Table(x, y, names, groups.astype(np.int64), tuple(clients.tolist()))


def header(name: str) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter."""
    try:
        with Path(name).open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read ({error})", "check the file", setting="data", value=name
        ) from error
    between = max(",;\t", key=first.count)
    head = [column.strip() for column in next(csv.reader([first], delimiter=between), [])]
    if len(head) < 2 or len(set(head)) < len(head) or "" in head:
        raise ConfigError(
            "must start with a line of two or more different column names",
            f"it starts with {first.strip()[:60]!r}",
            setting="data",
            value=name,
        )
    return head, between


def rows(name: str, head: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The line in the file and the cells of all rows but empty ones, as many as in the header."""
    _, between = header(name)
    with Path(name).open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=between)
        next(reader)
        for row in reader:
            if row and len(row) != len(head):
                raise ConfigError(
                    f"has {len(row)} cells in line {reader.line_num}, but there are "
                    f"{len(head)} columns",
                    "fix that line",
                    setting="data",
                    value=name,
                )
            if row:
                yield reader.line_num, row


def bad_cell(name: str, head: Sequence[str], inputs: Sequence[int]) -> ConfigError | None:
    """The error for the first cell that is not a number."""
    for line, row in rows(name, head):
        for i in inputs:
            if not is_finite(row[i]):
                text = row[i].strip()
                what = f"the text {row[i]!r}" if text else "nothing"
                fix = "turn it into numbers" if text else "fill it in, delete the line"
                return ConfigError(
                    f"has {what} in column {head[i]!r}, line {line}, where a number is needed",
                    f"{fix}, or exclude the column: --set data_option.drop={head[i]}",
                    setting="data",
                    value=name,
                )
    return None


def is_finite(text: str) -> bool:
    try:
        return bool(np.isfinite(np.float32(float(text))))
    except ValueError:
        return False


def targets(
    name: str, column: str, texts: Sequence[str], lines: Sequence[int], task: str
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Whole numbers and words are classes, sorted; other numbers are a regression."""
    distinct = set(texts)
    empty = next((text for text in distinct if not text.strip()), None)
    if empty is not None:
        raise ConfigError(
            f"has nothing in column {column!r}, line {lines[texts.index(empty)]}",
            "fill it in or delete the line",
            setting="data",
            value=name,
        )
    numbers = all(is_finite(text) for text in distinct)
    if not task:
        whole = all(WHOLE.fullmatch(text) for text in distinct)
        task = "regression" if numbers and not whole else "classification"
        if task == "classification" and len(distinct) > max(20, len(texts) / 2):
            raise ConfigError(
                f"has {len(distinct):,} different values in column {column!r} of "
                f"{len(texts):,} rows, too many for classes",
                "choose: --set data_option.task=regression, or classification",
                setting="data",
                value=name,
            )
    if task == "regression":
        if not numbers:
            word = next(text for text in texts if not is_finite(text))
            raise ConfigError(
                f"has {word!r} in column {column!r}, which is not a number, as "
                "data_option.task = 'regression' needs",
                "fix it, or use classification",
                setting="data",
                value=name,
            )
        return np.array(texts, dtype=np.float32).reshape(-1, 1), ()
    names = sorted(distinct, key=float if numbers else str)
    if len(names) < 2:
        raise ConfigError(
            f"has only the value {names[0]!r} in column {column!r}: nothing to learn",
            "choose another target",
            setting="data",
            value=name,
        )
    code = {text: i for i, text in enumerate(names)}
    return np.array([code[text] for text in texts], dtype=np.int64), tuple(names)
