"""All facts that a run file stores about its run as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from tunefree.config import Schedule

V = TypeVar("V")
Door: TypeAlias = Literal["command", "train", "flower"]
Tree: TypeAlias = Mapping[str, Mapping[str, Any]]
AS_PUBLISHED = "as published"  # in place of a formula: a constant of the method's paper
RUN_KEYS = ("seed", "eval_every", "commit_every", "grad_norm", "device", "kernels", "out")


class Setting(Generic[V]):
    """One setting of a run; the default if it is missing or of another type."""

    def __init__(self, section: str, key: str, default: V) -> None:
        self._section, self._key, self._default = section, key, default

    def __get__(self, facts: Facts, owner: object = None) -> V:
        value = facts.config.get(self._section, {}).get(self._key)
        return value if isinstance(value, type(self._default)) else self._default


class StepSize(NamedTuple):
    """A step size or weight, and where it came from."""

    name: str
    value: float
    origin: str


@dataclass(frozen=True)
class Facts:
    """What is known about a run; facts that a file lacks have their default."""

    state: str = "unknown"  # running, done, diverged, interrupted
    reason: str = ""  # why it has diverged
    pruned: str = ""  # why a trial was stopped early
    door: Door = "command"  # where it was started, and so how it is resumed
    config: Tree = field(default_factory=dict)  # as Config.canonical gives it
    identity: Mapping[str, str] = field(default_factory=dict)  # what a resumed run must share
    title: str = ""  # of the method
    paper: str = ""
    formulas: Mapping[str, str] = field(default_factory=dict)  # of steps that were not given
    steps: Mapping[str, float] = field(default_factory=dict)
    compressor: str = ""
    system: Mapping[str, int] = field(default_factory=dict)  # N, S, K and T
    parameters: int = 0  # of the model
    tensors: Sequence[tuple[str, Sequence[int], int]] = field(default_factory=list)  # of its state
    kernels: str = ""
    fleet: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    label_counts: Sequence[Sequence[int]] = field(default_factory=list)  # of the first clients
    writer: Mapping[str, object] = field(default_factory=dict)  # the process that writes the file
    names: Sequence[str] = field(default_factory=list)  # of the clients of a deployment, by number
    sizes: Sequence[int] = field(default_factory=list)  # their samples, if needed
    federation: str = ""  # the deployment it belongs to
    label: str = ""  # a name chosen by the user, or the method as it was typed
    role: str = "method"  # or sweep, or trial
    settings: str = ""  # a fingerprint
    tuning: Mapping[str, Any] = field(default_factory=dict)  # the tuning bill of a search
    search: str = ""  # the fingerprint of the search that a trial belongs to
    sweep: Mapping[str, Any] = field(default_factory=dict)  # over what, and which value

    algorithm = Setting("algorithm", "name", "")
    options = Setting("algorithm", "options", dict[str, Any]())  # the options given for the method
    data = Setting("data", "name", "")  # empty if the caller passed the data
    partition = Setting("data", "partition", "")
    batch_size = Setting("data", "batch_size", 0)
    validation = Setting("data", "validation", 0.0)  # the share scored on; 0 is the test set
    model = Setting("model", "name", "")
    start = Setting("model", "start", "")  # the file whose weights it started from
    lora = Setting("model", "lora", 0)  # the rank of its adapters; 0 is none

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Facts:
        """The facts among these; unknown ones, or of another type, are ignored."""
        usual = cls()
        stored = {**stored, **renamed(stored)}
        found = {
            f.name: stored[f.name]
            for f in fields(cls)
            if isinstance(stored.get(f.name), type(getattr(usual, f.name)))
        }
        if not all(isinstance(row, list) and len(row) == 3 for row in found.get("tensors", ())):
            del found["tensors"]
        if not all(isinstance(row, list) and row for row in found.get("label_counts", ())):
            del found["label_counts"]
        old = next((door for door in ("train", "flower") if door in stored), None)
        if "config" not in found and old is not None:
            found = {"door": old, "config": older_config(stored[old], found.get("system"))} | found
        config = {k: v for k, v in found.get("config", {}).items() if isinstance(v, dict)}
        if system := found.get("system") or config.get("system"):
            found["system"] = system
            config = {"system": system} | config
        return cls(**found | {"config": config})

    def as_dict(self) -> dict[str, Any]:
        """Every fact that is not at its default."""
        usual = Facts()
        return {
            f.name: value
            for f in fields(self)
            if (value := getattr(self, f.name)) != getattr(usual, f.name)
        }

    @property
    def seed(self) -> int | None:
        seed = self.config.get("run", {}).get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def workload(self) -> str:
        """Data, partition and model in a line; empty if the caller passed them."""
        return ", ".join(word for word in (self.data, self.partition, self.model) if word)

    @property
    def model_words(self) -> str:
        """The model, its start and its adapters; empty if the caller passed it."""
        start = f" from {self.start}" if self.start else ""
        adapters = f" with adapters of rank {self.lora}" if self.lora else ""
        return f"{self.model}{start}{adapters}"

    @property
    def classes(self) -> int:
        return len(self.label_counts[0]) if self.label_counts else 0

    @property
    def given_steps(self) -> dict[str, float]:
        """The options that are numbers, whole numbers included."""
        return {name: value for name, value in self.options.items() if is_number(value)}

    @property
    def searched(self) -> Mapping[str, float]:
        """What a search found; older files do not distinguish it from what was given."""
        found: Mapping[str, float] = self.tuning.get("chosen", self.given_steps)
        return found if self.tuning else {}

    @property
    def tuning_free(self) -> bool:
        """Whether its steps came from formulas, none of them given by hand."""
        return bool(self.formulas) and not set(self.formulas) & set(self.options)

    @property
    def step_sizes(self) -> list[StepSize]:
        """Every step size and weight with its formula or origin."""
        used = {**self.given_steps, **self.steps}  # older files lack some given ones there
        return [StepSize(name, value, self._origin(name, value)) for name, value in used.items()]

    def _origin(self, name: str, value: float) -> str:
        if self.searched.get(name) == value:
            return "found by the search"
        return "given" if name in self.options else self.formulas.get(name) or "default"

    def with_rounds(self, T: int, identity: Mapping[str, str]) -> dict[str, Any]:
        """The facts that change when the run gets another number of rounds, by name.

        It is no longer the run that a batch planned, so it loses that fingerprint.
        """
        return {
            "door": self.door,  # an older file stores it together with its settings
            "config": {**self.config, "system": {**self.config.get("system", {}), "T": T}},
            "system": {**self.system, "T": T},
            "identity": identity,
            "settings": "",
        }

    def how_to_resume(self, path: Path | None) -> str:
        """The command or the call that continues the unfinished run in this file."""
        if self.door == "flower":
            return "flwr run, with the same app and --run-config"
        if self.door == "train":
            test = "" if self.identity.get("test set", "none") == "none" else ", test"
            return f"tunefree.resume({str(path)!r}, model, clients{test})"
        return f"tunefree run --resume {path}"


def older_config(old: Any, system: Mapping[str, int] | None) -> Tree:
    """The settings of a run whose file has the arguments of `train`, or of a Flower app, instead.

    Model and data were passed by the caller and have no names.
    """
    if not isinstance(old, dict):
        return {}
    options, schedule = old.get("options"), old.get("schedule")
    options = dict(options) if isinstance(options, dict) else {}
    compressor = options.pop("compressor", "") or old.get("compressor", "")
    if isinstance(schedule, str):
        schedule = {"name": schedule, **pick(old, "concurrency", "opening")}
    letters = {"S": "per_round", "K": "local_steps", "T": "rounds"}
    name = old.get("algorithm") or ""  # empty if it was a function
    return {
        "system": system or {letter: old[key] for letter, key in letters.items() if old.get(key)},
        "algorithm": {
            **{"name": name, "compressor": compressor, "explicit_steps": False},
            "options": options,
        },
        "data": {"name": "", "partition": "", "validation": 0.0, **pick(old, "batch_size")},
        "model": {"name": ""},
        "schedule": asdict(Schedule()) | (schedule if isinstance(schedule, dict) else {}),
        "run": pick(old, *RUN_KEYS),
    }


def renamed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What older files call `arm`, under its names of today."""
    label = {"label": stored["arm"]} if "arm" in stored else {}
    return label | ({"role": "method"} if stored.get("role") == "arm" else {})


def pick(old: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: old[key] for key in keys if key in old}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
