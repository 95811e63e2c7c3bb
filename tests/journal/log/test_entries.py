"""Texts in entries, which need not be UTF-8."""

import pytest

from live.journal.log.entries import content, contents
from live.store.connection.scripts import text, texts


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65_535, 65_536])
def test_a_text_of_any_size_is_read_as_it_was_packed(size: int) -> None:
    """The size decides how many bytes come before the text."""
    assert content(text(b"\xff" * size)) == b"\xff" * size


@pytest.mark.parametrize("size", [1, 16])
def test_texts_of_one_size_are_read_as_they_were_packed(size: int) -> None:
    """The identities of a batch are packed in this way."""
    for count in range(4):
        many = [bytes([number]) * size for number in range(count)]
        assert contents(texts(many, size), size) == many
