"""What the journal keeps of boards with a like button: identities of likes, as long as they count."""

from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.window import WindowChoice
from live.journal.state.snapshot import Snapshot
from live.journal.upkeep.checkpoints import prune
from live.maintenance.recover import kept_of

DAY = 86_400


def test_identities_are_kept_for_the_window() -> None:
    """Checkpoints and recovered boards have all identities of the window, although `dedupe_window` is only a day."""
    window = WindowChoice(rolling="7d", slot="1h")
    liked = make_board(Choices(id="posts", like_button=True, window_choice=window))
    plain = make_board(Choices(id="posts", window_choice=window))
    seen = {day * DAY: {bytes(16)} for day in range(30)}
    kept = DAY * (liked.buckets(DAY, DAY) + 2)
    data = Snapshot(shape=liked.shape.encode(), span=DAY, seen=seen, kept=kept, time=30 * DAY * 1_000_000)
    data.slots, data.newest = {day * DAY: {"a": 1} for day in (0, 1, 2, 8)}, 8 * DAY
    prune(data)
    assert [*data.slots] == [DAY, 2 * DAY, 8 * DAY]
    assert min(data.seen) <= 29 * DAY - liked.remembers < 29 * DAY
    assert len(data.seen) < len(seen)
    assert kept_of(plain, data, DAY) < liked.remembers <= kept_of(liked, data, DAY)
