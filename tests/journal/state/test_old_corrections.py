"""Journals in which an older version corrected values, with the contents that it read from them."""

import base64
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import live.journal.state.fold
from live.journal.log.entries import parse_head
from live.journal.state.fold import apply
from live.journal.state.snapshot import Snapshot
from tests.harness.mutation import must_be_caught, replaced

OLD: Final[dict[str, dict[str, Any]]] = msgspec.json.decode(
    Path(__file__).with_name("old_corrections.json").read_bytes()
)


def must_read(name: str) -> None:
    """Fold a board's entries, and compare the contents with the contents that the older version read."""
    data, kinds = Snapshot(), set[str]()
    for head, body in OLD[name]["entries"]:
        parsed = parse_head(head)
        apply(data, parsed, base64.b64decode(body))
        kinds.add(parsed.kind)
    assert "mend" in kinds
    rankings = data.rankings.values()
    assert {str(start): slot for start, slot in data.slots.items()} == OLD[name]["slots"]
    assert sorted(data.hidden) == OLD[name]["hidden"]
    assert sorted(data.entrants) == OLD[name]["entrants"]
    assert sorted([event.member, event.amount] for event in data.log) == OLD[name]["events"]
    assert sorted(count for ranking in rankings for count in ranking.votes.values()) == OLD[name]["votes"]
    held = {member: text.decode() for ranking in rankings for member, text in ranking.metadata.items()}
    assert held == OLD[name]["metadata"]
    tags = {member: list(tag) for ranking in rankings for member, tag in ranking.reached.items()}
    assert tags == OLD[name]["reached"]


@pytest.mark.parametrize("name", OLD)
def test_corrections_of_an_older_version_are_read(name: str) -> None:
    """The old entries have increments, replaced values, removed events and hidden members."""
    must_read(name)


@pytest.mark.mutant
@pytest.mark.parametrize("name", OLD)
def test_a_fold_without_corrections_is_detected(name: str) -> None:
    """The mutant returns the contents before the correction."""
    with must_be_caught("corrections are skipped"), replaced(live.journal.state.fold, "correct", lambda *_: None):
        must_read(name)
