"""Words, vocabulary, padding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tunefree.data.samples import starts_of
from tunefree_evidence.datasets import text


def test_markup_goes_and_letters_of_all_scripts_stay() -> None:
    assert text.words_of("Amélie's<br />naïve 10/10 'quote' don''t _x_") == (
        ["amélie's", "naïve", "10", "10", "quote", "don", "t", "x"]
    )


def test_rare_words_are_unknown_and_ids_follow_frequency() -> None:
    texts = [["b", "a"], ["b", "c"], ["a", "b"]]
    words = text.vocabulary(texts, size=4)
    assert words == ("<pad>", "<unknown>", "b", "a")
    tokens, starts = text.encode(texts, words)
    assert tokens.tolist() == [2, 3, 2, 1, 3, 2]
    assert starts.tolist() == [0, 2, 4, 6]
    assert tokens.dtype == np.int16


@given(
    st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1).filter(any),
    st.integers(1, 8),
)
def test_padding_keeps_the_first_words(texts: list[list[int]], length: int) -> None:
    tokens = np.array([token for one in texts for token in one], np.int16)
    starts = starts_of([len(one) for one in texts])
    rows = text.pad(tokens, starts, length)
    assert rows.tolist() == [(one + [0] * length)[:length] for one in texts]
