"""Sample boards and events, so that new users see live boards of several kinds, some of them with a history."""

import asyncio
import math
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import structlog
from msgspec import UNSET

from live.boards.admin import BoardAdmin
from live.boards.registry import BoardRegistry
from live.domain.board import DEFAULT_BOARD
from live.domain.event import Entry, IncomingEvent, make_entry
from live.domain.producer import Principal
from live.domain.reader import SERVER
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.intake import Intake
from live.store.registry.processes import ProcessLease

log = structlog.get_logger()

POSTS: Final = (
    "A lighthouse in the fog", "Bread without kneading", "Twelve birds of the marsh", "The last steam ferry",
    "How to fold a crane", "Night train to Lisbon", "A garden on a balcony", "Three chords, forty songs",
    "The map of all wells", "Winter swimming, day one", "An owl in the attic", "Repairing a 1962 radio",
    "Ink from oak galls", "The quietest street in town", "A bridge made of rope", "Clouds, named and drawn",
    "Soup for twenty", "The chess club at midnight", "Seven ways to tie a boat", "A letter found in a book",
    "Northern lights, no filter", "The baker's day off", "Stones that ring", "A kite for strong wind",
    "Walking the old border", "Jam from green tomatoes", "The clockmaker's window", "A fox on the tram",
    "Small waves, big board", "Twenty years of one tree",
)  # fmt: skip

PHOTOS: Final = (
    "Fog over the harbour", "Two herons", "The red staircase", "Rain on a tent", "Market at five", "Snow on palms",
    "A door in Porto", "The long shadow", "Ferris wheel, off season", "Ice like glass",
)  # fmt: skip
SONGS: Final = ("Paper Boats", "Night Bus", "Salt and Iron", "Hello, Hollow", "Ten Lanterns", "The Slow Dance")
CLIMBERS: Final = (
    "Ada", "Grace", "Edsger", "Karen", "Tim", "Margaret", "Alan", "Radia", "Ken", "Barbara", "Hedy", "Linus",
)  # fmt: skip
BOARDS: Final[dict[str, dict[str, Any]]] = {
    "photos": {"title": "Photos of the day", "types": ["photo"]},
    "everything": {"title": "Posts and photos", "union": ["posts", "photos"]},
    "climbs": {
        "title": "Highest climbs", "types": ["climb"], "operator": "best", "window": "forever",
        "score": [{"field": "metres", "max": 9000}, {"field": "minutes", "order": "asc", "max": 600}],
    },
}  # fmt: skip
CONTEST: Final = "song"

_PAUSE: Final = 0.15  # seconds between two rounds
_NO_BOARD: Final = 10.0  # seconds between two looks for a board
_WAIT: Final = 1.0  # seconds between two checks whether another process still sends sample events
_RECONSIDER: Final = 40  # rounds after which another member becomes a favourite
_BURST: Final = 30  # rounds that a burst lasts, about five seconds
_BURSTS: Final = 0.004  # probability that a burst begins in a round
_LEAST: Final = 0.3  # the least weight of a member, so that each place of the board changes every few seconds
_UNLIKE: Final = 0.06  # probability that a recent like is taken back
_CLIMB: Final = 0.1  # probability that somebody climbs in a round
_HOURS: Final = 24  # hours before now for which an empty board gets likes
_LIKES: Final = 60  # likes of a post in an hour, on average
_VOTING: Final = timedelta(minutes=5)
_RESULT: Final = timedelta(minutes=1)  # how long the result of a contest stays
_FAULTS: Final = (StoreUnavailableError, EpochLostError, ProblemError)
# The producer has an id because producers without an id can't feed private boards.
_PRODUCER: Final = Principal(":demo", None, frozenset({"post"}), 0, 1, "demo")


class Crowd:
    """Chooses members at random. Their popularity changes, with bursts of likes, so that they overtake each other."""

    def __init__(self, members: Sequence[str], chance: random.Random) -> None:
        self._members = members
        self._chance = chance
        self._weights = [_LEAST + 1 / rank for rank in range(1, len(members) + 1)]
        chance.shuffle(self._weights)
        self._round = 0
        self._burst: tuple[str, int] = ("", 0)

    def choose(self, least: int, most: int) -> list[str]:
        """Choose the members that receive likes in the next round."""
        chance, (member, left) = self._chance, self._burst
        self._round += 1
        if self._round % _RECONSIDER == 0:
            self._weights[chance.randrange(len(self._weights))] = 2.0
            self._weights = [weight * 0.8 + 0.2 * _LEAST for weight in self._weights]
        if left == 0 and chance.random() < _BURSTS:
            member, left = chance.choice(self._members), _BURST
        self._burst = (member, max(0, left - 1))
        chosen = chance.choices(self._members, self._weights, k=chance.randint(least, most))
        return [*chosen, *([member] * chance.randint(2, 6) if left else [])]


class Demo:
    """Sends sample events while this process holds the lease. The server counts them like all other events."""

    def __init__(self, intake: Intake, registry: BoardRegistry, board_admin: BoardAdmin, lease: ProcessLease) -> None:
        self._intake = intake
        self._registry = registry
        self._admin = board_admin
        self._lease = lease
        self._chance = random.Random()  # noqa: S311 - sample data, not a secret
        self._likes, self._photos, self._songs = (Crowd(names, self._chance) for names in (POSTS, PHOTOS, SONGS))
        self._last: str | None = None
        self._climbs: dict[str, int] = {}
        self._closes: datetime | None = None
        self._until: datetime | None = None

    async def run(self, *, is_alone: bool) -> None:
        """Send about twenty likes per second to the default board, or else to the first board that takes them.

        If there is no boards file, `is_alone`, make boards of other kinds, and send events to them too.

        An empty board first gets the likes of a day.
        """
        has_boards = False
        while (board := self._board()) is None:
            log.warning("the demo needs a board with the server's clock, and there is none")
            await asyncio.sleep(_NO_BOARD)
        while True:
            is_held = False
            with suppress(StoreUnavailableError):
                is_held = await self._lease.take()
            if not is_held:
                has_boards = False
                await asyncio.sleep(_WAIT)
                continue
            with suppress(*_FAULTS):
                if not has_boards:
                    if is_alone:
                        await self._make_boards()
                    await self._begin(board)
                    has_boards = True
                if is_alone:
                    await self._hold_contest()
            events = [*self._likes_for(board), *(self._others() if is_alone and has_boards else ())]
            await asyncio.gather(*(self._send(event) for event in events))
            await asyncio.sleep(_PAUSE)

    def _board(self) -> str | None:
        by_id = self._registry.boards.by_id
        fit = [name for name, board in by_id.items() if board.clock == "server" and not board.union]
        return DEFAULT_BOARD.id if DEFAULT_BOARD.id in fit else next(iter(fit), None)

    async def _make_boards(self) -> None:
        for board, choices in BOARDS.items():
            try:
                await self._admin.put(board, choices, "demo")
            except ProblemError as error:  # for example, somebody has made another board with this id
                log.warning("the demo goes on without a board", board=board, reason=error.detail)
        await self._registry.refresh(has_changed=True)

    async def _begin(self, board: str) -> None:
        """Give empty boards, and their unions, the likes of a day.

        These likes have identities, so they count once even if several processes send them. If they can't be sent, the
        boards fill with the likes that follow.
        """
        now = time.time()
        for own, members in ((board, POSTS), ("photos", PHOTOS)):
            ledger = self._registry.ledgers.find(own, SERVER)
            if ledger is None or (await ledger.reader.read(1)).rank_count:
                continue
            history = make_history(now, members)
            for name, committer in self._registry.committers.items():
                if name == own or own in committer.state.board.union:
                    await committer.commit(history)

    async def _hold_contest(self) -> None:
        """Begin a contest, unless the last contest is open or its result is still shown."""
        now = datetime.now(UTC)
        if self._until is not None and now < self._until:
            return
        with suppress(ProblemError):  # the contest may not exist yet
            await self._admin.delete(CONTEST, "demo")
        self._closes, self._until = now + _VOTING, now + _VOTING + _RESULT
        votes = {"closes": self._closes.isoformat()}
        choices = {"title": "Song of the evening", "types": ["vote"], "window": "forever", "votes": votes}
        await self._admin.put(CONTEST, choices, "demo")
        await self._registry.refresh(has_changed=True)

    def _likes_for(self, board: str) -> list[IncomingEvent]:
        """Make likes for a board. Sometimes take a recent like back.

        Likes for the default board do not name it, because an event with a `board` would not feed the unions.
        """
        to = UNSET if board == DEFAULT_BOARD.id else board
        events = [IncomingEvent(member=member, board=to) for member in self._likes.choose(2, 5)]
        if self._last is not None and self._chance.random() < _UNLIKE:
            events.append(IncomingEvent(member=self._last, amount=-1, board=to))
        self._last = events[0].member
        return events

    def _others(self) -> list[IncomingEvent]:
        chance = self._chance
        events = [IncomingEvent(member=member, type="photo") for member in self._photos.choose(0, 2)]
        if self._closes is not None and datetime.now(UTC) < self._closes:
            songs = self._songs.choose(0, 3)
            events += [
                IncomingEvent(member=member, type="vote", actor=f"guest {chance.getrandbits(40)}") for member in songs
            ]
        if chance.random() < _CLIMB:
            climber = chance.choice(CLIMBERS)
            # Most climbs are lower than the climber's highest climb so far, and some are a little higher.
            best = self._climbs.get(climber, chance.randrange(1200, 4000))
            metres = min(8848, best + round(chance.gauss(-150, 160)))
            self._climbs[climber] = max(best, metres)
            events.append(
                IncomingEvent(
                    member=climber, type="climb", fields={"metres": metres, "minutes": chance.randrange(90, 600)}
                )
            )
        return events

    async def _send(self, event: IncomingEvent) -> None:
        with suppress(*_FAULTS):
            await self._intake.count(_PRODUCER, event)


def make_history(now: float, members: Sequence[str] = POSTS) -> list[Entry]:
    """Make entries with likes for each member and hour of a day, by its own popularity and its own busiest time."""
    entries = []
    for post in members:
        chance = random.Random(post)  # noqa: S311 - the same in every process
        popularity, best = chance.uniform(0.9, 1.1), chance.uniform(0, 24)
        for hours in range(1, _HOURS + 1):
            at = math.floor(now / 3600) - hours
            wave = 1 + 0.8 * math.cos((at % 24 - best) / 24 * math.tau)
            identity = blake2b(f"demo {post} {at}".encode(), digest_size=16).digest()
            noise = random.Random(f"{post} {at}").uniform(0.7, 1.3)  # noqa: S311
            amount = max(1, round(_LIKES * popularity * wave * noise))
            entries.append(make_entry(post, amount, at * 3_600_000 + 1_800_000, identity))
    return entries
