"""All facts that a run file stores about its run as a whole."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from tunefree.errors import ConfigError
from tunefree.former_names import renamed
from tunefree.settings import FIELDS, BatchNorm, flat

V = TypeVar("V")
Door: TypeAlias = Literal["command", "train", "flower"]
NOT_PRIVATE = {  # settings that version 0.2.0 did not have
    name: FIELDS[name].default for name in ("epsilon", "unit", "delta", "clip", "participations")
}
AS_PUBLISHED = "as published"  # in place of a formula: a constant of the method's paper


class Stored(Generic[V]):
    """The setting of this name; the default if it is missing or of another type."""

    def __init__(self, default: V) -> None:
        self._default = default

    def __set_name__(self, owner: object, name: str) -> None:
        self._name = name

    def __get__(self, facts: Facts, owner: object = None) -> V:
        value = facts.settings.get(self._name)
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
    settings: Mapping[str, Any] = field(default_factory=dict)  # as Settings.asdict gives them
    identity: Mapping[str, Any] = field(default_factory=dict)  # what a resumed run must share
    title: str = ""  # of the method
    paper: str = ""
    formulas: Mapping[str, str] = field(default_factory=dict)  # of steps that were not given
    steps: Mapping[str, float] = field(default_factory=dict)
    compressor: str = ""
    privacy: Mapping[str, Any] = field(default_factory=dict)  # the promise and its noise
    system: Mapping[str, int] = field(default_factory=dict)  # N, S, K and T
    parameters: int = 0  # of the model
    tensors: Sequence[tuple[str, Sequence[int], int]] = field(default_factory=list)  # of its state
    scaling: Mapping[str, Any] = field(default_factory=dict)  # means and deviations by name
    kernels: str = ""
    fleet: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    label_counts: Sequence[Sequence[int]] = field(default_factory=list)  # of the first clients
    unused: Sequence[str] = field(default_factory=list)  # columns: neither input nor target
    writer: Mapping[str, object] = field(default_factory=dict)  # the process that writes the file
    names: Sequence[str] = field(default_factory=list)  # of the clients, by number, if any
    classes_named: Sequence[str] = field(default_factory=list)  # what their labels are called
    weighted: bool = False  # whether samples have weights
    sizes: Sequence[int] = field(default_factory=list)  # their samples, if needed
    from_round: int = -1  # where a deployment was last told to go back to
    federation: str = ""  # the deployment it belongs to
    label: str = ""  # a name chosen by the user, or the method as it was typed
    role: str = "method"  # or sweep, or trial
    plan: str = ""  # the fingerprint of a run that a batch planned
    tuning: Mapping[str, Any] = field(default_factory=dict)  # the tuning bill of a search
    search: str = ""  # the fingerprint of the search that a trial belongs to
    sweep: Mapping[str, Any] = field(default_factory=dict)  # over what, and which value

    algorithm = Stored("")
    option = Stored(dict[str, Any]())  # the options given for the method
    data = Stored("")  # empty if the caller passed the data
    partition = Stored("")
    batch_size = Stored(0)
    validation = Stored(0.0)  # the share scored on; 0 is the test set
    attack = Stored("")  # that was simulated
    model = Stored("")
    start = Stored("")  # the file whose weights it started from
    lora = Stored(0)  # the rank of its adapters; 0 is none
    local = Stored("")  # parts of the model that stay with each client
    accumulate = Stored(1)  # mini-batches of a step

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Facts:
        """The facts among these; unknown ones, or of another type, are ignored."""
        usual = cls()
        plan = stored.get("settings", "")
        if isinstance(plan, str) and isinstance(stored.get("config"), Mapping):  # version 0.2.0
            settings = {**NOT_PRIVATE, **renamed(stored["config"])}
            stored = {**stored, "settings": settings, "plan": plan}
        found = {
            f.name: stored[f.name]
            for f in fields(cls)
            if isinstance(stored.get(f.name), type(getattr(usual, f.name)))
        }
        if not all(isinstance(row, list) and len(row) == 3 for row in found.get("tensors", ())):
            del found["tensors"]
        if not all(isinstance(row, list) and row for row in found.get("label_counts", ())):
            del found["label_counts"]
        return cls(**found)

    def as_dict(self) -> dict[str, Any]:
        """Every fact that is not at its default."""
        usual = Facts()
        return {
            f.name: value
            for f in fields(self)
            if (value := getattr(self, f.name)) != getattr(usual, f.name)
        }

    @property
    def values(self) -> dict[str, Hashable]:
        """The settings that have a value, by name, those of tables by table and name.

        >>> Facts(settings={"algorithm": "fedavg", "option": {"eta": 0.1}}).values
        {'algorithm': 'fedavg', 'option.eta': 0.1}
        """
        return {
            key: value if isinstance(value, str | int | float | bool) else str(value)
            for key, value in flat(self.settings).items()
            if value is not None
        }

    @property
    def batch_norm(self) -> BatchNorm | None:
        """What of batch norm stays with each client; None if nothing does."""
        chosen = self.settings.get("batch_norm", "refuse")
        return None if chosen == "refuse" else chosen

    @property
    def by_name(self) -> bool:
        """Whether the settings name its model and data, so that the file alone is enough."""
        return self.door == "command"

    @property
    def deployed(self) -> bool:
        return self.door == "flower"

    def called(self, client: int) -> str:
        """The client's name, or its number if it has none; nodes are called by their numbers."""
        named = client < len(self.names) and not self.deployed
        return self.names[client] if named else str(client)

    def number(self, client: int | str) -> int:
        """The number of the client called so."""
        every = [self.called(number) for number in range(self.system["N"])]
        if str(client) not in every:
            known = ", ".join(self.names) if self.names else f"0 to {len(every) - 1}"
            raise ConfigError(f"there is no client {client}", f"give {known}")
        return every.index(str(client))

    @property
    def seed(self) -> int | None:
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def workload(self) -> str:
        """Data, partition and model in a line; empty if the caller passed them."""
        return ", ".join(word for word in (self.data, self.partition, self.model) if word)

    @property
    def attack_words(self) -> str:
        return f"under the simulated attack {self.attack}" if self.attack else ""

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
        return {name: value for name, value in self.option.items() if is_number(value)}

    @property
    def searched(self) -> Mapping[str, float]:
        """What a search found; older files do not distinguish it from what was given."""
        found: Mapping[str, float] = self.tuning.get("chosen", self.given_steps)
        return found if self.tuning else {}

    @property
    def tuning_free(self) -> bool:
        """Whether its steps came from formulas, none of them given by hand."""
        return bool(self.formulas) and not set(self.formulas) & set(self.option)

    @property
    def step_sizes(self) -> list[StepSize]:
        """Every step size and weight with its formula or origin."""
        used = {**self.given_steps, **self.steps}  # older files lack some given ones there
        return [StepSize(name, value, self._origin(name, value)) for name, value in used.items()]

    def _origin(self, name: str, value: float) -> str:
        if self.searched.get(name) == value:
            return "found by the search"
        return "given" if name in self.option else self.formulas.get(name) or "default"

    def with_rounds(self, T: int, identity: Mapping[str, Any]) -> dict[str, Any]:
        """The facts that change when the run gets another number of rounds, by name.

        It is no longer the run that a batch planned, so it loses that fingerprint.
        """
        return {
            "settings": {**self.settings, "rounds": T},
            "system": {**self.system, "T": T},
            "identity": identity,
            "plan": "",
        }

    def how_to_resume(self, path: Path | None) -> str:
        """The command or the call that continues the unfinished run in this file."""
        if self.deployed:
            return "flwr run, with the same app and --run-config"
        if not self.by_name:
            test = "" if self.identity.get("test set", "none") == "none" else ", test"
            return f"tunefree.resume({str(path)!r}, model, clients{test})"
        return f"tunefree run --resume {path}"

    def how_to_readmit(self, path: Path | None) -> str:
        """How clients in quarantine are asked again."""
        if self.deployed:
            return 'readmit = "CLIENT" in its --run-config'
        how = self.how_to_resume(path)
        return f"{how} --readmit CLIENT" if self.by_name else f"{how[:-1]}, readmit=[CLIENT])"


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
