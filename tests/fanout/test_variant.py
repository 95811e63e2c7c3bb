"""A variant: the frame that brings each viewer to the board's offset."""

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from live.domain.ranking import Page, Record
from live.domain.window import Periods
from live.fanout.cohort import BoardStatus, Cohort, ViewerPosition
from live.fanout.frames import Frame
from live.fanout.subscription import Subscription
from live.fanout.variant import PageHistory, Variant, Variants
from tests.harness.boards import BOARD, changed
from tests.harness.pulling import PullViewer, variants_of
from tests.harness.viewer import ModelViewer


def page(offset: int, epoch: str = "one", **scores: int) -> Page:
    """A board at an offset."""
    rows = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    records = tuple(Record(member, score, rank) for rank, (member, score) in enumerate(rows, 1))
    return Page(
        epoch=epoch, offset=offset, rank_count=len(rows), total_score=sum(scores.values()), start=0, records=records
    )


def variant_of(size: int) -> Variant:
    """A variant of a board without a history."""
    return Variant(variants_of(), size, 100)


def types(*frames: Frame | None) -> list[str | None]:
    """The types of the frames."""
    return [None if frame is None else frame.type for frame in frames]


def test_there_is_no_frame_before_the_first_page() -> None:
    """The first viewer has to wait for the page."""
    position = ViewerPosition()
    assert variant_of(5).next_frame(position) is None
    assert position.offset == -1


def test_a_viewer_receives_a_sync_and_then_updates() -> None:
    """The viewer receives nothing while the board does not change."""
    variant, position = variant_of(5), ViewerPosition()
    variant.advance(page(1, a=1))
    assert types(variant.next_frame(position), variant.next_frame(position)) == ["sync", None]
    variant.advance(page(2, a=2))
    assert types(variant.next_frame(position), variant.next_frame(position)) == ["update", None]
    assert (position.epoch, position.offset) == ("one", 2)


def test_all_viewers_share_a_frame() -> None:
    """Each message is encoded once for all viewers."""
    variant = variant_of(5)
    positions = [ViewerPosition() for _ in range(3)]
    variant.advance(page(1, a=1))
    syncs = [variant.next_frame(position) for position in positions]
    variant.advance(page(2, a=2))
    updates = [variant.next_frame(position) for position in positions]
    assert all(frame is syncs[0] for frame in syncs)
    assert all(frame is updates[0] for frame in updates)
    assert types(syncs[0], updates[0]) == ["sync", "update"]


def test_a_slow_viewer_skips_to_the_latest() -> None:
    """A viewer that is one page behind receives the update, and a viewer that is further behind the whole top."""
    variant, quick, slow = variant_of(5), ViewerPosition(), ViewerPosition()
    variant.advance(page(1, a=1))
    variant.next_frame(quick), variant.next_frame(slow)
    variant.advance(page(2, a=2))
    variant.next_frame(quick)
    variant.advance(page(5, a=3))
    assert types(variant.next_frame(quick), variant.next_frame(slow)) == ["update", "sync"]
    assert quick.offset == slow.offset == 5


def test_a_new_viewer_receives_a_sync_while_others_receive_updates() -> None:
    """The new viewer starts with the whole top, however long the variant exists."""
    variant, old = variant_of(5), ViewerPosition()
    variant.advance(page(1, a=1))
    variant.next_frame(old)
    variant.advance(page(2, a=2))
    assert types(variant.next_frame(ViewerPosition()), variant.next_frame(old)) == ["sync", "update"]


def test_a_page_that_is_not_newer_is_ignored() -> None:
    """The page of an earlier read may arrive after the page of a later read."""
    variant, position, behind = variant_of(5), ViewerPosition(), ViewerPosition()
    variant.advance(page(2, a=2))
    variant.next_frame(behind)
    variant.advance(page(3, a=3))
    variant.next_frame(position)
    for late in (page(3, a=3), page(2, a=2)):
        variant.advance(late)
        assert variant.next_frame(position) is None
    assert types(variant.next_frame(behind)) == ["update"]
    variant.advance(page(4, a=4))
    assert types(variant.next_frame(position)) == ["update"]


def test_a_new_epoch_begins_with_a_sync() -> None:
    """Offsets of different epochs can't be compared, even if they are equal or lower."""
    for offset in (1, 2, 3):
        variant, position = variant_of(5), ViewerPosition()
        variant.advance(page(2, "one", a=2))
        variant.next_frame(position)
        variant.advance(page(offset, "two", b=1))
        assert types(variant.next_frame(position), variant.next_frame(position)) == ["sync", None]
        assert (position.epoch, position.offset) == ("two", offset)


steps = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4)),  # the board changes to these scores
        st.integers(0, 3),  # this viewer asks for its next frame
        st.just("restart"),  # the board begins a new epoch
    ),
    max_size=40,
)


@pytest.mark.slow
@given(steps, st.integers(1, 4))
def test_a_viewer_that_asks_at_any_time_holds_the_top(schedule: list[dict[str, int] | int | str], size: int) -> None:
    """Viewers come and ask at any time, on a board that changes at any time."""
    variant = variant_of(size)
    positions, models = [ViewerPosition() for _ in range(4)], [ModelViewer() for _ in range(4)]
    offset, epoch, latest = 0, 0, None
    for step in schedule:
        if isinstance(step, dict):
            offset += 1
            latest = page(offset, str(epoch), **step)
            variant.advance(latest)
        elif isinstance(step, str):
            offset, epoch = 0, epoch + 1
        else:
            while (frame := variant.next_frame(positions[step])) is not None:
                models[step].receive(frame.payload)
            if latest is not None:
                assert models[step].records == list(latest.records[:size])
                assert (models[step].epoch, models[step].offset) == (latest.epoch, latest.offset)


def test_a_redefined_board_sends_the_whole_top_to_every_viewer() -> None:
    """Viewers in cohorts and viewers alone receive the whole top, even if they had a position before."""
    variant = variant_of(5)
    alone = PullViewer(cast("Any", None), variant, ViewerPosition("one", 1))
    variant.loose.add(alone)
    variant.cohorts.append(Cohort(ViewerPosition("one", 1)))
    variant.advance(page(1, a=1))
    variant.forget()
    assert variant.is_empty
    for position in variant.positions:
        assert (position.epoch, position.offset, position.returns) == (None, -1, False)
        assert variant.next_frame(position) is None
    variant.advance(page(1, a=1))
    assert [types(variant.next_frame(position)) for position in variant.positions] == [["sync"]] * 2


def test_viewers_with_the_same_wish_share_a_variant() -> None:
    """Each variant has its own due time.

    When the interval of the board changes, the intervals of its variants change in proportion.
    """
    variants = Variants(BOARD, 0.25, BoardStatus())
    slow, quick = Subscription(size=5, interval=900), Subscription(size=5)
    one, other = variants.find_or_add(slow), variants.find_or_add(quick)
    assert variants.find_or_add(slow) is variants.find(slow) is one is not other
    assert (one.interval, other.interval, variants.totals_interval, one.viewers) == (1000, 250, 2500, 0)
    assert (variants.are_settled, variants.next_due) == (True, None)
    one.due, other.due = 701, 700
    assert (variants.are_settled, variants.next_due) == (False, 700)
    assert (variants.take_due(699), variants.take_due(700), variants.take_due(700)) == ([], [other], [])
    assert ([each.due for each in (one, other)], variants.next_due) == ([701, None], 701)
    variants.history.add(page(1))
    one.advance(page(1))
    variants.renew(changed(BOARD, conflation_interval="100ms"))
    assert (variants.interval, one.interval, other.interval, one.is_empty) == (100, 400, 100, True)
    assert (variants.history.find("one", 1, 0), variants.find(Subscription(size=5, interval=400))) == (None, one)
    variants.remove(one)
    assert list(variants) == [other]


def test_a_new_period_begins_with_the_whole_top() -> None:
    """A sync says when the period begins and ends, also to a viewer that reconnects. An update does not."""
    history, window, position = PageHistory(50), Periods(unit="week", day_start="09:00"), ViewerPosition()
    variant, found = Variant(variants_of(history, board=changed(BOARD, window=window)), 5, 100), []
    for offset, name in enumerate(("2026-W46", "2026-W46", "2026-W47"), 1):
        start = window.calendar.parse(name).start
        shown = replace(page(offset, a=1, b=2, c=3, d=4, e=10 * offset), slot=start, period=name)
        variant.advance(shown)
        history.add(shown)
        found.append(variant.next_frame(position))
    found.append(variant.next_frame(ViewerPosition("one", 2)))
    assert types(*found) == ["sync", "update", "sync", "sync"]
    begins = [msgspec.json.decode(frame.payload).get("period_start") for frame in found if frame is not None]
    assert begins == ["2026-11-09T09:00:00Z", None, "2026-11-16T09:00:00Z", "2026-11-16T09:00:00Z"]
