"""The replays of a process: one for each board and delay, and one for each viewer of the past."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from live.errors import ProblemError
from live.fanout.channel import Channel
from live.fanout.playback import Pace, Playback, wall_clock
from live.fanout.played import Players
from live.fanout.subscription import Replay, Subscription, default_size
from live.settings import Settings

_RETRY: Final = 5  # seconds


class Replays:
    """Finds the replay that a viewer asks for. Viewers of one board with the same delay share one."""

    def __init__(self, players: Players | None, settings: Settings, go_live: Callable[[Playback], None]) -> None:
        """Play with `players`, None without a journal. `go_live` moves the viewers of a board's replay to live."""
        self._players = players
        self._settings = settings
        self._go_live = go_live
        self._delayed: dict[tuple[str, int], Playback] = {}
        self._all: set[Playback] = set()
        self._addresses: Counter[str] = Counter()

    def end(self, code: int, board: str | None = None) -> None:
        """End the replays of a board, or all of them."""
        for playback in list(self._all):
            if board in (None, playback.present.reader.state.board.id):
                playback.end(code)

    def require_room(self, channel: Channel, subscription: Subscription, address: str) -> None:
        """Check that a viewer can have the replay that it asks for.

        Raises:
            ProblemError: `past_unavailable`, `parameter_invalid` or `too_many_viewers`.
        """
        board, replay = channel.reader.state.board, subscription.replay
        if replay is None:
            return
        if board.journal.level == "off" or self._players is None:
            raise ProblemError("past_unavailable", f"board {board.id} has no journal")
        age = replay.delay if replay.at is None else time.time() - replay.at / 1000
        if age < 0:
            raise ProblemError("parameter_invalid", "`at` is in the future")
        kept = board.journal.events or self._settings.journal_events
        if age > kept:
            raise ProblemError("past_unavailable", f"the journal has the events of board {board.id} for {kept} seconds")
        if (board.id, replay.delay) in self._delayed:
            return
        for replays, setting, what in (
            (len(self._all), "max_replays", "run"),
            (self._addresses[address] if address else 0, "max_address_replays", "run for your address"),
        ):
            most = getattr(self._settings, setting)
            if replays >= most:
                detail = f"{replays} replays {what}; the setting {setting} allows {most}"
                raise ProblemError("too_many_viewers", detail, retry_after=_RETRY)

    def find(self, channel: Channel, replay: Replay, address: str) -> Playback:
        """The replay of a viewer for which there is room. It is started if necessary."""
        now = round(wall_clock())
        if replay.at is not None:
            return self._add(channel, Pace(replay.at, now, replay.speed), address)
        name = channel.reader.state.board.id, replay.delay
        if name not in self._delayed:
            self._delayed[name] = self._add(channel, Pace(now - replay.delay * 1000, now), address, replay.delay)
        return self._delayed[name]

    def _add(self, channel: Channel, pace: Pace, address: str, delay: int = 0) -> Playback:
        assert self._players is not None, "there is no room without"  # noqa: S101
        go_live = None if delay else self._go_live
        playback = Playback(channel, pace, self._players, address, default_size(self._settings), go_live)

        def forget() -> None:
            self._all.discard(playback)
            self._delayed.pop((channel.reader.state.board.id, delay), None)
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

        playback.on_empty = forget
        self._all.add(playback)
        self._addresses[address] += 1
        return playback
