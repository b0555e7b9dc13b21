"""Words: reviews as token ids of a vocabulary built from the training texts only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

PAD, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unknown>")
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")

Tokens = NDArray[np.int16]
Index = NDArray[np.int64]


def words_of(text: str) -> list[str]:
    """The text's words in lower case: runs of letters and digits, with inner apostrophes.

    >>> words_of("It isn't BAD,<br /><br />just 2 hours too long!")
    ['it', "isn't", 'bad', 'just', '2', 'hours', 'too', 'long']
    """
    return WORD.findall(text.replace("<br />", " ").lower())


def vocabulary(texts: Iterable[list[str]], size: int) -> tuple[str, ...]:
    """The most frequent words, ties in alphabetical order, after the two special tokens.

    >>> vocabulary([["b", "a", "c"], ["c"]], size=4)
    ('<pad>', '<unknown>', 'c', 'a')
    """
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return SPECIAL + tuple(ranked[: size - len(SPECIAL)])


def encode(texts: Sequence[list[str]], words: Sequence[str]) -> tuple[Tokens, Index]:
    """All texts as one array of token ids, and where each starts."""
    ids = {word: i for i, word in enumerate(words)}
    lengths = [len(text) for text in texts]
    tokens = (ids.get(word, UNKNOWN) for text in texts for word in text)
    starts = np.cumsum([0, *lengths], dtype=np.int64)
    return np.fromiter(tokens, dtype=np.int16, count=sum(lengths)), starts


def pad(tokens: Tokens, starts: Index, length: int) -> Tokens:
    """One row of `length` ids per text: its first words, then zeros.

    >>> pad(np.array([5, 6, 7, 8], dtype=np.int16), np.array([0, 3, 4]), length=2).tolist()
    [[5, 6], [8, 0]]
    """
    column = np.arange(length)
    place = starts[:-1, None] + column
    return np.where(
        column < np.diff(starts)[:, None], tokens[np.minimum(place, len(tokens) - 1)], np.int16(PAD)
    )


@dataclass(frozen=True)
class TokenIds:
    """Compact token ids -> the integers that an embedding takes."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x.long()
