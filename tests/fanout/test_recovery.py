"""Reconnecting viewers receive what they missed if it is known, otherwise the whole top."""

from live.domain.ranking import Page
from live.fanout.cohort import ViewerPosition
from live.fanout.variant import PageHistory, Variant
from tests.fanout.test_variant import page, types
from tests.harness.pulling import variants_of
from tests.harness.viewer import ModelViewer

KEPT = 3


def running(*pages: Page, size: int = 5) -> Variant:
    """A variant that has advanced through some pages."""
    history = PageHistory(KEPT)
    variant = Variant(variants_of(history), size, 100)
    for number, one in enumerate(pages, 1):
        history.add(one)
        variant.advance(one, number)
    return variant


def many(offset: int, first: int, epoch: str = "one") -> Page:
    """A board of many records, one of which changes with each page."""
    return page(offset, epoch, **{f"a-rather-long-name-{number}": 100 - number for number in range(20)}, changing=first)


def test_missed_changes_are_recovered() -> None:
    """One update leads from any known page to the latest page. Then the viewer lacks nothing."""
    variant, model = running(*(many(number, number) for number in range(1, 4)), size=30), ModelViewer()
    model.receive(running(many(1, 1), size=30).next_frame(ViewerPosition()).payload)  # type: ignore[union-attr]
    position = ViewerPosition("one", 1)
    frame = variant.next_frame(position)
    assert frame is not None
    model.receive(frame.payload)
    assert (frame.type, model.recovered, position.offset) == ("update", True, 3)
    assert model.records == list(many(3, 3).records)
    assert variant.next_frame(position) is None


def test_a_viewer_that_missed_nothing_is_recovered() -> None:
    """The viewer receives an update without changes."""
    variant = running(many(1, 1), size=30)
    frame = variant.next_frame(ViewerPosition("one", 1))
    assert frame is not None
    assert b'"recovered":true' in frame.payload
    assert b'"changed":[],"removed":[]' in frame.payload


def test_viewers_from_the_same_position_share_a_frame() -> None:
    """After a cut, many viewers return from the same position."""
    variant = running(many(1, 1), many(2, 2), size=30)
    assert variant.next_frame(ViewerPosition("one", 1)) is variant.next_frame(ViewerPosition("one", 1))


def test_a_sync_that_is_smaller_than_the_changes_is_sent_instead() -> None:
    """A viewer that receives such a sync counts as recovered."""
    variant = running(page(1, a=1, b=2), page(2, c=1))
    frame = variant.next_frame(ViewerPosition("one", 1))
    assert frame is not None
    assert frame.type == "sync"
    assert b'"recovered":true' in frame.payload


def test_an_unknown_position_receives_a_sync() -> None:
    """The position is too old, of another epoch, or was never read by this process."""
    pages = [many(number, number) for number in (1, 3, 5, 7, 9)]
    for position in (
        ViewerPosition("one", 1),
        ViewerPosition("one", 8),
        ViewerPosition("two", 9),
        ViewerPosition("one", 0),
    ):
        variant = running(*pages, size=30)
        frame = variant.next_frame(position)
        assert types(frame) == ["sync"]
        assert frame is not None
        assert b'"recovered":false' in frame.payload
        assert (position.epoch, position.offset) == ("one", 9)


def test_a_new_epoch_always_receives_a_sync() -> None:
    """A viewer at an offset that the old epoch also had receives a sync too."""
    variant = running(many(1, 1), many(2, 2), many(2, 7, "two"), size=30)
    assert types(variant.next_frame(ViewerPosition("one", 2))) == ["sync"]


def test_a_page_of_fewer_records_does_not_recover_a_larger_top() -> None:
    """Pages that were read for viewers of a smaller top have too few records."""
    history = PageHistory(KEPT)
    small, large = (Variant(variants_of(history), size, 100) for size in (2, 5))
    history.add(Page(epoch="one", offset=1, rank_count=9, total_score=9, start=0, records=many(1, 1).records[:2]))
    for variant in (small, large):
        variant.advance(many(2, 2), 2)
    assert types(small.next_frame(ViewerPosition("one", 1)), large.next_frame(ViewerPosition("one", 1))) == [
        "update",
        "sync",
    ]


def test_a_viewer_that_is_ahead_waits_for_a_newer_read() -> None:
    """The viewer comes from a process that has read a newer state, so older reads are no news for it."""
    variant, position = running(many(5, 1), size=30), ViewerPosition("one", 7, last_read=2)
    assert variant.next_frame(position) is None
    variant.advance(many(6, 2), 2)  # this read began before the viewer arrived
    assert variant.next_frame(position) is None
    variant.advance(many(7, 3), 3)
    frame = variant.next_frame(position)
    assert frame is not None
    assert position.offset == 7


def test_a_viewer_ahead_of_the_store_receives_a_sync() -> None:
    """The store lost data and its offset went back, so the viewer receives the whole top."""
    variant, position = running(many(5, 1), size=30), ViewerPosition("one", 9, last_read=1)
    variant.advance(many(5, 1), 2)
    assert types(variant.next_frame(position)) == ["sync"]
    assert position.offset == 5


def test_a_history_can_be_turned_off() -> None:
    """A history of size zero is off."""
    history = PageHistory(0)
    history.add(many(1, 1))
    assert history.find("one", 1, 1) is None
