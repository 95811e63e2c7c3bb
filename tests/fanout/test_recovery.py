"""Viewers that come back: they get what they missed when that is known, and the whole top when it is not."""

from live.domain.ranking import Page
from live.fanout.history import History
from live.fanout.position import Position
from live.fanout.variant import Variant
from tests.fanout.test_variant import page, types
from tests.harness.viewer import ModelViewer

KEPT = 3


def running(*pages: Page, size: int = 5) -> Variant:
    """A variant that has come through some pages."""
    history = History(KEPT)
    variant = Variant("posts", size, 100, history)
    for number, one in enumerate(pages, 1):
        history.add(one)
        variant.advance(one, number)
    return variant


def many(offset: int, first: int, epoch: str = "one") -> Page:
    """A board of many records, of which one is another on each page."""
    return page(offset, epoch, **{f"a-rather-long-name-{number}": 100 - number for number in range(20)}, changing=first)


def test_what_was_missed_is_told() -> None:
    """One update from where it stood, over any number of pages; and then the next like everybody."""
    variant, model = running(*(many(number, number) for number in range(1, 4)), size=30), ModelViewer()
    model.receive(running(many(1, 1), size=30).next_frame(Position()).text)  # type: ignore[union-attr]
    position = Position("one", 1)
    frame = variant.next_frame(position)
    assert frame is not None
    model.receive(frame.text)
    assert (frame.type, model.recovered, position.offset) == ("update", True, 3)
    assert model.records == list(many(3, 3).records)
    assert variant.next_frame(position) is None


def test_who_missed_nothing_is_told_so() -> None:
    """An update without a change: it may take itself for live."""
    variant = running(many(1, 1), size=30)
    frame = variant.next_frame(Position("one", 1))
    assert frame is not None
    assert '"recovered":true' in frame.text
    assert '"changed":[],"removed":[]' in frame.text


def test_all_who_return_from_one_place_share_a_frame() -> None:
    """After a cut they are many."""
    variant = running(many(1, 1), many(2, 2), size=30)
    assert variant.next_frame(Position("one", 1)) is variant.next_frame(Position("one", 1))


def test_what_is_smaller_than_what_was_missed_is_sent_instead() -> None:
    """The whole top, which then is what was missed."""
    variant = running(page(1, a=1, b=2), page(2, c=1))
    frame = variant.next_frame(Position("one", 1))
    assert frame is not None
    assert frame.type == "sync"
    assert '"recovered":true' in frame.text


def test_what_is_not_known_any_more_takes_a_sync() -> None:
    """Too long ago, of another epoch, or never read by this process."""
    pages = [many(number, number) for number in (1, 3, 5, 7, 9)]
    for position in (Position("one", 1), Position("one", 8), Position("two", 9), Position("one", 0)):
        variant = running(*pages, size=30)
        frame = variant.next_frame(position)
        assert types(frame) == ["sync"]
        assert frame is not None
        assert '"recovered":false' in frame.text
        assert (position.epoch, position.offset) == ("one", 9)


def test_a_new_epoch_always_takes_a_sync() -> None:
    """Even to an offset that was known before."""
    variant = running(many(1, 1), many(2, 2), many(2, 7, "two"), size=30)
    assert types(variant.next_frame(Position("one", 2))) == ["sync"]


def test_a_page_of_fewer_records_recovers_nobody_who_watches_more() -> None:
    """What was read for small viewers says too little."""
    history = History(KEPT)
    small, large = Variant("posts", 2, 100, history), Variant("posts", 5, 100, history)
    history.add(Page(epoch="one", offset=1, rank_count=9, total_score=9, start=0, records=many(1, 1).records[:2]))
    for variant in (small, large):
        variant.advance(many(2, 2), 2)
    assert types(small.next_frame(Position("one", 1)), large.next_frame(Position("one", 1))) == ["update", "sync"]


def test_who_is_ahead_waits_for_a_read_of_its_own_time() -> None:
    """It comes from a process that has seen more; what was read before it came is no news to it."""
    variant, position = running(many(5, 1), size=30), Position("one", 7, asked=2)
    assert variant.next_frame(position) is None
    variant.advance(many(6, 2), 2)  # the read was under way when it came
    assert variant.next_frame(position) is None
    variant.advance(many(7, 3), 3)
    frame = variant.next_frame(position)
    assert frame is not None
    assert position.offset == 7


def test_who_is_ahead_of_the_store_is_told_the_truth() -> None:
    """The store has lost something, and its offset went back: the whole top, as it is."""
    variant, position = running(many(5, 1), size=30), Position("one", 9, asked=1)
    variant.advance(many(5, 1), 2)
    assert types(variant.next_frame(position)) == ["sync"]
    assert position.offset == 5


def test_a_history_of_nothing_is_none() -> None:
    """It may be turned off."""
    history = History(0)
    history.add(many(1, 1))
    assert history.find("one", 1, 1) is None
