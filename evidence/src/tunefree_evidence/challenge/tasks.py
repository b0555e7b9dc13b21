"""The tasks: data, network, partition, clients, rounds, start, schedule and compression of each.

smoke   digits and a tiny network instead of all data: seconds, shows only that everything runs
small   two cores and a night
full    twice the clients, four times the rounds

A held-out task was never used while PolarFL was developed: nothing about PolarFL was chosen on its
data and network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from tunefree.errors import ConfigError, unknown_name
from tunefree.search import Settings
from tunefree.search import settings as settings_of

Scale = Literal["smoke", "small", "full"]
Kind = Literal["synchronous", "late", "compressed"]
Keys: TypeAlias = Mapping[str, object]
SCALES: tuple[Scale, ...] = get_args(Scale)
SEEDS: Mapping[Scale, tuple[int, ...]] = {
    "smoke": (0, 1),
    "small": (0, 1, 2),
    "full": (0, 1, 2, 3, 4),
}


class Task(NamedTuple):
    """One task; its settings are those of `tunefree run`."""

    name: str
    settings: Keys
    held_out: bool = False
    evaluations: int = 10  # of a scored run
    trained: int = 0  # rounds of FedAvg on iid clients that train the initial model

    @property
    def kind(self) -> Kind:
        if self.settings.get("schedule") == "buffered":
            return "late"
        return "compressed" if self.settings.get("compressor") else "synchronous"


def system(N: int, S: int, K: int, T: int, batch: int) -> Keys:
    keys = ("clients", "per_round", "local_steps", "rounds", "batch_size")
    return dict(zip(keys, (N, S, K, T, batch), strict=True))


def data(name: str, model: str, partition: str, **options: object) -> Keys:
    more = {key.replace("_", "_option.", 1): value for key, value in options.items()}
    return {"data": name, "model": model, "partition": partition, **more}


FASHION = data("fashion-mnist", "cnn_mnist", "dirichlet:0.1")
CIFAR = data("cifar10", "cnn_mnist", "dirichlet:0.3")
WORDS = {"data_length": 60, "model_embedding": 16, "model_hidden": 16}
COMPRESSED = {"compressor": "top:0.05"}
USUAL = system(N=50, S=5, K=5, T=100, batch=20)

TASKS = (
    Task("fashion-skew", {**FASHION, **USUAL}),
    Task("fashion-iid", {**FASHION, **USUAL, "partition": "iid"}),
    Task(
        "fashion-label",  # one label for each client
        {**FASHION, **system(N=10, S=10, K=20, T=50, batch=20), "partition": "shards:1"},
    ),
    Task(
        "fashion-many",  # clients that are seen once
        {**FASHION, **system(N=5000, S=10, K=3, T=300, batch=10), "partition": "dirichlet:0.3"},
    ),
    Task(
        "fashion-sites",  # long local work
        {**FASHION, **system(N=10, S=10, K=50, T=20, batch=20), "partition": "dirichlet:0.3"},
    ),
    Task("mnist-skew", {**data("mnist", "cnn_mnist", "dirichlet:0.1"), **USUAL}),
    Task(
        "emnist-skew",
        {
            **data("emnist-part-balanced", "cnn_mnist", "dirichlet:1"),
            **system(N=50, S=4, K=3, T=250, batch=16),
        },
    ),
    Task(
        "imdb-lstm",
        {**data("imdb", "lstm_imdb", "beta:2,5", **WORDS), **USUAL, "rounds": 80},
        evaluations=5,
    ),
    Task(
        "digits-short",
        {**data("digits", "mlp", "dirichlet:0.1"), **system(N=50, S=10, K=10, T=50, batch=16)},
    ),
    Task(
        "fashion-trained",
        {**FASHION, **USUAL, "rounds": 60},
        trained=60,
    ),
    Task(
        "fashion-late",
        {**FASHION, **USUAL, "schedule": "buffered", "concurrency": 25},
    ),
    Task("fashion-compressed", {**FASHION, **USUAL, **COMPRESSED}),
    Task(
        "emnist-rnn",
        {
            **data("emnist-part-balanced", "rnn3_emnist", "dirichlet:0.5", model_hidden=64),
            **system(N=80, S=6, K=4, T=60, batch=16),
        },
        held_out=True,
    ),
    Task(
        "cifar-resnet",
        {
            **data("cifar10", "resnet18_cifar", "dirichlet:0.3", model_width=4),
            **system(N=40, S=4, K=4, T=50, batch=16),
        },
        held_out=True,
        evaluations=5,
    ),
    Task(
        "cancer-mlp",
        {
            **data("breast-cancer", "mlp", "dirichlet:0.3", model_hidden=32),
            **system(N=20, S=5, K=5, T=50, batch=8),
            "validation": 0.3,
        },
        held_out=True,
    ),
    Task(
        "imdb-transformer",
        {
            **data("imdb", "transformer_imdb", "dirichlet:0.5", data_length=50),
            **system(N=60, S=6, K=4, T=60, batch=16),
        },
        held_out=True,
        evaluations=5,
    ),
    Task(
        "cifar-lora",
        {**CIFAR, **system(N=40, S=5, K=4, T=80, batch=20), "lora": 4},
        held_out=True,
        trained=40,
    ),
    Task(
        "cifar-late",
        {
            **CIFAR,
            **system(N=100, S=5, K=5, T=120, batch=20),
            **{"schedule": "buffered", "concurrency": 40},
        },
        held_out=True,
    ),
    Task(
        "cifar-compressed",
        {**CIFAR, **system(N=40, S=8, K=4, T=100, batch=20), **COMPRESSED},
        held_out=True,
    ),
)
BY_NAME = {task.name: task for task in TASKS}
GROUPS = {
    "all": tuple(BY_NAME),
    "held-out": tuple(task.name for task in TASKS if task.held_out),
    "development": tuple(task.name for task in TASKS if not task.held_out),
}


def choose(words: Sequence[str]) -> list[Task]:
    """The tasks given by names, groups, or the user's own TOML files.

    >>> [task.name for task in choose(["digits-short", "cancer-mlp"])]
    ['digits-short', 'cancer-mlp']
    """
    found: dict[str, Task] = {}
    for word in words or ("all",):
        if word.endswith(".toml"):
            own = own_task(Path(word))
            found[own.name] = own
        elif word in BY_NAME or word in GROUPS:
            found |= {name: BY_NAME[name] for name in GROUPS.get(word, (word,))}
        else:
            raise unknown_name("task", word, {**BY_NAME, **GROUPS}, more="FILE.toml of your own")
    return list(found.values())


def own_task(path: Path) -> Task:
    """The task in a settings file as for `tunefree run`, named after the file."""
    keys = settings_of(path).asdict()  # refuses wrong ones before anything runs
    name = re.sub(r"[^\w.-]+", "-", path.stem)
    if name in {*BY_NAME, *GROUPS}:
        raise ConfigError(f"'{path}' has the name of a task of the suite; rename it")
    return Task(name, keys)


SMOKE = {
    **data("digits", "mlp", "dirichlet:0.5", model_hidden=8),
    **system(N=10, S=2, K=2, T=8, batch=8),
}


def settings(task: Task, scale: Scale) -> dict[str, object]:
    """The settings of a task at a size, by key."""
    keys = dict(task.settings)
    if task.name not in BY_NAME:
        return keys  # the user's own tasks are run as written
    if scale == "smoke":
        stay = ("compressor", "schedule", "concurrency", "lora", "validation")
        keys = {**SMOKE, **{key: keys[key] for key in stay if key in keys}}
        if "concurrency" in keys:
            keys["concurrency"] = 4
    if scale == "full":
        for key, factor in (("clients", 2), ("rounds", 4)):
            keys[key] = factor * int(str(keys[key]))
    return keys


def in_words(task: Task, settings: Settings) -> str:
    """A task in one line: all that a reader needs to repeat it."""
    options = {**settings.model_option, **settings.data_option}
    size = "".join(f", {key} {value}" for key, value in options.items())
    sizes = (settings.clients, settings.per_round, settings.local_steps, settings.rounds)
    letters = ", ".join(f"{name}={x}" for name, x in zip("NSKT", sizes, strict=True))
    words = [
        f"{settings.data}, {settings.model or 'its default model'}{size}, {settings.partition}",
        f"{letters}, batch {settings.batch_size}",
    ]
    if task.trained:
        words.append("trained start" + (f", LoRA of rank {settings.lora}" if settings.lora else ""))
    if task.kind == "late":
        words.append(f"{settings.concurrency} clients training at once")
    if task.kind == "compressed":
        words.append("compressed uploads")
    return "; ".join(words)
