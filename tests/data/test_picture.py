"""Pictures are PNG files of a sensible size, and only they need matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tunefree.data import sources
from tunefree.data.samples import Dataset, Images, Samples
from tunefree.errors import ConfigError
from tunefree.plots import data as picture


def image_size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
        return image.size


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (5, 10), (150, 62)])
def test_counts(tmp_path: Path, clients: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (clients, classes))
    counts[0, 0] = 9
    width, height = image_size(picture.draw_clients(counts, tmp_path / "new" / "counts.png"))
    assert 300 < width < 2200
    assert 300 < height < 2200


def colour_set(classes: int) -> Dataset:
    x = torch.randint(256, (3 * classes, 3, 8, 8), dtype=torch.uint8)
    y = torch.arange(classes).repeat(3)
    samples = Samples(x, y, Images(255, (0.0,) * 3, (1.0,) * 3))
    return Dataset("colours", samples, samples, classes, "mlp")


def test_contact_sheets(tmp_path: Path) -> None:
    image_size(picture.draw_samples(sources.load("digits"), tmp_path / "digits.png"))
    image_size(picture.draw_samples(colour_set(40), tmp_path / "colours.png", columns=5))
    with pytest.raises(ConfigError, match="breast-cancer has no images to draw"):
        picture.draw_samples(sources.load("breast-cancer"), tmp_path / "none.png")


def test_first_words() -> None:
    x = torch.tensor([[2, 3, 0], [3, 1, 2]], dtype=torch.int16)
    samples = Samples(x, torch.tensor([1, 0]))
    data = Dataset(
        *("texts", samples, samples, 2, "mlp", ("negative", "positive")),
        words=("<pad>", "<unknown>", "good", "film"),
    )
    assert picture.first_words(data, words=2) == [
        ("negative", "film <unknown>"),
        ("positive", "good film"),
    ]


def test_missing_matplotlib_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'tunefree\[report\]'"):
        picture.draw_clients(np.ones((2, 2), np.int64), tmp_path / "counts.png")
