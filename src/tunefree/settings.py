"""Settings: every name, its default, its range, its help, and the errors for values out of range.

A setting has one name, in Python, TOML files, `--set`, Flower's run config and run files:
`per_round`. Its flag is this name with dashes: `--per-round`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from tunefree.errors import ConfigError, nearest, unknown
from tunefree.former_names import now_called

if TYPE_CHECKING:
    from tunefree.core import System

Kernels: TypeAlias = Literal["auto", "plain", "channels-last", "batch-minor"]
FleetName: TypeAlias = Literal["auto", "serial", "pool", "ray"]
Dispatch: TypeAlias = Literal["flush", "immediate", "queue"]
Decay: TypeAlias = Literal["none", "linear"]
Weighting: TypeAlias = Literal["uniform", "examples"]
Average: TypeAlias = Literal["off", "on"]
Robust: TypeAlias = Literal[
    "none", "median", "trimmed-mean", "geometric-median", "krum", "centred-clipping"
]
Sampling: TypeAlias = Literal["uniform", "examples"] | tuple[float, ...]
BatchNorm: TypeAlias = Literal["refuse", "statistics", "local"]
Opening: TypeAlias = Literal["gradients", "zero"]
Unit: TypeAlias = Literal["client", "record"]
ScheduleName: TypeAlias = Literal["synchronous", "buffered"]

MAY_BE_ZERO = ("weight_decay",)  # options that switch something off at 0
PRIVATE = "polarfl_stateless"  # the default with privacy
WEIGHTS = ("alpha", "beta", "beta1", "beta2", "mu")  # options that are weights, from 0 to 1


def setting(
    default: Any,
    help: str,
    least: float | None = None,
    below: float = math.inf,
    *,
    flag: bool = True,
    also: str = "",
    deployed: bool = False,
) -> Any:
    """A field with its help and its range: at least `least`, less than `below`.

    It may have no flag, or `also` a second one, and be `deployed`: see `shared`.
    """
    about = {"help": help, "flag": flag, "also": also, "deployed": deployed}
    return field(default=default, metadata={"least": least, "below": below, **about})


def shared(default: Any, help: str, *limits: float, **more: Any) -> Any:
    """A setting that a deployment has too, as a key of its run config."""
    return setting(default, help, *limits, deployed=True, **more)


@dataclass(frozen=True)
class Schedule:
    """Synchronous rounds or buffered steps; zero and empty mean the default.

    Args:
        name: "synchronous", or "buffered": a step whenever S uploads have arrived.
        concurrency: Buffered: how many jobs are in flight at a time; 0 is S.
        dispatch: Buffered: who gets the new model: S idle clients after each step ("flush"), one
            idle client after each upload ("immediate"), or S of all clients after each step, where
            a busy one queues its jobs ("queue").
        delays: How long clients take on a virtual clock: "mild", "large", "half-normal", or the
            path of a CSV file of client,seconds.
        dropout: Buffered: the probability that a job gets no reply.
        timeout: Buffered: virtual seconds until such a job is given up.
        opening: A first pass over all clients ("gradients"), or states that start at zero ("zero").

    >>> Schedule("buffered", concurrency=20, delays="mild").dispatch
    'flush'
    """

    name: ScheduleName = shared("synchronous", "synchronous or buffered (asynchronous)")
    concurrency: int = shared(0, "buffered: jobs in flight at a time; 0 is one buffer", 0)
    dispatch: Dispatch = setting("flush", "buffered: who gets the new model, and when")
    delays: str = setting("", "virtual clock: mild, large, half-normal or a CSV of client,seconds")
    dropout: float = setting(0.0, "buffered: probability that a job gets no reply", 0, 1)
    timeout: float = setting(0.0, "buffered: virtual seconds until such a job is given up", 0)
    opening: Opening = shared(
        "gradients", "first pass over all clients, or states that start at zero"
    )

    def __post_init__(self) -> None:
        check_fields(self, {"name": "schedule"})

    def as_settings(self) -> dict[str, Any]:
        """These values by the names of settings.

        >>> Schedule("buffered").as_settings()["schedule"]
        'buffered'
        """
        named = asdict(self)
        return {"schedule": named.pop("name"), **named}


def scheduled(name: str) -> Any:
    """A setting that is a field of a schedule."""
    f = Schedule.__dataclass_fields__[name]
    return field(default=f.default, metadata=f.metadata)


@dataclass(frozen=True)
class Settings:
    """All settings of a run, checked."""

    clients: int = setting(50, "clients in the federation", 1)
    per_round: int = shared(
        10,
        "clients per round, or uploads per buffer; 0 is all; the default never exceeds the clients",
        0,
        also="--buffer",
    )
    local_steps: int | None = shared(10, "mini-batch steps of a client per round", 1)
    rounds: int = shared(400, "rounds", 1)
    local_epochs: int = shared(
        0, "instead of local steps: passes of a client over its own samples per round", 0
    )
    sampling: Sampling = shared(
        "uniform",
        "how clients are sampled: uniform, or examples (more often if they have more samples)",
    )

    algorithm: str = shared("polarfl", "the method; see `tunefree methods`")
    compressor: str = shared("", "for methods that compress: rotated:2, top:0.05, ...")
    decay: Decay = shared("none", "for tuned methods: none, or linear to 0 at the last round")
    weighting: Weighting = shared(
        "uniform",
        "for methods that average: uniform, or examples (weight clients by their samples)",
    )
    robust: Robust = shared(
        "none",
        "for methods that average or have control variates: aggregate by median, trimmed-mean, "
        "geometric-median, krum or centred-clipping",
    )
    average: Average = shared(
        "off", "hand out the mean of the server's models in which late ones count more: off or on"
    )
    explicit_steps: bool = setting(
        False, "allow other step sizes for a tuning-free method, to study their effect", flag=False
    )
    option: Mapping[str, object] = field(default_factory=dict)

    epsilon: float = shared(
        0.0, "differential privacy: the budget of the run; 0 is without privacy", 0
    )
    unit: Unit = shared("client", "with epsilon: what is protected: client, or record")
    delta: float = shared(0.0, "with epsilon: how likely it may fail; 0 is 1e-5, or less", 0, 1)
    clip: float = shared(
        0.0, "with epsilon: the largest norm of an upload; 0 follows the median, or the method", 0
    )
    records: float = shared(
        0.0,
        "with unit = record: records of a client, a public number: each is in a batch with chance "
        "batch_size / records; 0: the mean over clients, in a simulation",
        0,
    )
    participations: int = shared(
        0,
        "with epsilon: rounds of a client at most, who takes part being no secret; 0: secret coins "
        "decide, or deployed as many as the rounds need",
        0,
    )

    secure: bool = shared(
        False, "secure sums: the server learns the sum of the uploads of a round, and no single one"
    )

    data: str = setting(
        "digits",
        "see `tunefree data list`; or your own: X.csv, leaf:FOLDER, package.module:function",
    )
    partition: str = setting(
        "dirichlet:0.1", "how samples are split across clients: iid, dirichlet:0.1, ..."
    )
    standardise: bool = setting(
        False,
        "scale inputs and real targets to mean 0 and deviation 1, by sums over all clients; the "
        "trained model takes and gives original units",
    )
    batch_size: int = shared(16, "samples per mini-batch", 1)
    data_dir: str = setting("", "folder of the data files, if not one of the default folders")
    validation: float = setting(
        0.0,
        "evaluate on this share of the clients' data, held out, instead of the test set",
        0,
        flag=False,
    )
    client_test: float = setting(
        0.0,
        "share of each client's samples that is held out and scored at evaluations",
        0,
        below=1,
    )
    data_fingerprint: str = setting(
        "", "of your own data, to notice when they have changed", flag=False
    )
    data_option: Mapping[str, object] = field(default_factory=dict)

    model: str = setting("", "a built-in model or package.module:function")
    start: str = setting("", "start from the weights in this file: a run file, .safetensors or .pt")
    start_fingerprint: str = setting(
        "", "of the weights to start from, to notice when they have changed", flag=False
    )
    lora: int = setting(
        0, "train and send only adapters of this rank beside frozen layers; 0 trains all weights", 0
    )
    local: str = shared(
        "", "parts of the model that stay with each client, by name, such as head, or head,embed.0"
    )
    batch_norm: BatchNorm = shared(
        "refuse",
        "layers in training that keep running statistics: refuse them, or let each client keep the "
        "statistics, or local: these and the layers' weights",
    )
    clip_gradients: float = shared(
        0.0, "the largest norm of a mini-batch's gradient, longer ones being cut; 0: no limit", 0
    )
    accumulate: int = shared(
        1, "mini-batches of batch_size whose mean gradient makes one local step", 1
    )
    model_option: Mapping[str, object] = field(default_factory=dict)

    schedule: ScheduleName = scheduled("name")
    concurrency: int = scheduled("concurrency")
    dispatch: Dispatch = scheduled("dispatch")
    delays: str = scheduled("delays")
    dropout: float = scheduled("dropout")
    timeout: float = scheduled("timeout")
    opening: Opening = scheduled("opening")

    attack: str = setting(
        "",
        "simulate that some clients send wrong uploads: sign-flip:3 (of 3 clients), scaled:10:3, "
        "noise:3, label-flip:3, drift:3",
    )
    seed: int = shared(0, "seed of all random streams of the run", 0)
    eval_every: int = shared(10, "rounds between evaluations", 1)
    grad_norm: bool = setting(False, "also measure the full gradient norm")
    device: str = setting("cpu", "cpu or cuda")
    fleet: FleetName = setting(
        "auto", "where clients run: serial, pool (all cores), ray, or auto: the faster one"
    )
    workers: int = setting(0, "processes of the pool; 0 is one per core", 0)
    kernels: Kernels = shared("auto", "how gradients are computed; plain uses torch only")
    commit_every: int = setting(
        0,
        "rounds between commits; a killed run resumes from the last one; 0: when it costs little",
        0,
    )
    out: str = shared("", "the run file; by default a new one in runs/")

    def __post_init__(self) -> None:
        if isinstance(self.local, list | tuple):
            object.__setattr__(self, "local", ",".join(map(str, self.local)))
        check_fields(self)
        if self.per_round > self.clients:
            raise ConfigError(
                f"exceeds {{clients}} = {self.clients}",
                "lower {per_round} or raise {clients}",
                setting="per_round",
                value=self.per_round,
            )
        if self.local_epochs and self.local_steps is not None:
            raise ConfigError(
                f"{{local_steps}} = {self.local_steps} and {{local_epochs}} = {self.local_epochs} "
                "cannot be combined",
                "give {local_steps} or {local_epochs}",
            )
        if not self.local_epochs and self.local_steps is None:
            checked("local_steps", None, int)

    @property
    def system(self) -> System:
        """N, S, K and T as methods see them, where K does not follow from the data."""
        if self.local_steps is None:
            raise ConfigError(
                "needs the clients' numbers of samples, which are not known here",
                "give {local_steps} instead",
                setting="local_epochs",
                value=self.local_epochs,
            )
        return self.system_of(self.local_steps)

    def system_for(self, sizes: Iterable[int]) -> System:
        """N, S, K and T of clients with so many samples; with local epochs, K is their mean K_i.

        >>> Settings(local_steps=None, local_epochs=2).system_for([33, 16]).K
        4
        """
        if self.local_steps is not None:
            return self.system
        batch = self.batch_size * self.accumulate
        steps = [local_steps(int(n), batch, self.local_epochs) for n in sizes]
        return self.system_of(max(1, round(sum(steps) / len(steps))))

    def system_of(self, K: int) -> System:
        """N, S, K and T; this K only where it follows from the data."""
        from tunefree.core import System  # which imports torch

        S, K = self.per_round or self.clients, self.local_steps or K
        return System(self.clients, S, K, self.rounds)

    @property
    def scheduling(self) -> Schedule:
        """The settings of the schedule as one value."""
        names = Schedule.__dataclass_fields__.keys() - {"name"}
        return Schedule(self.schedule, **{name: getattr(self, name) for name in names})

    def asdict(self) -> dict[str, Any]:
        """All settings by name, as run files store them."""
        return asdict(self)


@dataclass(frozen=True)
class Deployment:
    """Settings of real federations only: further keys of Flower's run config."""

    clients: int = setting(1, "clients that must be connected before the first round", 1)
    wait: float = setting(600.0, "seconds to wait for them", 0.001)
    deadline: float = setting(300.0, "seconds that a client has to reply", 0.001)
    at_least: int = setting(1, "replies that a step needs", 1)
    roster: str = setting("", "with secure: the file of the clients and their public keys")
    readmit: str = setting("", "clients in quarantine to ask again, by number: 3 or 3,5")
    without: str = setting("", "clients that are left out for good, by number: 3 or 3,5")
    from_round: int = setting(-1, "go back to the end of this round first, once; -1: do not", -1)
    evaluate_on_clients: bool = setting(
        False, "also collect scores that clients compute on their own data"
    )
    coins: bool = setting(
        False, "with epsilon: secret coins decide who is asked; for networks that nobody watches"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        numbers(self, "readmit"), numbers(self, "without")


def numbers(given: Deployment, name: str) -> list[int]:
    """The clients in a setting such as `readmit`."""
    value: str = getattr(given, name)
    words = [word.strip() for word in value.split(",") if value]
    if not all(map(str.isdigit, words)):
        raise ConfigError(
            "is not a list of clients",
            "give their numbers, such as 3 or 3,5",
            setting=name,
            value=value,
        )
    return list(map(int, words))


FIELDS: Mapping[str, Field[Any]] = {f.name: f for f in fields(Settings)}
NAMES = (*FIELDS, *Deployment.__dataclass_fields__)  # that sentences may have in braces
HINTS = {each: get_type_hints(each) for each in (Settings, Schedule, Deployment)}
TABLES = ("option", "data_option", "model_option")  # of the method, the data and the model


def load(path: Path | None, given: Mapping[str, object]) -> Settings:
    """A TOML file (or none), then single settings by name, over the defaults.

    >>> load(None, {"rounds": 100}).system
    System(N=50, S=10, K=10, T=100)
    >>> load(None, {"algorithm": "fedavg", "option.eta": 0.1}).option
    {'eta': 0.1}
    """
    values = dict[str, Any]()
    for key, value in (read(path) | flat(given)).items():
        table, dot, name = key.partition(".")
        if dot and table in TABLES:
            values.setdefault(table, {})[name] = value
        elif key in FIELDS:
            values[key] = value
        else:
            raise no_setting(key)
    if "per_round" not in values and type(values.get("clients")) is int:
        values["per_round"] = min(Settings.per_round, values["clients"])
    if values.get("epsilon"):
        values.setdefault("algorithm", PRIVATE)
    if values.get("local_epochs"):
        values.setdefault("local_steps", None)
    return Settings(**values)


def read(path: Path | None) -> dict[str, object]:
    """The settings in a TOML file, by name."""
    if path is None:
        return {}
    try:
        return flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"'{path}' cannot be read ({error.strerror})", "check the path"
        ) from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from error


def flat(tree: Mapping[str, object]) -> dict[str, object]:
    """The values of tables under a key of their own each.

    >>> flat({"rounds": 7, "option": {"eta": 0.1}})
    {'rounds': 7, 'option.eta': 0.1}
    """
    found = dict[str, object]()
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": each for key, each in flat(value).items()}
        else:
            found[name] = value
    return found


def no_setting(key: str) -> ConfigError:
    """The error for a setting that does not exist, with its name of today or the nearest one."""
    now = now_called(key) or key.replace("-", "_")
    if now != key and now.partition(".")[0] in FIELDS:
        table, dot, _ = now.partition(".")
        where = f", in a file below [{table}]" if dot else ", in a file above all tables"
        return ConfigError(
            f"{key} is now called {now}", f"write {now}{where if '.' in key else ''}"
        )
    names = [name for name in FIELDS if name not in TABLES]
    near = nearest(key, names)
    hint = f"did you mean {near!r}? " if near else ""
    tables = ", ".join(f"{table}.NAME" for table in TABLES)
    return ConfigError(
        f"{key!r} is not a setting", f"{hint}choose from {', '.join(names)}, {tables}"
    )


def restored(stored: Mapping[str, Any]) -> Settings:
    """The settings that `Settings.asdict` gave, as a run file stores them."""
    try:
        return Settings(**stored)
    except TypeError as error:
        raise ConfigError(
            f"the run was made with a setting that this tunefree does not know ({error})",
            "install a newer tunefree",
        ) from error


def deployed(run_config: Mapping[str, Any]) -> tuple[dict[str, object], Deployment]:
    """The settings in Flower's run config, by name; its other keys are the app's own.

    >>> deployed({"rounds": 7, "at_least": 2, "option.eta": 0.1, "own": 1})[0]
    {'rounds': 7, 'option.eta': 0.1}
    """
    ours = {name for name, f in FIELDS.items() if f.metadata.get("deployed")}
    own = Deployment.__dataclass_fields__
    for key in run_config:
        if (name := key.replace("-", "_")) != key and name in ours | own.keys():
            raise ConfigError(f"{key} is now called {name}", f"write {name}")
    given = {
        key: value
        for key, value in run_config.items()
        if (key in ours and key not in own) or key.startswith("option.")
    }
    return given, Deployment(**{name: run_config[name] for name in own if name in run_config})


def local_steps(samples: int, batch_size: int, epochs: int) -> int:
    """K_i, the mini-batches in so many passes over a client's samples.

    >>> local_steps(samples=33, batch_size=16, epochs=2)
    6
    """
    return epochs * -(-samples // batch_size)


def check_fields(values: Any, called: Mapping[str, str] = {}) -> None:
    """Check every field of a frozen dataclass of settings; a whole number may stand for a float."""
    hints = HINTS[type(values)]
    for f in fields(values):
        name = called.get(f.name, f.name)
        value = checked(name, getattr(values, f.name), hints[f.name], f.metadata)
        object.__setattr__(values, f.name, value)


def checked(name: str, value: object, hint: object, limits: Mapping[str, Any] = {}) -> object:
    """The value of a setting or an option, after checking its type and range."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise unknown(name, value, get_args(hint))
        return value
    if hint == Sampling:
        names, _ = get_args(hint)
        if isinstance(value, str):
            return checked(name, value, names)
        return checked_weights(name, value)
    if get_origin(hint) is cast(object, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(
                "must be a table", f"write [{name}] above it", setting=name, value=value
            )
        return dict(value)
    if hint == int | None:
        if value is None:
            return value
        hint = int
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        kinds = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        problem = f"must be {kinds[cast('type[Any]', hint)]}"
        omit = "omit it for the default" if value is None else ""
        raise ConfigError(problem, omit, setting=name, value=value)
    least, below = limits.get("least"), limits.get("below", math.inf)
    if least is not None and cast(float, value) < least:
        raise ConfigError(f"is too small; it must be at least {least:g}", setting=name, value=value)
    if isinstance(value, int | float) and not value < below:
        raise ConfigError(f"is too large; it must be below {below:g}", setting=name, value=value)
    return value


def checked_weights(name: str, value: object) -> tuple[float, ...]:
    """A weight for each client, all of them positive."""
    try:
        weights = tuple(map(float, cast("Iterable[float]", value)))
    except (TypeError, ValueError):
        weights = ()
    if not weights or not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(
            "must be uniform, examples, or a positive finite weight for each client",
            "exclude clients that are never to be sampled",
            setting=name,
            value=value,
        )
    return weights


def check_option(name: str, value: object, hint: object) -> None:
    """Refuse an option that is not one of its choices, or not a positive finite number."""
    if get_origin(hint) is Literal:
        checked(name, value, hint)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError("is not a number", "give a positive number", setting=name, value=value)
    elif value == 0 and name.removeprefix("option.") in MAY_BE_ZERO:
        return
    elif not 0 < value < math.inf:
        raise ConfigError(
            "is out of range", "give a positive finite number", setting=name, value=value
        )
    elif name.removeprefix("option.") in WEIGHTS and value > 1:
        raise ConfigError("is out of range; a weight is at most 1", setting=name, value=value)


def check_own_option(name: str, value: object, hint: object) -> None:
    """Refuse a value that is not finite, or not of the type of a user-defined method's field."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError("is not finite", "give a finite number", setting=name, value=value)
    if get_origin(hint) is Literal or hint in (int, float, str, bool):
        checked(name, value, hint)


def parse_assignment(assignment: str) -> tuple[str, object]:
    """`key=value` with the value in TOML, or as text.

    >>> parse_assignment("option.eta=0.1"), parse_assignment("partition=iid")
    (('option.eta', 0.1), ('partition', 'iid'))
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {assignment!r} must look like key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    return key.strip(), value
