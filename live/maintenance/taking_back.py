"""Takes contributions back from a board, by batches that are numbered, journaled and announced like any other."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from live.domain.board import Board
from live.domain.window import EVER, Sliding
from live.errors import SetupError, StoreUnavailableError
from live.maintenance.contributions import VOIDER, Contribution, Vote
from live.store.board.write.plan import Group, Plan, begin_plan
from live.store.board.write.writer import BoardWriter

_MOST_CONTRIBUTIONS: Final = 256  # in one batch
_MOST_AMOUNTS: Final = 2000
_ATTEMPTS: Final = 20  # each one means that somebody changed the same votes meanwhile


class Taken(msgspec.Struct):
    """What was taken back: batches of contributions, changes of members' scores, the sum of amounts, and votes."""

    contributions: int = 0
    changes: int = 0
    amount: int = 0
    votes: int = 0


class TakingBack:
    """Takes contributions back from one board."""

    def __init__(self, writer: BoardWriter) -> None:
        self._writer = writer
        self._state = writer.state

    async def take_back(
        self, contributions: Sequence[Contribution], show: Callable[[int, int], None], *, dry: bool
    ) -> Taken:
        """Take back what still counts of contributions. Each one is taken back once, whoever else does so.

        The newest ones go first, so that votes which were cast and withdrawn never count below zero. With `dry`,
        nothing changes.

        Raises:
            SetupError: the board is frozen, or refuses for another reason.
            StoreUnavailableError, EpochLostError: as `BoardWriter.add`. The same call continues from there.
        """
        taken, done = Taken(), 0
        for piece in _pieces(contributions):
            batch = _Batch(piece)
            await (self._count(batch) if dry else self._apply(batch))
            taken.contributions += len(batch.left)
            taken.changes += batch.size[0]
            taken.amount += batch.size[1]
            taken.votes += batch.size[2]
            done += len(piece)
            show(done, len(contributions))
        return taken

    async def _count(self, batch: "_Batch") -> None:
        """Only count what a batch would take back."""
        await self._read_votes(batch)
        batch.fill(self._state.board, begin_plan(self._state.board, self._state.clock))

    async def _apply(self, batch: "_Batch") -> None:
        for _ in range(_ATTEMPTS):
            await self._read_votes(batch)
            reply = await self._writer.put(batch.fill)
            match reply:
                case [b"ok" | b"nothing", *_]:
                    return
                case [b"seen", *numbers]:
                    batch.left = [one for i, one in enumerate(batch.left, 1) if i not in numbers]
                case [b"votes", *words]:
                    batch.refuse([int(number) for number in words[::2]])
                case _:
                    raise SetupError(_reason(reply))
        raise StoreUnavailableError(f"board {self._state.board.id}: the votes changed {_ATTEMPTS} times in a row")

    async def _read_votes(self, batch: "_Batch") -> None:
        """Read how many votes each pair of an actor and a member has now: no more can be taken back."""
        for start, votes in batch.pairs().items():
            key = self._state.table(start).votes
            counts = await self._state.call("HMGET", key, *votes)
            batch.held |= {(start, pair): int(count or 0) for pair, count in zip(votes, counts, strict=True)}


class _Batch:
    """Contributions that are taken back at one instant.

    Attributes:
        left: the contributions that nobody has taken back.
        held: for a slot and the digest of an actor and a member, how many votes there are.
        size: changes of members' scores, sum of amounts, and votes that the last plan takes back.
    """

    def __init__(self, contributions: Sequence[Contribution]) -> None:
        self.left = list(contributions)
        self.held: dict[tuple[int, bytes], int] = {}
        self.size = (0, 0, 0)
        self._refused: set[tuple[int, bytes]] = set()  # votes that the board refuses to give back
        self._planned: list[tuple[int, bytes]] = []  # the votes of the last plan, in order

    def pairs(self) -> dict[int, list[bytes]]:
        """For each slot the digests of an actor and a member."""
        found: dict[int, dict[bytes, None]] = {}
        for one in self.left:
            for vote in one.votes:
                found.setdefault(vote.start, {})[vote.pair] = None
        return {start: list(pairs) for start, pairs in found.items()}

    def refuse(self, numbers: Sequence[int]) -> None:
        """Leave out votes of the last plan, counted from 1, unless they have changed since they were read."""
        self._refused |= {self._planned[number - 1] for number in numbers if self._is_given(number)}

    def _is_given(self, number: int) -> bool:
        """Whether a vote of the last plan would come back, because its withdrawal is taken back."""
        start, pair = self._planned[number - 1]
        return self._net()[start, pair][1] < 0

    def fill(self, board: Board, plan: Plan) -> None:
        """Plan to take back what still counts by the board's clock."""
        plan.identities = {one.identity: number for number, one in enumerate(self.left)}
        plan.producers = [VOIDER]
        groups: dict[int, Group] = {}
        if isinstance(board.window, Sliding):
            least = plan.now - board.window.length * 1000
            events = [event for one in self.left for event in one.events if event[0] > least]
            if events:
                plan.hold_till(min(event[0] for event in events) + board.window.length * 1000)
            plan.events = [(time, -amount, member) for time, member, amount in events]
            for _, member, amount in events:
                _subtract(groups, EVER.start, member, amount)
        elif plan.current is not None:
            oldest = board.window.oldest(plan.current)
            for start, member, amount in (amount for one in self.left for amount in one.amounts):
                if start >= oldest:
                    _subtract(groups, start, member, amount)
            self._fill_votes(groups, oldest)
        plan.slots = {start: group for start, group in groups.items() if _is_change(board, group)}
        if board.ties != "key":
            for group in plan.slots.values():
                numbered = enumerate(group.amounts.items(), 1)  # no two members have the same tag
                group.orders = {member: -number if amount else 0 for number, (member, amount) in numbered}
        self._planned = [(start, pair) for start, group in plan.slots.items() for _, pair, _ in group.votes]
        amounts = [amount for group in plan.slots.values() for amount in group.amounts.values()]
        votes = sum(-change for group in plan.slots.values() for _, _, change in group.votes)
        self.size = (sum(1 for amount in amounts if amount), -sum(amounts), votes)

    def _net(self) -> dict[tuple[int, bytes], tuple[Vote, int]]:
        """For each slot and each pair of an actor and a member a vote, and how many votes there were in all."""
        found: dict[tuple[int, bytes], tuple[Vote, int]] = {}
        for vote in (vote for one in self.left for vote in one.votes):
            _, net = found.get((vote.start, vote.pair), (vote, 0))
            found[vote.start, vote.pair] = (vote, net + vote.change)
        return found

    def _fill_votes(self, groups: dict[int, Group], oldest: int) -> None:
        for place, (vote, net) in self._net().items():
            change = -min(net, self.held.get(place, 0))
            if change and vote.start >= oldest and place not in self._refused:
                _subtract(groups, vote.start, vote.member, -change)
                groups[vote.start].votes.append((vote.actor, vote.pair, change))
                groups[vote.start].voted.append((vote.member, 0))


def _subtract(groups: dict[int, Group], start: int, member: str, amount: int) -> None:
    amounts = groups.setdefault(start, Group({}, {}, {}, [], [], {})).amounts
    amounts[member] = amounts.get(member, 0) - amount


def _is_change(board: Board, group: Group) -> bool:
    """Whether a group changes anything. Members whose amounts cancel out are taken from it."""
    if not group.votes and not isinstance(board.window, Sliding):
        group.amounts = {member: amount for member, amount in group.amounts.items() if amount}
    return bool(group.amounts)


def _pieces(contributions: Sequence[Contribution]) -> Iterator[list[Contribution]]:
    """Contributions for one batch each, the newest first."""
    piece: list[Contribution] = []
    size = 0
    for one in reversed(contributions):
        more = len(one.amounts) + len(one.votes) + len(one.events)
        if piece and (one.alone or len(piece) == _MOST_CONTRIBUTIONS or size + more > _MOST_AMOUNTS):
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += more
    if piece:
        yield piece


def _reason(reply: Sequence[Any]) -> str:
    match reply:
        case [b"frozen"]:
            return "it is frozen. Unfreeze it first"
        case [b"crowded", *_]:
            return "it is full. Raise its `max_members`"
        case [b"unregistered", member, *_]:
            return f"member {member.decode()!r} is not registered any more"
        case [b"range", _, member, *_]:
            return f"the score of {member.decode()!r} would leave its range"
    return repr(reply)
