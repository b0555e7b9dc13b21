"""The Python API: `Run`, `train` and `resume`."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import torch
from torch import nn

from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError
from tunefree.methods.own import Maker
from tunefree.models.answers import inputs_of
from tunefree.record import Row
from tunefree.run.assemble import Functions, of_file, of_model, of_settings
from tunefree.run.engine import Parts, Training, ready_to_go_back
from tunefree.run.evaluate import Evaluator
from tunefree.run.inference import personalised, predict
from tunefree.run.keywords import Again, Keywords, check, settings_of, shows
from tunefree.run.progress import Stop, show_progress
from tunefree.run.text import introduction, one_line, progress_of, state_of
from tunefree.settings import FIELDS, FleetName, Settings


class Run(Training):
    """A training run: iterate it for a row per round, stop, inspect it, continue.

    All keyword arguments of `train` can be given, which explains them.

    Args:
        model: Any module; it is copied and left as it is.
        clients: A sequence of (x, y) pairs or data sets, or one data set and a partition.
        test: Held-out samples for the scores, in the same form as one client's.

    >>> import torch
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> run = Run(nn.Linear(4, 3), clients, rounds=50, local_steps=2)
    >>> for row in run:
    ...     if row["round"] == 20:
    ...         break
    >>> run
    <Run PolarFL; N = 5, S = 5, K = 2, T = 50; interrupted after round 20; train loss ...>
    """

    @shows(Keywords)
    def __init__(
        self, model: nn.Module, clients: Any, test: Any = None, **settings: Unpack[Keywords]
    ) -> None:
        super().__init__(from_keywords(model, clients, test, settings))
        self._progress = settings.get("progress", True)

    @classmethod
    @shows(Again)
    def resume(
        cls,
        path: str | Path,
        model: nn.Module | None = None,
        clients: Any = None,
        test: Any = None,
        **settings: Unpack[Again],
    ) -> Run:
        """The run in a file, ready to continue bit for bit as if it had never stopped.

        It takes the keyword arguments of `resume`, which explains all.

        >>> import torch
        >>> from tempfile import TemporaryDirectory
        >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
        >>> model, sizes = nn.Linear(4, 3), {"local_steps": 2, "progress": False}
        >>> with TemporaryDirectory() as folder:
        ...     first = Run(model, clients, rounds=4, out=f"{folder}/a.sqlite", **sizes).finish()
        ...     again = Run.resume(f"{folder}/a.sqlite", model, clients, rounds=6, progress=False)
        ...     again.finish().history[-1]["round"]
        6
        """
        check(resume, settings)
        algorithm, loss = settings.get("algorithm"), settings.get("loss")
        functions = Functions(algorithm, loss, settings.get("evaluate"))
        where = {key: settings.get(key, FIELDS[key].default) for key in ("fleet", "workers")}
        rounds, back = settings.get("rounds"), settings.get("from_round")
        if back is not None:
            ready_to_go_back(Path(path), back)
        held_out = settings.get("client_test")
        parts = of_file(Path(path), model, clients, test, functions, rounds, held_out, **where)
        run = AssembledRun(parts, settings.get("progress", True))
        if back is not None:
            run.go_back(back)
        if readmit := settings.get("readmit"):
            run.readmit(readmit)
        if leave := settings.get("without"):
            run.leave_out(leave)
        return run

    def finish(self) -> Run:
        """Train to the end, as `train` does, and return the run.

        Ctrl-C stops it after the current round and prints how to resume; twice stops it at once.
        """
        handler = signal.getsignal(signal.SIGINT)
        stop = Stop(*([signal.SIGINT] if handler is signal.default_int_handler else ()))
        with stop:
            for _ in show_progress(self) if self._progress else self:
                if stop.asked:
                    break
        if stop.asked and self.record.state != "done":
            path = self.record.path
            file = f", or {self.record.facts().how_to_resume(path)}" if path else ""
            sys.stderr.write(f"{state_of(self)}; continue with run.finish(){file}\n")
        return self

    def summary(self) -> str:
        """The run as text: every step size and its formula, and its progress."""
        return f"{introduction(self)}\n  {progress_of(self)}"

    def client_scores(self) -> list[Row]:
        """The model's scores on each client's own training data; see `tunefree.spread`."""
        return self._here.clients(self.theta, self.own)

    def predict(self, x: Any, client: int | str | None = None) -> torch.Tensor:
        """The trained model's outputs for these inputs, in evaluation mode, on the cpu.

        Args:
            x: Inputs in the form that those of `clients` have: a tensor, an array, a frame, or
                several of them in a tuple or a dict. Frames may have further columns.
            client: Predict with this client's own part of the model, if it has one.
        """
        self.objective.put(self.own.mean if client is None else self._own_of(client))
        return predict(self.objective, self.theta, self._here.federation, x)

    def personalise(self, steps: int = 20, eta: float | None = None) -> list[Row]:
        """Each client's scores on its own held-out data before and after so many own steps.

        The trained model is a start for everyone; nothing is changed in the run.

        Args:
            steps: Mini-batch steps on the client's training data.
            eta: The step size of SGD; without one, steps are multiples of each tensor's initial
                norm that shrink to zero.

        >>> import torch
        >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
        >>> run = train(nn.Linear(4, 3), clients, client_test=clients, rounds=5, progress=False)
        >>> sorted(run.personalise()[0])
        ['accuracy_after', 'accuracy_before', 'client', 'loss_after', 'loss_before', 'n']
        """
        if self._settings.epsilon:
            raise ConfigError(
                "scores on clients' held-out data are not private, and this run promises privacy",
                "evaluate on a public test set",
            )
        given = self.objective, self._here.federation, self.theta, self.own
        return personalised(*given, self._settings.batch_size, self._settings.seed, steps, eta)

    @property
    def _here(self) -> Evaluator:
        assert isinstance(self._evaluate, Evaluator)  # the clients' data are here
        return self._evaluate

    def __repr__(self) -> str:
        return one_line(self)


class AssembledRun(Run):
    """A run whose parts are there already: of settings that name them, or of a run file."""

    def __init__(self, parts: Parts, progress: bool = True) -> None:
        Training.__init__(self, parts)
        self._progress = progress


def from_keywords(model: nn.Module, clients: Any, test: Any, given: Keywords) -> Parts:
    """The run of a user's own model and clients, with the keyword arguments of `train`."""
    check(train, given)
    if given.get("seed", 0) is None:
        given = {**given, "seed": secrets.randbits(31)}
    own = given.get("client_test")
    apart = None if isinstance(own, float) else own
    federation = federation_from(clients, test, takes=inputs_of(model), client_test=apart)
    settings = settings_of(given, federation)
    make = None if settings.algorithm else cast("Maker", given["algorithm"])
    functions = Functions(make, given.get("loss"), given.get("evaluate"))
    facts = {"label": str(given.get("name", ""))}
    return of_model(settings, model, federation, functions, facts)


@shows(Keywords)
def train(model: nn.Module, clients: Any, test: Any = None, **settings: Unpack[Keywords]) -> Run:
    """Train the model on the clients' data to the end and return the run.

    Args:
        model: Any module; it is copied and left as it is.
        clients: A sequence of (x, y) pairs, (x, y, weights), data sets or DataLoaders, or a dict of
            them by name, or one data set and a partition.
        test: Held-out samples for the scores, in the same form as one client's.
        algorithm: One of `tunefree.methods`, such as `FedAvg(eta=0.1)`, or its name; your own, or
            `package.module:Name`; or a function of the system constants that makes one.
        rounds: T, the number of server steps.
        per_round: S, clients per round; by default 10, or all if there are fewer. 0 is all.
        local_steps: K, mini-batch steps of a client per round; by default 10.
        local_epochs: Instead of steps, passes of a client over its own samples.
        sampling: "uniform"; "examples" samples clients with more data more often; or a sequence
            with a weight for each client.
        batch_size: Samples per mini-batch.
        client_test: Each client's own held-out data, scored with the model at evaluations: a list
            in the order and form of the clients, or the share of its samples to hold out: 0.2.
        standardise: Whether inputs and real targets are scaled to mean 0 and deviation 1.
        local: Parts of the model that stay with each client, by the names of parameters or of
            modules: ["head"].
        batch_norm: For models with batch norm: "statistics" leaves them with each client, "local"
            (FedBN) its layers' weights too; otherwise such a model is refused.
        clip_gradients: The largest norm of a mini-batch's gradient; 0 is no limit.
        accumulate: Mini-batches whose mean gradient makes one local step.
        compressor: For methods that compress: "sign", "rotated:2", "top:0.05", ...
        decay: For tuned methods: "none", or "linear" to 0 at the last round.
        weighting: For methods that average: "uniform", or "examples" weights clients by samples.
        robust: For methods that average or have control variates: "median", "trimmed-mean",
            "geometric-median", "krum" or "centred-clipping" in place of the mean of uploads.
        average: "on" hands out the mean of the server's models in which late ones count more.
        explicit_steps: Allow other step sizes for a tuning-free method, to study their effect.
        seed: The same seed gives the same bits; None draws one, which the run stores.
        eval_every: Rounds between evaluations.
        evaluate: A function of the model that returns further scores as a dict of numbers.
        loss: By default the model's own, else cross-entropy for labels, MSE for real targets.
        schedule: `Schedule("buffered", concurrency=20)` lets clients work asynchronously.
        privacy: `Privacy(epsilon=8)` makes the run differentially private, by default with the
            method "polarfl_stateless".
        secure: Whether the server learns only sums of uploads, as in a federation with secure sums:
            the same bits, without its masks.
        attack: Simulates that some clients send wrong uploads: "sign-flip:3" (of 3 clients),
            "scaled:10:3", "noise:3", "label-flip:3" or "drift:3".
        grad_norm: Whether evaluations also measure the norm of the full gradient.
        device: "cpu", or "cuda" where there is a GPU.
        fleet: Where clients run: "serial", "pool" (all cores), "ray", or "auto": the faster one.
        workers: Processes of the pool; 0 is one per core.
        kernels: How gradients are computed; "plain" uses torch only.
        commit_every: Rounds between commits to the file; 0 commits whenever it costs little.
        name: The name of the run in reports.
        out: The file that stores the whole run, also if it fails; `resume` continues it.
        progress: Whether progress is shown.

    >>> import torch
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> run = train(nn.Linear(4, 3), clients, test=clients[0], rounds=5, progress=False)
    >>> run.history[-1]["round"], run.model
    (5, Linear(in_features=4, out_features=3, bias=True))
    """
    return Run(model, clients, test, **settings).finish()


@shows(Again)
def resume(
    path: str | Path,
    model: nn.Module | None = None,
    clients: Any = None,
    test: Any = None,
    **settings: Unpack[Again],
) -> Run:
    """Resume the run in a file, train it to the end and return it.

    A run of the command line needs only its file. One of `train` also needs what a file cannot
    store: model, data and functions. All other settings are the run's own, except `rounds`.

    Args:
        path: The run file.
        model: The module as it was given at the start.
        clients: The clients' data, the same as before.
        test: The test set, the same as before.
        algorithm: The method, class or function, if it was your own.
        loss: The function, if a loss was given.
        evaluate: The function, if there are measures of your own.
        client_test: The clients' held-out data, if they are to be scored from now on.
        rounds: A new T, also for a finished run: as if started with it, if no step of its
            method depends on T.
        readmit: Clients in quarantine that are asked again from now on.
        without: Clients that are left out for good: not asked, and without a share in what the
            server remembers.
        from_round: Go back to the end of this round first; what came after it is forgotten. A run
            has such checkpoints after rounds 1, 2, 4, 8, ... and of its last ten commits.
        fleet: Where clients run now; may differ from before.
        workers: Processes of the pool; 0 is one per core.
        progress: Whether progress is shown.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> model = nn.Linear(4, 3)
    >>> with TemporaryDirectory() as folder:
    ...     run = train(model, clients, rounds=3, out=f"{folder}/a.sqlite", progress=False)
    ...     run = resume(f"{folder}/a.sqlite", model, clients, rounds=6, progress=False)
    >>> run.record.state
    'done'
    """
    return Run.resume(path, model, clients, test, **settings).finish()


def prepare(settings: Settings, facts: Mapping[str, Any] = {}) -> Run:
    """The run of settings that name its data and model, ready to start; its file has `facts`."""
    return AssembledRun(of_settings(settings, facts))


def resume_command(
    path: Path,
    fleet: FleetName = "auto",
    workers: int = 0,
    rounds: int | None = None,
    readmit: Sequence[int | str] = (),
    without: Sequence[int | str] = (),
    from_round: int | None = None,
) -> Run:
    """A run of the command line as stored in its file, ready to continue, perhaps to another T."""
    return Run.resume(
        path,
        fleet=fleet,
        workers=workers,
        rounds=rounds,
        readmit=readmit,
        without=without,
        from_round=from_round,
    )
