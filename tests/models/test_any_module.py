"""Any torch.nn.Module trains as its user means it, or is refused with one clear error."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tunefree
from tunefree.core import stream
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg
from tunefree.models.objective import Objective
from tunefree.models.oracle import DataOracle
from tunefree.run.run import Run


def images(clients: int = 4, n: int = 17) -> list[Any]:
    """Pictures whose brightest corner is their class."""
    rng = torch.Generator().manual_seed(1)
    result = []
    for _ in range(clients):
        y = torch.randint(4, (n,), generator=rng)
        x = torch.randn(n, 3, 8, 8, generator=rng)
        for i, k in enumerate(y.tolist()):
            x[i, :, 4 * (k // 2) : 4 * (k // 2) + 4, 4 * (k % 2) : 4 * (k % 2) + 4] += 2
        result.append((x, y))
    return result


def texts(form: str = "by name", clients: int = 4, n: int = 16) -> list[Any]:
    """Token ids and masks; the first token says the class."""
    rng = torch.Generator().manual_seed(2)
    result: list[Any] = []
    for _ in range(clients):
        ids = torch.randint(1, 20, (n, 6), generator=rng)
        mask = torch.arange(6) < torch.randint(1, 7, (n, 1), generator=rng)
        x = {"input_ids": ids, "attention_mask": mask} if form == "by name" else (ids, mask)
        result.append((x, (ids[:, 0] > 9).long()))
    return result


def fit(model: nn.Module, clients: list[Any], **settings: Any) -> Run:
    settings = {"rounds": 4, "local_steps": 2, "batch_size": 8} | settings
    settings["eval_every"] = settings["rounds"]
    return tunefree.train(model, clients, clients[0], progress=False, **settings)


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build()


class Tuned(nn.Module):
    """A frozen backbone with batch norm and dropout, and a low-rank head to train."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.down, self.up = nn.Linear(32, 4, bias=False), nn.Linear(4, 4)
        self.backbone.requires_grad_(False)
        statistics: Any = self.backbone[1]
        statistics.running_mean.fill_(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.up(self.down(self.backbone(x)))
        return answer


def backbone_in_eval() -> nn.Module:
    model = Tuned()
    model.backbone.eval()
    return model


class KeepsItInEval(Tuned):
    def train(self, mode: bool = True) -> KeepsItInEval:
        super().train(mode)
        self.backbone.eval()
        return self


def test_a_frozen_backbone_in_eval_mode_stays_there() -> None:
    model = seeded(backbone_in_eval)
    run = fit(model, images(), rounds=30)
    assert not run.objective.stochastic  # the backbone's dropout is off
    trained: Any = run.model
    assert torch.equal(trained.backbone[1].running_mean, torch.full((8,), 0.1))
    assert run.history[-1]["accuracy"] > 0.7
    modes = {name: layer.training for name, layer in model.named_modules()}
    assert modes[""]
    assert not modes["backbone.1"]


def test_however_it_was_put_in_eval_mode_the_bits_are_the_same() -> None:
    whole = seeded(Tuned).eval()
    own = seeded(KeepsItInEval)
    runs = [fit(model, images()) for model in (seeded(backbone_in_eval), whole, own)]
    runs.append(fit(whole, images(), fleet="pool", workers=1))
    assert len({run.theta_sha256 for run in runs}) == 1
    assert not whole.training


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.body(x))
        return answer


def test_a_model_that_was_only_evaluated_trains_as_in_train_mode() -> None:
    assert fit(seeded(Noisy).eval(), images()).theta_sha256 == (
        fit(seeded(Noisy), images()).theta_sha256
    )
    quiet: Any = seeded(Noisy)
    quiet.body[2].eval()  # this one layer, though, stays in eval mode
    run = fit(quiet, images())
    assert not run.objective.stochastic
    assert run.theta_sha256 == fit(quiet, images(), fleet="pool", workers=1).theta_sha256


def normalised(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.Flatten(), nn.Linear(144, 4))


def test_batch_norm_is_refused_only_where_it_would_change_and_the_advice_works() -> None:
    model: Any = seeded(lambda: normalised(nn.BatchNorm2d(4)))
    advice = r"group_norm\(model\), or.*model.train\(\), then model.get_submodule\('1'\).eval\(\)"
    for mode in (True, False):
        with pytest.raises(ConfigError, match=f"layer '1' .*keeps running statistics.*{advice}"):
            fit(model.train(mode), images())
    model.train()
    model.get_submodule("1").eval()
    before = model[1].weight.clone()
    trained: Any = fit(model, images()).model
    assert torch.equal(trained[1].running_var, torch.ones(4))
    assert not torch.equal(trained[1].weight, before)
    fit(normalised(nn.GroupNorm(2, 4)), images())
    fit(normalised(nn.BatchNorm2d(4, track_running_stats=False)), images())


def test_statistics_that_are_hidden_from_training_alone_are_refused_too() -> None:
    layer = nn.BatchNorm2d(4)
    layer.track_running_stats = False  # trains with the batch's, evaluates with the old ones
    with pytest.raises(ConfigError, match="keeps running statistics"):
        fit(normalised(layer), images())


def test_a_model_that_needs_two_samples_says_so_before_training() -> None:
    flat = [nn.Flatten(), nn.Linear(192, 4)]
    with pytest.raises(ConfigError, match="takes two samples but not one .*use GroupNorm"):
        fit(nn.Sequential(*flat, nn.BatchNorm1d(4, track_running_stats=False)), images())
    fit(nn.Sequential(*flat, nn.GroupNorm(2, 4)), images())


def test_another_buffer_that_moves_can_be_kept_in_eval_mode() -> None:
    model = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(192, 4)))
    with pytest.raises(ConfigError, match="changes in training.*keep this one in eval mode"):
        fit(model, images())
    model.train()
    model[1].eval()
    fit(model, images())


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(192, 4), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.used(x.flatten(1))
        return answer


def test_parameters_without_a_use_stay_as_they_are() -> None:
    model: Any = seeded(Unused)
    trained: Any = fit(model, images(), algorithm=FedAvg(eta=0.1)).model
    assert torch.equal(trained.spare.weight, model.spare.weight)
    assert not torch.equal(trained.used.weight, model.used.weight)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(192, 4), nn.Linear(192, 4)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.one(x.flatten(1)) + self.two(x.flatten(1))
        return answer


def test_tied_weights_are_one_parameter_everywhere() -> None:
    run = fit(seeded(Tied), images())
    assert run.objective.d == 192 * 4 + 8
    trained: Any = run.model
    assert trained.one.weight is trained.two.weight
    assert run.theta_sha256 == fit(seeded(Tied), images(), fleet="pool", workers=1).theta_sha256


class Returning(nn.Module):
    """A dense layer that wraps its answer."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.dense, self.form = nn.Linear(192, 4), form

    def forward(self, x: torch.Tensor) -> Any:
        out = self.dense(x.flatten(1))
        return {
            "tensor": out,
            "dict": {"hidden": x, "logits": out},
            "only": {"anything": out},
            "tuple": (out, x),
            "nothing": {"loss": None},
        }[self.form]


@pytest.mark.parametrize("form", ["dict", "only", "tuple"])
def test_outputs_are_found_in_what_a_model_returns(form: str) -> None:
    plain = seeded(lambda: Returning("tensor"))
    wrapped = fit(seeded(lambda: Returning(form)), images())
    assert wrapped.theta_sha256 == fit(plain, images()).theta_sha256
    assert wrapped.history[-1]["accuracy"] == fit(plain, images()).history[-1]["accuracy"]
    given = fit(seeded(lambda: Returning(form)), images(), loss=nn.CrossEntropyLoss())
    assert given.theta_sha256 == wrapped.theta_sha256


def test_a_loss_of_ones_own_gets_what_the_model_returned() -> None:
    seen = set()

    def loss(answer: Any, y: torch.Tensor) -> torch.Tensor:
        seen.add(type(answer))
        return cross_entropy(answer["logits"], y)

    run = fit(seeded(lambda: Returning("dict")), images(), loss=loss)
    assert seen == {dict}
    assert "accuracy" in run.history[-1]
    with pytest.raises(ConfigError, match="returned a dict without outputs"):
        fit(Returning("nothing"), images())


class ModelOutput(OrderedDict[str, torch.Tensor]):
    """Like Hugging Face's: entries are attributes too, and those without a value are missing."""

    def __getattr__(self, name: str) -> torch.Tensor | None:
        return self.get(name)


class Pretrained(nn.Module):
    """Like a Hugging Face model: keyword inputs, and a loss when it gets the labels."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.embed, self.classify = nn.Embedding(20, 8), nn.Linear(8, 2)
        self.weight, self.told = weight, 0

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> ModelOutput:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        words = self.embed(input_ids) * mask.unsqueeze(-1)
        logits = self.classify(words.sum(1) / mask.sum(1, keepdim=True))
        output = ModelOutput(logits=logits)
        if labels is not None:
            output["loss"] = self.weight * cross_entropy(logits, labels)
            output.move_to_end("loss", last=False)
        return output


def test_a_model_with_its_own_loss_needs_no_other() -> None:
    run = fit(seeded(Pretrained), texts())
    given = fit(seeded(Pretrained), texts(), loss=nn.functional.cross_entropy)
    assert run.theta_sha256 == given.theta_sha256
    assert run.history[-1]["accuracy"] == given.history[-1]["accuracy"]
    doubled = fit(seeded(lambda: Pretrained(2.0)), texts())
    assert doubled.history[0]["loss"] == pytest.approx(2 * run.history[0]["loss"])


def test_several_inputs_by_name_and_by_position_on_every_fleet() -> None:
    runs = [
        fit(seeded(Pretrained), texts("by name"), rounds=20),
        fit(seeded(Pretrained), texts("by position"), rounds=20),
        fit(seeded(Pretrained), texts("by name"), rounds=20, fleet="pool", workers=1),
    ]
    assert len({run.theta_sha256 for run in runs}) == 1
    assert runs[0].history[-1]["loss"] < 0.6 < runs[0].history[0]["loss"]
    short = [((x["input_ids"],), y) for x, y in texts()]
    assert fit(seeded(Pretrained), short, rounds=20).theta_sha256 != runs[0].theta_sha256


class Reader(nn.Module):
    """A small transformer of (ids, mask)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.encode = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        self.classify = nn.Linear(8, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.encode(self.embed(ids), src_key_padding_mask=~mask)
        answer: torch.Tensor = self.classify(states[:, 0])
        return answer


def test_a_transformer_with_a_mask_learns() -> None:
    run = fit(seeded(Reader), texts("by position"), rounds=30, local_steps=4)
    assert run.history[-1]["loss"] < 0.7 * run.history[0]["loss"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_trained_and_sent_in_full(dtype: torch.dtype, tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).to(dtype)

    data = [(x.to(dtype), y) for x, y in images()]
    settings: dict[str, Any] = {"rounds": 20, "algorithm": "comparfrefl"}
    run = fit(seeded(build), data, out=tmp_path / "a.sqlite", **settings)
    assert run.theta.dtype == torch.float32
    assert next(run.model.parameters()).dtype == dtype
    assert run.history[-1]["accuracy"] > 0.9
    again = fit(seeded(build), data, fleet="pool", workers=1, **settings)
    assert run.theta_sha256 == again.theta_sha256
    with pytest.raises(ConfigError, match=rf"give inputs of the model's type, x.to\({dtype}\)"):
        fit(seeded(build), images())


def test_a_frozen_part_may_have_any_type() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(192, 16).double().requires_grad_(False)
            self.head = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.head(self.base(x.flatten(1).double()).float())
            return answer

    run = fit(seeded(Mixed), images())
    assert run.theta.dtype == torch.float32
    trained: Any = run.model
    assert trained.base.weight.dtype == torch.float64


def test_autocast_belongs_in_the_model() -> None:
    class Auto(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x.flatten(1))

    assert fit(Auto(192, 4), images(), rounds=20).history[-1]["accuracy"] > 0.9
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ConfigError, match="inside torch.autocast.*inside the model's forward"),
    ):
        fit(Noisy(), images())


def test_the_trained_model_is_not_shared(tmp_path: Path) -> None:
    save_model: Any = pytest.importorskip("safetensors.torch").save_model
    run = fit(seeded(Tied), images())
    one, two = run.model, run.model
    assert one is not two
    before = run.theta.clone()
    for p in one.parameters():
        p.data.zero_()
    assert torch.equal(run.theta, before)
    assert all(p.abs().sum() > 0 for p in (*two.parameters(), *run.model.parameters()))
    assert all(p.untyped_storage().nbytes() == 4 * p.numel() for p in two.parameters())
    save_model(two, str(tmp_path / "a.safetensors"))


def a_function() -> nn.Module:
    return Noisy()


BAD: list[tuple[Any, str]] = [
    (a_function, r"model is the function a_function, not a module; make one.*a_function\(\)"),
    (Noisy, r"model is the class Noisy, not a module; make one with it, such as Noisy\(\)"),
    ("resnet", "model is of type str; give a torch.nn.Module"),
    (nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), "'1.weight' has no shape yet.*call the model"),
]


@pytest.mark.parametrize(("model", "sentence"), BAD)
def test_unusable_modules_are_refused(model: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        fit(model, images())
    assert "\n" not in str(error.value)


def test_inputs_of_another_name_are_refused() -> None:
    data = [({"ids": x["input_ids"]}, y) for x, y in texts()]
    with pytest.raises(ConfigError, match="unexpected keyword argument 'ids'"):
        fit(Pretrained(), data)


def test_a_batch_of_several_inputs_has_the_samples_that_it_names() -> None:
    data = federation_from(texts()[:1]).train
    objective = Objective(Pretrained(), kernels="plain")
    F = DataOracle(objective, data, np.arange(16), 5, stream(0, "test"))
    for xi in (F.draw() for _ in range(4)):
        for name in ("input_ids", "attention_mask"):
            assert torch.equal(xi.x[name], data.x[name][xi.places])
        assert torch.equal(xi.y, data.y[xi.places])
