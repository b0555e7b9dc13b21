"""The data sets inside scikit-learn: names, options and contents."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from tunefree.data import sources
from tunefree.data.samples import Images
from tunefree.errors import ConfigError
from tunefree.models import MODELS


def test_every_source_describes_itself() -> None:
    assert set(sources.SOURCES) == {"digits", "breast-cancer"}
    for name, source in sources.SOURCES.items():
        assert source.name == name
        assert source.model in MODELS
        assert source.train >= source.test > 0
        for line in (source.about, source.citation, source.licence):
            assert line
            assert "\n" not in line
            assert len(line) <= 80


def test_digits_are_small_integers_until_a_batch_is_made() -> None:
    data = sources.load("digits")
    x, y = data.train.batch(np.arange(5))
    assert x.shape == (5, 1, 8, 8)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert data.train.x.dtype == torch.uint8
    source = sources.SOURCES["digits"]
    assert (len(data.train), len(data.test)) == (source.train, source.test)


def test_breast_cancer_is_standardised_by_its_training_part() -> None:
    data, source = sources.load("breast-cancer"), sources.SOURCES["breast-cancer"]
    x, y = data.train.batch(slice(None))
    assert x.shape == (456, 30)
    torch.testing.assert_close(x.mean(0), torch.zeros(30), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(30), atol=1e-5, rtol=0)
    assert data.test.x.mean(0).abs().max() > 0.01
    assert (len(data.train), len(data.test)) == (source.train, source.test)
    assert torch.bincount(torch.cat([y, data.test.y])).tolist() == [212, 357]
    assert data.names == ("malignant", "benign")
    assert (
        len({tuple(row) for row in torch.cat([x, data.test.x]).tolist()}) == 569
    )  # no sample is in both
    assert torch.equal(x, sources.load("breast-cancer").train.x)


def test_unknown_names_and_options() -> None:
    with pytest.raises(ConfigError, match="did you mean 'breast-cancer'"):
        sources.load("brest_cancer")
    with pytest.raises(ConfigError, match="digits takes no options"):
        sources.load("digits", length=100)


def test_images_are_standardised_floats_and_stay_as_they_were() -> None:
    prepare = Images(white=255, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    raw = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    before = raw.clone()
    made = prepare(raw)
    mean = torch.tensor([0.5, 0.25, 0.0]).view(1, 3, 1, 1)
    std = torch.tensor([0.5, 0.25, 1.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(made, (raw / 255 - mean) / std)
    assert torch.equal(raw, before)
    floats = raw.float()
    torch.testing.assert_close(prepare(floats), made)
    assert torch.equal(floats, before.float())
    assert pickle.loads(pickle.dumps(prepare)) == prepare  # noqa: S301 - our own bytes


def test_importing_stays_light() -> None:
    modules = f"{sources.__name__}, tunefree.plots.data, " + ", ".join(
        f"tunefree.data.{name}" for name in ("partition", "samples", "clients")
    )
    program = (
        f"import sys, {modules}\n"
        "heavy = {'sklearn', 'PIL', 'pooch', 'matplotlib', 'requests'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
