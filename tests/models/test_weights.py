"""Weights from a file fit the model by name and shape, or an error says what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tunefree.errors import ConfigError
from tunefree.models import weights


def test_both_kinds_of_files_have_the_same_content(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    torch.save(model.state_dict(), tmp_path / "a.pt")
    save_file(model.state_dict(), tmp_path / "a.safetensors")
    states = [weights.read(tmp_path / name) for name in ("a.pt", "a.safetensors")]
    assert len({weights.fingerprint(state) for state in states}) == 1
    weights.put(other, states[1], "a.safetensors")
    assert torch.equal(other.weight, model.weight)
    with torch.no_grad():
        other.bias[0] += 1
    assert weights.fingerprint(other.state_dict()) != weights.fingerprint(model.state_dict())


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"weight": torch.zeros(2, 3)}, "it has no 'bias'; give weights of the same model"),
        ({**nn.Linear(3, 2).state_dict(), "more": torch.zeros(1)}, "the model has no 'more';"),
        (nn.Linear(4, 2).state_dict(), r"'weight' has shape \(2, 4\) there and \(2, 3\) in the"),
    ],
)
def test_what_does_not_fit_is_named(state: dict[str, torch.Tensor], sentence: str) -> None:
    model = nn.Linear(3, 2)
    before = model.weight.clone()
    with pytest.raises(ConfigError, match=f"start = 'a.pt' does not fit .*{sentence}"):
        weights.put(model, state, "a.pt")
    assert torch.equal(model.weight, before)


class Harmless:
    """Not a tensor, so it cannot be read without running code."""


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        ({"epoch": 3, "model": {}}, "contains no state dict"),
        ([torch.zeros(1)], "contains no state dict"),
        ({"weight": Harmless()}, "cannot be read as .pt"),
    ],
)
def test_anything_but_a_state_dict_is_refused(held: object, sentence: str, tmp_path: Path) -> None:
    torch.save(held, tmp_path / "a.pt")
    with pytest.raises(ConfigError, match=sentence) as error:
        weights.read(tmp_path / "a.pt")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("no weights")
    with pytest.raises(ConfigError, match=r"cannot be read as \.") as error:
        weights.read(tmp_path / name)
    assert "\n" not in str(error.value)
