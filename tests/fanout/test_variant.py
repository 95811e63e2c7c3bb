"""A variant: which frame takes which viewer to where the board stands."""

from hypothesis import given
from hypothesis import strategies as st

from live.domain.ranking import Page, Record
from live.fanout.frames import Frame
from live.fanout.history import History
from live.fanout.position import Position
from live.fanout.variant import Variant
from tests.harness.viewer import ModelViewer


def page(offset: int, epoch: str = "one", **scores: int) -> Page:
    """A board at an offset."""
    rows = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    records = tuple(Record(key, score, rank) for rank, (key, score) in enumerate(rows, 1))
    return Page(
        epoch=epoch, offset=offset, rank_count=len(rows), total_score=sum(scores.values()), start=0, records=records
    )


def variant_of(size: int) -> Variant:
    """A variant of a board without a history."""
    return Variant("posts", size, 100, History(0))


def types(*frames: Frame | None) -> list[str | None]:
    """What kind of frames they are."""
    return [None if frame is None else frame.type for frame in frames]


def test_before_the_first_page_there_is_nothing_to_send() -> None:
    """A viewer that comes first waits."""
    position = Position()
    assert variant_of(5).next_frame(position) is None
    assert position.offset == -1


def test_a_viewer_gets_a_sync_and_then_updates() -> None:
    """And nothing while the board stands still."""
    variant, position = variant_of(5), Position()
    variant.advance(page(1, a=1))
    assert types(variant.next_frame(position), variant.next_frame(position)) == ["sync", None]
    variant.advance(page(2, a=2))
    assert types(variant.next_frame(position), variant.next_frame(position)) == ["update", None]
    assert (position.epoch, position.offset) == ("one", 2)


def test_all_viewers_share_a_frame() -> None:
    """Each message is encoded once, however many get it."""
    variant = variant_of(5)
    positions = [Position() for _ in range(3)]
    variant.advance(page(1, a=1))
    syncs = [variant.next_frame(position) for position in positions]
    variant.advance(page(2, a=2))
    updates = [variant.next_frame(position) for position in positions]
    assert all(frame is syncs[0] for frame in syncs)
    assert all(frame is updates[0] for frame in updates)
    assert types(syncs[0], updates[0]) == ["sync", "update"]


def test_a_viewer_that_was_slow_skips_to_the_latest() -> None:
    """One page behind gets the update, two pages behind the whole top: there is no backlog."""
    variant, quick, slow = variant_of(5), Position(), Position()
    variant.advance(page(1, a=1))
    variant.next_frame(quick), variant.next_frame(slow)
    variant.advance(page(2, a=2))
    variant.next_frame(quick)
    variant.advance(page(5, a=3))
    assert types(variant.next_frame(quick), variant.next_frame(slow)) == ["update", "sync"]
    assert quick.offset == slow.offset == 5


def test_a_new_viewer_gets_a_sync_beside_updates() -> None:
    """Who comes when the variant has long been running starts with the whole top."""
    variant, old = variant_of(5), Position()
    variant.advance(page(1, a=1))
    variant.next_frame(old)
    variant.advance(page(2, a=2))
    assert types(variant.next_frame(Position()), variant.next_frame(old)) == ["sync", "update"]


def test_a_page_that_is_not_newer_changes_nothing() -> None:
    """Two reads may overtake each other on their way."""
    variant, position = variant_of(5), Position()
    variant.advance(page(3, a=3))
    variant.next_frame(position)
    for late in (page(3, a=3), page(2, a=2)):
        variant.advance(late)
        assert variant.next_frame(position) is None
    variant.advance(page(4, a=4))
    assert types(variant.next_frame(position)) == ["update"]


def test_another_epoch_begins_with_a_sync() -> None:
    """Offsets of different epochs say nothing to each other, even where they are equal or lower."""
    for offset in (1, 2, 3):
        variant, position = variant_of(5), Position()
        variant.advance(page(2, "one", a=2))
        variant.next_frame(position)
        variant.advance(page(offset, "two", b=1))
        assert types(variant.next_frame(position), variant.next_frame(position)) == ["sync", None]
        assert (position.epoch, position.offset) == ("two", offset)


def test_a_page_is_for_those_who_stand_elsewhere() -> None:
    """Cut to the size; nothing for who has it, and for who may have seen more than we have read."""
    variant = variant_of(2)
    assert variant.page_elsewhere(Position()) is None
    variant.advance(page(3, a=3, b=2, c=1), read=5)
    for elsewhere in (Position(), Position("one", 2, 5), Position("two", 3, 5), Position("one", 4, 4)):
        found = variant.page_elsewhere(elsewhere)
        assert found is not None
        assert [record.key for record in found.records] == ["a", "b"]
    assert variant.page_elsewhere(Position("one", 3, 4)) is None
    ahead = Position("one", 4, 5)
    assert variant.page_elsewhere(ahead) is None
    variant.advance(page(3, a=3), read=6)  # begun after it came, and still not there: it never was
    assert variant.page_elsewhere(ahead) is not None


steps = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4)),  # the board changes
        st.integers(0, 3),  # a viewer asks
        st.just("restart"),  # the board begins another life
    ),
    max_size=40,
)


@given(steps, st.integers(1, 4))
def test_whoever_asks_whenever_holds_the_top(schedule: list[dict[str, int] | int | str], size: int) -> None:
    """Viewers that come and ask at any times, on a board that changes at any times, hold the latest top when asked."""
    variant = variant_of(size)
    positions, models = [Position() for _ in range(4)], [ModelViewer() for _ in range(4)]
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
                models[step].receive(frame.text)
            if latest is not None:
                assert models[step].records == list(latest.records[:size])
                assert (models[step].epoch, models[step].offset) == (latest.epoch, latest.offset)
