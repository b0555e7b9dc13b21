"""The examples run, where what they need is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lora_sends_the_adapters_alone(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft")
    run = example("lora_with_peft").main(rounds=4)
    adapters = sum(p.numel() for n, p in run.model.named_parameters() if "lora_" in n)
    assert run.objective.d == adapters
    assert run.history[-1]["bits_up"] == 4 * 5 * 32 * adapters
    assert f"{adapters:,} of" in capsys.readouterr().out
