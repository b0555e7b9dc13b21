"""Settings: every key, its default, its range, its help, and the errors for values out of range.

The command line, the Python API and Flower apps derive from here. A setting's flag (`--per-round`)
is also its argument in Python (`per_round`) and its key in Flower's run config (`per-round`); its
key here (`system.S`) is the one in TOML files, `--set` and run files.
"""

from __future__ import annotations

import importlib
import math
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
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

from tunefree.errors import ConfigError, failure_of, unknown

if TYPE_CHECKING:
    from tunefree.core import System


Kernels: TypeAlias = Literal["auto", "plain", "channels-last", "batch-minor"]
FleetName: TypeAlias = Literal["auto", "serial", "pool", "ray"]
Dispatch: TypeAlias = Literal["flush", "immediate", "queue"]
Decay: TypeAlias = Literal["none", "linear"]
Weighting: TypeAlias = Literal["uniform", "examples"]
Sampling: TypeAlias = Literal["uniform", "examples"] | tuple[float, ...]
Opening: TypeAlias = Literal["gradients", "zero"]


def setting(
    default: Any,
    flag: str = "",
    help: str = "",
    least: float | None = None,
    below: float = math.inf,
    later: bool = False,
) -> Any:
    """A field with its flag, its help and its range: at least `least`, less than `below`.

    One that was added `later` is not part of `Config.canonical` while it is at its default.
    """
    limits = {"least": least, "below": below}
    return field(default=default, metadata={"flag": flag, "help": help, "later": later, **limits})


@dataclass(frozen=True)
class SystemSettings:
    N: int = setting(50, "--clients", "N, clients in the federation", least=1)
    S: int = setting(
        10,
        "--per-round --buffer",
        "S, clients per round, or uploads per buffer; 0 is all; the default never exceeds N",
        least=0,
    )
    K: int = setting(10, "--local-steps", "K, mini-batch steps of a client per round", least=1)
    T: int = setting(400, "--rounds", "T, rounds", least=1)
    epochs: int = setting(
        0,
        "--local-epochs",
        "instead of local steps: passes of a client over its own samples per round",
        least=0,
        later=True,
    )
    sampling: Sampling = setting(
        "uniform",
        "--sampling",
        "how clients are sampled: uniform, or examples (more often if they have more samples)",
        later=True,
    )


@dataclass(frozen=True)
class AlgorithmSettings:
    name: str = setting("polarfl", "--algorithm", "the method; see `tunefree algorithms`")
    compressor: str = setting(
        "", "--compressor", "for methods that compress: rotated:2, top:0.05, ..."
    )
    decay: Decay = setting(
        "none", "--decay", "for tuned methods: none, or linear to 0 at the last round", later=True
    )
    weighting: Weighting = setting(
        "uniform",
        "--weighting",
        "for methods that average: uniform, or examples (weight clients by their samples)",
        later=True,
    )
    explicit_steps: bool = setting(
        False, help="allow other step sizes for a tuning-free method, to study their effect"
    )
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class DataSettings:
    name: str = setting(
        "digits", "--data", "see `tunefree data list`; or your own: X.csv, package.module:function"
    )
    partition: str = setting(
        "dirichlet:0.1",
        "--partition",
        "how samples are split across clients: iid, dirichlet:0.1, ...",
    )
    batch_size: int = setting(16, "--batch-size", "samples per mini-batch", least=1)
    dir: str = setting(
        "", "--data-dir", "folder of the data files, if not one of the default folders"
    )
    validation: float = setting(
        0.0,
        help="evaluate on this share of the clients' data, held out, instead of the test set",
        least=0,
    )
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSettings:
    name: str = setting("", "--model", "a built-in model or package.module:function")
    start: str = setting(
        "",
        "--start",
        "start from the weights in this file: a run file, .safetensors or .pt",
        later=True,
    )
    fingerprint: str = setting(
        "", help="of the weights in `start`, to notice when that file has changed", later=True
    )
    lora: int = setting(
        0,
        "--lora",
        "train and send only adapters of this rank beside frozen layers; 0 trains all weights",
        least=0,
        later=True,
    )
    options: Mapping[str, object] = field(default_factory=dict)


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

    name: Literal["synchronous", "buffered"] = setting(
        "synchronous", "--schedule", "synchronous or buffered (asynchronous)"
    )
    concurrency: int = setting(
        0, "--concurrency", "buffered: jobs in flight at a time; 0 is S", least=0
    )
    dispatch: Dispatch = setting(
        "flush", "--dispatch", "buffered: who gets the new model, and when"
    )
    delays: str = setting(
        "", "--delays", "virtual clock: mild, large, half-normal or a CSV of client,seconds"
    )
    dropout: float = setting(
        0.0, "--dropout", "buffered: probability that a job gets no reply", least=0, below=1
    )
    timeout: float = setting(
        0.0, "--timeout", "buffered: virtual seconds until such a job is given up", least=0
    )
    opening: Opening = setting(
        "gradients", "--opening", "first pass over all clients, or states that start at zero"
    )


@dataclass(frozen=True)
class RunSettings:
    seed: int = setting(0, "--seed", "seed of all random streams of the run", least=0)
    eval_every: int = setting(10, "--eval-every", "rounds between evaluations", least=1)
    grad_norm: bool = setting(False, "--grad-norm", "also measure the full gradient norm")
    device: str = setting("cpu", "--device", "cpu or cuda")
    fleet: FleetName = setting(
        "auto",
        "--fleet",
        "where clients run: serial, pool (all cores), ray, or auto: the faster one",
    )
    workers: int = setting(0, "--workers", "processes of the pool; 0 is one per core", least=0)
    kernels: Kernels = setting(
        "auto", "--kernels", "how gradients are computed; plain uses torch only"
    )
    commit_every: int = setting(
        0,
        "--commit-every",
        "rounds between commits; a killed run resumes from the last one; 0: when it costs little",
        least=0,
    )
    out: str = setting("", "--out", "the run file; by default a new one in runs/")


@dataclass(frozen=True)
class Deployment:
    """Settings of real federations only: further keys of Flower's run config."""

    clients: int = setting(1, help="clients that must be connected before the first round", least=1)
    wait: float = setting(600.0, help="seconds to wait for them", least=0.001)
    deadline: float = setting(300.0, help="seconds that a client has to reply", least=0.001)
    at_least: int = setting(1, help="replies that a step needs", least=1)
    evaluate_on_clients: bool = setting(
        False, help="also collect scores that clients compute on their own data"
    )


@dataclass(frozen=True)
class Config:
    system: SystemSettings = field(default_factory=SystemSettings)
    algorithm: AlgorithmSettings = field(default_factory=AlgorithmSettings)
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    schedule: Schedule = field(default_factory=Schedule)
    run: RunSettings = field(default_factory=RunSettings)

    @property
    def constants(self) -> System:
        """N, S, K and T as algorithms see them."""
        from tunefree.core import System

        check_system(self.system)
        if not self.system.K:
            raise ConfigError(
                f"system.epochs = {self.system.epochs}: K follows from the clients' numbers "
                "of samples, which are not known here; give --local-steps instead"
            )
        N, S, K, T = (getattr(self.system, name) for name in System._fields)
        return System(N, S or N, K, T)

    def asdict(self) -> dict[str, Any]:
        return asdict(self)

    def canonical(self) -> dict[str, Any]:
        """The same without `later` settings at their default, to keep old fingerprints valid."""
        tree = self.asdict()
        for section, cls in SECTIONS.items():
            for f in fields(cls):
                if f.metadata.get("later") and tree[section][f.name] == f.default:
                    del tree[section][f.name]
        if self.system.epochs:
            del tree["system"]["K"]  # it follows from the data, which may differ by the seed
        return tree


SECTIONS = {f.name: cast("type[Any]", f.default_factory) for f in fields(Config)}
WEIGHTS = ("alpha", "beta", "beta1", "beta2", "mu")  # options that are weights, from 0 to 1
DEPLOYED = (  # what a run config may set besides Deployment; all other keys are the app's own
    *("algorithm.name", "algorithm.compressor", "algorithm.decay", "algorithm.weighting"),
    *("system.T", "system.S", "system.K", "system.epochs", "system.sampling"),
    *("data.batch_size", "schedule.name", "schedule.concurrency", "schedule.opening"),
    *("run.seed", "run.eval_every", "run.kernels", "run.out"),
)
OPTION = "option."  # the prefix of the algorithm's options in a run config


def flags() -> Iterable[tuple[str, str, Field[Any]]]:
    """(key, type name, field) of every setting that has a flag."""
    for section, cls in SECTIONS.items():
        for f in fields(cls):
            if f.metadata.get("flag"):
                yield f"{section}.{f.name}", str(f.type), f


def load(path: Path | None, settings: Mapping[str, object]) -> Config:
    """A TOML file (or none), then single settings by key, over the defaults.

    >>> load(None, {"system.T": 100}).constants
    System(N=50, S=10, K=10, T=100)
    """
    tree: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for section, values in read(path).items():
        if section not in SECTIONS:
            raise unknown("section", section, SECTIONS)
        if not isinstance(values, dict):
            raise ConfigError(f"{section} = {values!r} must be a table; write [{section}] above it")
        tree[section] |= values
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if section not in SECTIONS or not name:
            keys = [f"{s}.{f.name}" for s, cls in SECTIONS.items() for f in fields(cls)]
            raise unknown("--set key", key, [k for k in keys if not k.endswith(".options")])
        tree[section][name] = value
    config = Config(**{section: build(section, tree[section]) for section in SECTIONS})
    if "S" not in tree["system"]:
        few = min(config.system.S, config.system.N)
        config = replace(config, system=replace(config.system, S=few))
    if E := config.system.epochs:
        if "K" in tree["system"]:
            raise ConfigError(
                f"system.K = {config.system.K} steps and system.epochs = {E} cannot be combined; "
                "give --local-steps or --local-epochs"
            )
        config = replace(config, system=replace(config.system, K=0))  # until `with_sizes`
    check_system(config.system)
    return config


def check_system(system: SystemSettings) -> None:
    """Refuse rounds that need more clients than there are."""
    if system.S > system.N:
        raise ConfigError(
            f"system.S = {system.S} exceeds system.N = {system.N}; lower the clients per round "
            "(--per-round) or add clients (--clients)"
        )


def local_steps(samples: int, batch_size: int, epochs: int) -> int:
    """K_i, the mini-batches in so many passes over a client's samples.

    >>> local_steps(samples=33, batch_size=16, epochs=2)
    6
    """
    return epochs * -(-samples // batch_size)


def with_sizes(settings: Config, sizes: Iterable[int]) -> Config:
    """The settings, given how many samples each client has.

    With local epochs, K is the mean of the K_i; the formulas of step sizes use it.
    """
    system, batch_size = settings.system, settings.data.batch_size
    if not system.epochs:
        return settings
    steps = [local_steps(int(n), batch_size, system.epochs) for n in sizes]
    return replace(settings, system=replace(system, K=max(1, round(sum(steps) / len(steps)))))


def probabilities(sampling: Sampling, sizes: Sequence[int]) -> list[float] | None:
    """Each client's sampling probability, or None if all are equal."""
    if sampling == "uniform":
        return None
    weights = [float(n) for n in sizes] if sampling == "examples" else list(map(float, sampling))
    if len(weights) != len(sizes):
        raise ConfigError(
            f"system.sampling has {len(weights)} weights for {len(sizes)} clients; give one for "
            "each client"
        )
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def argument_keys() -> dict[str, str]:
    """A setting's argument name -> its key.

    >>> argument_keys()["per_round"], argument_keys()["seed"]
    ('system.S', 'run.seed')
    """
    return {f.metadata["flag"].split()[0][2:].replace("-", "_"): key for key, _, f in flags()}


def from_arguments(
    given: Mapping[str, object], N: int, options: Mapping[str, object] = {}
) -> Config:
    """The settings of N clients, given by argument names, and an algorithm's options.

    None counts as not given.
    """
    keys = argument_keys()
    by_key = {keys[name]: value for name, value in given.items() if value is not None}
    own = {f"algorithm.{name}": value for name, value in options.items()}
    return load(None, {**own, **by_key, "system.N": N})


def deployed(run_config: Mapping[str, Any]) -> tuple[dict[str, object], Deployment]:
    """The settings in Flower's run config, by key; its other keys are the app's own.

    >>> deployed({"rounds": 7, "at-least": 2, "option.eta": 0.1, "own": 1})[0]
    {'system.T': 7, 'algorithm.eta': 0.1}
    """
    names = {
        name.replace("_", "-"): key for name, key in argument_keys().items() if key in DEPLOYED
    }
    given = {key: run_config[name] for name, key in names.items() if name in run_config}
    given |= {
        f"algorithm.{name.removeprefix(OPTION)}": value
        for name, value in run_config.items()
        if name.startswith(OPTION)
    }
    hints, own = get_type_hints(Deployment), dict[str, Any]()
    for f in fields(Deployment):
        name = f.name.replace("_", "-")
        if name in run_config:
            own[f.name] = checked(name, run_config[name], hints[f.name], f.metadata)
    return given, Deployment(**own)


def config_from(tree: Mapping[str, Mapping[str, Any]]) -> Config:
    """The settings that `Config.canonical` or `asdict` gave, as a run file stores them."""
    given = {name: dict(tree.get(name, {})) for name in SECTIONS}
    if given["system"].get("epochs"):
        given["system"]["K"] = 0  # until `with_sizes`
    try:
        return Config(**{name: cls(**given[name]) for name, cls in SECTIONS.items()})
    except TypeError as error:
        raise ConfigError(
            f"the run was made with a setting that this tunefree does not know ({error}); "
            "install a newer tunefree"
        ) from error


def with_rounds(settings: Config, rounds: int | None) -> Config:
    """The same settings with this number of rounds; None leaves them as they are."""
    if rounds is None:
        return settings
    T = build("system", {"T": rounds}).T
    return replace(settings, system=replace(settings.system, T=T))


def read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from error


def build(section: str, values: Mapping[str, object]) -> Any:
    """A section's dataclass; keys it does not know are options, if it has any."""
    cls = SECTIONS[section]
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls) if f.name != "options"}
    options = {key: value for key, value in values.items() if key not in known}
    if options and "options" not in hints:
        raise unknown(f"{section} key", next(iter(options)), known)
    given = {
        key: checked(f"{section}.{key}", value, hints[key], known[key].metadata)
        for key, value in values.items()
        if key in known
    }
    return cls(**given, **({"options": options} if options else {}))


def checked(key: str, value: object, hint: object, limits: Mapping[str, Any] = {}) -> object:
    """The value, after checking its type and range."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise unknown(key, str(value), get_args(hint))
        return value
    if hint == Sampling:
        names, _ = get_args(hint)
        return checked(key, value, names) if isinstance(value, str) else checked_weights(key, value)
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        kinds = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        omit = "; omit it for the default" if value is None else ""
        raise ConfigError(f"{key} = {value!r} must be {kinds[cast('type[Any]', hint)]}{omit}")
    least, below = limits.get("least"), limits.get("below", math.inf)
    if least is not None and cast(float, value) < least:
        raise ConfigError(f"{key} = {value} is too small; it must be at least {least:g}")
    if isinstance(value, int | float) and not value < below:
        raise ConfigError(f"{key} = {value} is too large; it must be below {below:g}")
    return value


def checked_weights(key: str, value: object) -> tuple[float, ...]:
    """A weight for each client, all of them positive."""
    try:
        weights = tuple(map(float, cast("Iterable[float]", value)))
    except (TypeError, ValueError):
        weights = ()
    if not weights or not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(
            f"{key} = {value!r} must be uniform, examples, or a positive finite weight for each "
            "client; exclude clients that are never to be sampled"
        )
    return weights


def check_option(key: str, value: object, hint: object) -> None:
    """Refuse an option that is not one of its choices, or not a positive finite number."""
    if get_origin(hint) is Literal:
        checked(key, value, hint)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{key} = {value!r} is not a number; give a positive number")
    elif not 0 < value < math.inf:
        raise ConfigError(f"{key} = {value!r} is out of range; give a positive finite number")
    elif key.removeprefix("algorithm.") in WEIGHTS and value > 1:
        raise ConfigError(f"{key} = {value!r} is out of range; a weight is at most 1")


def check_own_option(key: str, value: object, hint: object) -> None:
    """Refuse a value that is not finite, or not of the type of a user-defined method's field."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} = {value!r} is not finite; give a finite number")
    if get_origin(hint) is Literal or hint in (int, float, str, bool):
        checked(key, value, hint)


def import_name(key: str, path: str) -> Any:
    """The object that `package.module:name` names; modules in the current folder count too."""
    module, _, name = path.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything
        usual = isinstance(error, ImportError | AttributeError | ValueError)
        reason = error if usual else failure_of(error)
        raise ConfigError(
            f"{key} = {path!r} could not be imported: {reason}; write it as package.module:name "
            "and run where the package can be imported"
        ) from error


def parse_assignment(assignment: str) -> tuple[str, object]:
    """`key=value` with the value in TOML, or as text.

    >>> parse_assignment("algorithm.eta=0.1"), parse_assignment("data.partition=iid")
    (('algorithm.eta', 0.1), ('data.partition', 'iid'))
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {assignment!r} must look like key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    return key.strip(), value
