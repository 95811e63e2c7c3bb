"""A batch of a board with an event clock is divided at any time: each part is what its events alone would be."""

import random
from pathlib import Path

import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.event import Entry, Extra, make_entry
from live.journal.log.reader import contents_at
from live.journal.log.timelines import open_timelines
from live.journal.state.division import UndatedError, divide, first_time
from live.journal.state.ranking import ranked_at
from live.store.board.write.correction import Correction, correct
from tests.harness.journaled import Journaled, journaled

BEGIN = 1_700_000_000_000
CHOICES = {
    "sums": 'window = "forever"\nties = "first"',
    "days": 'window = { rolling = "3d", slot = "1d" }\nties = "last"',
    "sliding": 'window = { sliding = "2d" }\nties = "first"',
    "last": 'window = "forever"\noperator = "set"\nties = "first"',
    "best": 'window = "forever"\noperator = "best"\nties = "first"',
    "least": 'window = "forever"\noperator = "best"\nsort_order = "asc"\nties = "key"',
}
Told = list[tuple[str, int, bytes | None]]


async def told(board: Journaled, entries: list[Entry], times: list[int]) -> list[Told]:
    """Count entries in one batch. Return the rows of the board in SQL at some times, with metadata."""
    await board.ledger.writer.add(entries)
    return await told_again(board, times)


async def told_again(board: Journaled, times: list[int]) -> list[Told]:
    """Return the rows of the board in SQL at some times, with metadata."""
    board.folder.mkdir(exist_ok=True)
    await (await board.drainer()).sweep()

    def read(connection: object) -> list[Told]:
        (timeline,) = open_timelines(connection, board.settings.key_prefix)  # type: ignore[arg-type]
        rows = []
        for at, data in contents_at(connection, board.settings.key_prefix, timeline, times, "event"):  # type: ignore[arg-type]
            found = ranked_at(board.board, data, at)
            texts = data.rankings[""].metadata if "" in data.rankings else {}
            rows.append([(member, found.scores[member], texts.get(member)) for member in found.members])
        return rows

    return await board.databases[0].run(read)


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES.keys())
async def test_a_batch_is_divided_at_any_time(
    valkey_url: str, tmp_path: Path, chance: random.Random, choices: str
) -> None:
    """The events need not be in the order of their times. All times are read in one pass."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nclock = "event"\n{choices}')
    hour = 3_600_000
    moments = [BEGIN + 8 * hour * number + chance.randrange(-9, 9) * hour // 9 for number in range(8)]
    entries = [make_entry(chance.choice("abc"), chance.randrange(1, 4), at) for at in moments for _ in range(3)]
    times = [BEGIN - 9 * hour, *sorted(chance.sample(moments, 4)), moments[3] + 1, max(moments) + 1]
    times.sort()
    async with journaled(valkey_url, tmp_path / "all", board) as made:
        found = await told(made, entries, times)
    for number, (at, rows) in enumerate(zip(times, found, strict=True)):
        async with journaled(valkey_url, tmp_path / str(number), board) as made:
            earlier = [entry for entry in entries if (entry[2] or 0) < at]
            assert (earlier and (await told(made, earlier, [max(times)]))[0]) == rows, at


async def test_metadata_stays_with_its_event(valkey_url: str, tmp_path: Path) -> None:
    """Metadata of an event that a later event of the batch has replaced is not known."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nclock = "event"\n{CHOICES["best"]}')
    entries = [
        make_entry(key, amount, BEGIN + at, None, Extra(metadata=text))
        for key, amount, at, text in (("a", 2, 0, b'{"n":1}'), ("b", 1, 0, b'{"n":2}'), ("b", 3, 9, b'{"n":3}'))
    ]
    async with journaled(valkey_url, tmp_path, board) as made:
        found = await told(made, entries, [BEGIN + 1, BEGIN + 10])
    assert found == [
        [("a", 2, b'{"n":1}'), ("b", 1, None)],
        [("b", 3, b'{"n":3}'), ("a", 2, b'{"n":1}')],
    ]


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES.keys())
async def test_a_batch_of_corrections_is_divided(valkey_url: str, tmp_path: Path, choices: str) -> None:
    """A correction without a time has the time of the board's clock. An import has both kinds in one batch."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nclock = "event"\n{choices}')
    async with journaled(valkey_url, tmp_path, board) as made:
        await made.ledger.writer.add([make_entry(member, 8, BEGIN) for member in "abc"])
        given = [
            Correction(member=member, reason="a mistake", score=score, time=time)
            for member, score, time in (("a", 7, None), ("b", 6, BEGIN + 50), ("c", 5, BEGIN + 99))
        ]
        assert not [one for one in await correct(made.ledger.writer, given) if isinstance(one, str)]
        found = await told_again(made, [BEGIN + number for number in (1, 50, 51, 99, 100)])
        scores = [{member: score for member, score, _ in rows} for rows in found]
        first, second = {"a": 7, "b": 8, "c": 8}, {"a": 7, "b": 6, "c": 8}
        assert scores == [first, first, second, second, {"a": 7, "b": 6, "c": 5}]
        assert [(member, score) for member, score, _ in found[-1]] == await made.rows()


def test_a_batch_without_times_is_refused() -> None:
    """Nobody gets the table of another time."""
    group = {"start": 0, "suffix": "", "members": ["a"], "amounts": [1]}
    batch = {"rules": {"operation": "incr", "order": "backward"}, "span": 60, "reached": 0, "groups": [group]}
    body = msgspec.msgpack.encode(batch)
    assert first_time(body) is None
    with pytest.raises(UndatedError, match="does not say when the events"):
        divide(body, 5)
