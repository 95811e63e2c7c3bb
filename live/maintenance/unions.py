"""Compare unions with the weighted sums of their parts, while servers count events on both.

A union and its parts may be on different servers, so an event counts on one of them a moment before the other. Around
the change of a slot, it may even count in different slots. So sums over slots are compared, several times.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from live.boards.definitions import all_boards
from live.domain.board import Board
from live.domain.window import Sliding
from live.errors import SetupError
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.state import BoardState
from live.store.board.write.correction import read_held
from live.store.board.write.merging import read_events
from live.store.connection.client import Store
from live.store.registry.definitions import DefinitionStore

_ATTEMPTS: Final = 100
_EQUAL: Final = 5  # samples with the same difference, after which it is no event on its way
_PAUSE: Final = 0.05
_REPEATS: Final = 20  # times that a difference is looked at again before it counts
_BATCH: Final = 200  # members that are read at once
_TOGETHER: Final = 60_000  # milliseconds within which a union and its parts were made together
_SHOWN: Final = 20  # most members that a report names


class Holdings(msgspec.Struct):
    """What a union and its parts hold of a member, by slot, or by time in a sliding window.

    `weighted` is the sum of the parts' amounts, each multiplied by its weight.
    """

    own: Counter[int]
    parts: list[Counter[int]]
    weighted: Counter[int]

    @property
    def difference(self) -> int:
        """By how much the union has more than its parts."""
        return self.own.total() - self.weighted.total()

    @property
    def is_explained(self) -> bool:
        """Whether the union has the sum of its parts, but for events that count in different slots.

        Such an event changes the sums between two slots, and a real difference changes all sums from its slot back to
        the oldest slot. The union or the parts may have dropped that slot already.
        """
        starts = sorted(self.own.keys() | self.weighted.keys())
        rest, sums = 0, list[int]()
        for start in reversed(starts):
            rest += self.own[start] - self.weighted[start]
            sums.append(rest)
        return not starts or 0 in sums[-2:]


class Union:
    """A union and the boards that it adds up now, each with its weight."""

    def __init__(self, ledger: Ledger, parts: Sequence[tuple[BoardState, int]]) -> None:
        self.ledger = ledger
        self.parts = parts

    @property
    def board(self) -> Board:
        """The choices of the union."""
        return self.ledger.state.board

    async def sample(self, member: str) -> Holdings:
        """Read what the union and its parts hold of a member."""
        (found,) = (await self.samples([member])).values()
        return found

    async def samples(self, members: Sequence[str]) -> dict[str, Holdings]:
        """Read what the union and its parts hold of some members. The parts are read first."""
        parts = [await _amounts(state, members) for state, _ in self.parts]
        own = await _amounts(self.ledger.state, members)
        found = {}
        for member in members:
            held, weighted = [part[member] for part in parts], Counter[int]()
            for amounts, (_, weight) in zip(held, self.parts, strict=True):
                for place, amount in amounts.items():
                    weighted[place] += amount * weight
            found[member] = Holdings(own[member], held, weighted)
        return found

    async def settled(self, member: str) -> Holdings:
        """Read what the union and its parts hold of a member when no event of the member is on its way."""
        last, equal = None, 0
        for _ in range(_ATTEMPTS):
            found, again = await self.sample(member), await self.sample(member)
            if found.parts == again.parts and found.own == again.own:
                equal = equal + 1 if found.difference == last else 1
                last = found.difference
                if not last or equal == _EQUAL:
                    return found
            await asyncio.sleep(_PAUSE)
        raise SetupError(f"events of {member!r} keep coming: stop their producer, and run it again")

    async def members(self) -> set[str]:
        """Return every member that the union or a part holds."""
        found = set[str]()
        for state in (self.ledger.state, *(state for state, _ in self.parts)):
            for start in [int(start) for start in await state.call("ZRANGE", state.keys.slots, 0, -1)]:
                async for fields in state.client.elements("HSCAN", state.keys.slot(start)):
                    found.update(member.decode() for member in fields[::2])
        return found

    async def comparison(self) -> "UnionReport":
        """Compare every member."""
        report = UnionReport(note=await self._incomparable())
        if report.note:
            return report
        suspects = await self._unexplained(sorted(await self.members()))
        for _ in range(_REPEATS):  # leave out the members whose events were on their way
            if suspects:
                await asyncio.sleep(_PAUSE)
                suspects = await self._unexplained(suspects)
        report.wrong = len(suspects)
        for member in suspects[:_SHOWN]:
            sample = await self.sample(member)
            report.examples.append(WrongSum(member, sample.own.total(), sample.weighted.total()))
        return report

    async def _unexplained(self, members: Sequence[str]) -> list[str]:
        size = len(members) if isinstance(self.board.window, Sliding) else _BATCH  # one walk finds all in a log
        wrong: list[str] = []
        for first in range(0, len(members), size or 1):
            found = await self.samples(members[first : first + size])
            wrong += [member for member, sample in found.items() if not sample.is_explained]
        return wrong

    async def _incomparable(self) -> str:
        client = self.ledger.state.client
        if missing := sorted({*self.board.union} - {part.board.id for part, _ in self.parts}):
            return f"it keeps what {missing[0]} counted, which was deleted"
        began, slots = await _began(client, client.keys_of(self.board.id))
        for part, _ in self.parts:
            since, theirs = await _began(client, client.keys_of(part.board.id))
            oldest = min([*slots, *theirs], default=0)
            if began > since + _TOGETHER and oldest * 1000 < began:
                return f"it was made after {part.board.id}, and lacks what that board counted before"
        return ""


class WrongSum(msgspec.Struct, frozen=True):
    """A member of a union: what the union holds, and the weighted sum of what the parts hold."""

    member: str = msgspec.field(name="key")
    union: int
    parts: int


class UnionReport(msgspec.Struct, kw_only=True):
    """How many members have another amount than the parts together, or a note why the union was not compared."""

    wrong: int = 0
    examples: list[WrongSum] = []
    note: str = ""


async def find_unions(client: Store, settings: Settings) -> dict[str, Union]:
    """Return every union of a store, by its id. A part that was deleted, or made again, is left out."""
    boards = await all_boards(client)
    made = (await DefinitionStore(client).load()).boards
    found = {}
    for name, (board, epoch) in boards.items():
        if not board.union:
            continue
        known = made[name].parts if name in made else {}
        parts = [
            (BoardState(client, boards[part][0], settings, born=boards[part][1]), weight)
            for part, weight in board.parts.items()
            if part in boards and known.get(part, boards[part][1]) == boards[part][1]
        ]
        found[name] = Union(Ledger(client, board, settings, born=epoch), parts)
    return found


async def compare_unions(client: Store, settings: Settings, boards: Collection[str]) -> dict[str, UnionReport]:
    """Compare the unions among some boards with their parts."""
    unions = await find_unions(client, settings)
    return {name: await union.comparison() for name, union in unions.items() if name in boards}


async def _amounts(state: BoardState, members: Sequence[str]) -> Mapping[str, Counter[int]]:
    if isinstance(state.board.window, Sliding):
        events = await read_events(state.client, state.keys, members)
        return {member: Counter(amounts) for member, amounts in events.items()}
    held = await read_held(state, members)
    return {
        member: Counter({start: int(value) for start, value in values.items() if value})
        for member, values in held.items()
    }


async def _began(client: Store, keys: Keys) -> tuple[int, Iterable[int]]:
    """Return when a board was made (milliseconds since 1970; 0 for unknown), and the starts of its slots."""
    began = await client.call(keys.meta, "HGET", keys.meta, "began")
    starts = await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1)
    return int(began or 0), [int(start) for start in starts]
