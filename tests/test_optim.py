"""PolarFL's local steps as an optimizer, against the method itself and against plain torch."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn

from tunefree.core import System, bind
from tunefree.errors import ConfigError
from tunefree.methods.polarfl_stateless import PolarFLStateless
from tunefree.optim import LocalSteps, Server

STEPS = [0.3, 0.1, 0.2, 0.05]
SIZES = [12, 4, 8, 2]


def config(**other: object) -> dict[str, object]:
    return {"steps": STEPS, "sizes": SIZES, "local-steps": 3, **other}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batches(count: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(5, 3, generator=generator), torch.randint(2, (5,), generator=generator))
        for _ in range(count)
    ]


def train(model: nn.Module, optimizer: LocalSteps, count: int = 3) -> dict[str, torch.Tensor]:
    for x, y in batches(count):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
    return optimizer.upload()


def by_hand(count: int = 3, share: float = 1.0) -> tuple[nn.Sequential, dict[str, torch.Tensor]]:
    """The page of polarfl_stateless, lines 3 and 4."""
    model = network()
    sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for x, y in batches(count):
        model.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        for step, (name, p) in zip(STEPS, model.named_parameters(), strict=True):
            assert p.grad is not None
            sums[name] += p.grad / count
            p.data -= share * step * p.grad / p.grad.norm()
    whole = sum(map(sqrt, SIZES))
    return model, {name: sqrt(sqrt(g.numel()) / whole) * g / g.norm() for name, g in sums.items()}


def same(ours: dict[str, torch.Tensor], page: dict[str, torch.Tensor]) -> None:
    assert list(ours) == list(page)
    for name in page:
        torch.testing.assert_close(ours[name], page[name])


def test_it_is_the_page() -> None:
    model = network()
    same(train(model, LocalSteps(model.named_parameters(), config())), by_hand()[1])
    same(dict(model.named_parameters()), dict(by_hand()[0].named_parameters()))


def test_it_uploads_what_the_method_uploads() -> None:
    model, shapes = network(), ((4, 3), (4,), (2, 4), (2,))
    upload = train(model, LocalSteps(model.named_parameters(), config()))
    weights = bind(PolarFLStateless(), System(9, 3, 3, 1), shapes).weights(torch.zeros(26))
    for w, u in zip(weights, upload.values(), strict=True):
        assert float(u.norm()) == pytest.approx(w)


def test_another_number_of_steps_leads_equally_far() -> None:
    model = network()
    upload = train(model, LocalSteps(model.named_parameters(), config(), local_steps=6), 6)
    same(upload, by_hand(6, share=0.5)[1])


def test_groups_and_parameters_without_names() -> None:
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    upload = train(model, LocalSteps(groups, config()))
    same(upload, dict(zip("0123", by_hand()[1].values(), strict=True)))


def test_frozen_parameters_stay_and_are_not_uploaded() -> None:
    model = network()
    weight = next(model.parameters()).requires_grad_(False)
    before = weight.clone()
    optimizer = LocalSteps(model.named_parameters(), config(steps=STEPS[1:], sizes=SIZES[1:]))
    assert list(train(model, optimizer)) == ["0.bias", "2.weight", "2.bias"]
    assert torch.equal(weight, before)


def test_a_parameter_that_a_step_does_not_use_counts_as_zero_there() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = LocalSteps([used, unused], {"steps": [0.1, 0.1], "sizes": [2, 2], "local-steps": 1})
    torch.autograd.backward(used.sum())
    optimizer.step()
    assert torch.equal(unused, torch.ones(2))
    assert float(optimizer.upload()["1"].norm()) == 0


def test_a_closure_gives_its_loss() -> None:
    model = network()
    optimizer = LocalSteps(model.named_parameters(), config())
    x, y = batches(1)[0]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        return loss

    loss = optimizer.step(closure)
    assert loss.item() > closure().item()


def test_clipping_and_accumulation_come_before_a_step() -> None:
    model, other = network(), network()
    one = LocalSteps(model.named_parameters(), config())
    two = LocalSteps(other.named_parameters(), config())
    (x, y), *_ = batches()
    torch.autograd.backward(nn.functional.cross_entropy(model(x), y, reduction="sum"))
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    one.step()
    for row, label in zip(x, y, strict=True):  # the same gradient, sample by sample
        torch.autograd.backward(nn.functional.cross_entropy(other(row), label))
    two.step()
    same(dict(model.named_parameters()), dict(other.named_parameters()))


def test_mixed_precision() -> None:
    """The scale of the loss drops out, and a step with an overflow is not made."""
    model, plain = network(), network()
    optimizer = LocalSteps(model.named_parameters(), config())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches():
        optimizer.zero_grad()
        torch.autograd.backward(scaler.scale(nn.functional.cross_entropy(model(x), y)))
        scaler.step(optimizer)
        scaler.update()
    same(optimizer.upload(), train(plain, LocalSteps(plain.named_parameters(), config())))


def test_half_precision_parameters_are_summed_in_single() -> None:
    p = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = LocalSteps([p], {"steps": [0.5], "sizes": [3], "local-steps": 1})
    torch.autograd.backward((p * torch.tensor([1.0, 2.0, 2.0])).sum())
    optimizer.step()
    assert optimizer.upload()["0"].dtype == torch.float32
    assert p[0].item() == pytest.approx(1 - 0.5 / 3, abs=0.01)


@pytest.mark.parametrize("kind", ["StepLR", "ReduceLROnPlateau", "CosineAnnealingLR"])
def test_a_scheduler_is_refused(kind: str) -> None:
    model = network()
    optimizer = LocalSteps(model.named_parameters(), config())
    more = {"StepLR": {"step_size": 1}, "CosineAnnealingLR": {"T_max": 5}}
    with pytest.raises(ConfigError, match="LocalSteps has no"):
        getattr(torch.optim.lr_scheduler, kind)(optimizer, **more.get(kind, {}))


def test_what_is_wrong_is_said() -> None:
    model = network()
    with pytest.raises(ConfigError, match="no learning rate"):
        LocalSteps([{"params": list(model.parameters()), "lr": 0.1}], config())
    with pytest.raises(ConfigError, match="sent no 'steps'"):
        LocalSteps(model.parameters(), {"lr": 0.1})
    with pytest.raises(ConfigError, match=r"12, 4, 8, 2 numbers .* parameters of 12, 4;"):
        LocalSteps(list(model.parameters())[:2], config())
    with pytest.raises(ConfigError, match="local_steps = 0"):
        LocalSteps(model.parameters(), config(), local_steps=0)
    with pytest.raises(ConfigError, match="no step was made"):
        LocalSteps(model.parameters(), config()).upload()
    optimizer = LocalSteps(model.named_parameters(), config())
    torch.autograd.backward((model(torch.full((1, 3), torch.nan))).sum())
    optimizer.step()
    with pytest.raises(ConfigError, match=r"'0.weight' are not finite"):
        optimizer.upload()


def rounds(server: Server, count: int, summed: bool = False) -> dict[str, torch.Tensor]:
    for _ in range(count):
        uploads = []
        for steps in (2, 3):
            model = network()
            model.load_state_dict(server.start())
            optimizer = LocalSteps(model.named_parameters(), server.config(2), steps)
            uploads.append(train(model, optimizer, steps))
        mean = {name: (uploads[0][name] + uploads[1][name]) / 2 for name in uploads[0]}
        server.step([mean] if summed else uploads)
    return server.model()


def test_the_server_goes_on_and_takes_means() -> None:
    first, again = Server(network(), 3), Server(network(), 3)
    rounds(first, 2)
    again.load_state_dict(first.state_dict())
    whole = rounds(first, 2)
    assert first.rounds == 4
    assert all(torch.equal(whole[name], value) for name, value in rounds(again, 2).items())
    same(rounds(Server(network(), 3), 4, summed=True), whole)
    assert not torch.equal(whole["0.weight"], network().state_dict()["0.weight"])


def test_the_server_refuses_a_model_as_an_upload() -> None:
    server = Server(network(), 3)
    with pytest.raises(ConfigError, match="upload 0 cannot be used: its norm is"):
        server.step([server.model()])
