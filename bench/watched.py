"""The board under test with viewers: a server with its own core, a steady stream of likes, and viewers."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import Final

import msgspec
from websockets.sync.client import connect

from bench.board import PLAIN, Board
from bench.posting import Posting, Sender, posting_to
from bench.processes import BenchError
from bench.swarm import pin

EVENTS: Final = "/v1/events"
PATH: Final = "/v1/boards/posts/live?limit=50"
SETTLE: Final = 1.0  # seconds between connecting viewers and counting
_MEMBERS: Final = 50  # viewers watch them all
_LIKES: Final = 3  # in one POST
RATE: Final = 20.0  # POSTs per second: two per frame, so that every tick has a change
_LARGEST: Final = 1 << 20
_SCORE: Final = 1_000  # initial score of each member, so that scores have their usual length


def watched_board(stack: ExitStack, boards: str = PLAIN) -> Board:
    """Start a board whose server has the first core to itself. Store, swarm and sender run on the second."""
    board = Board(stack, boards)
    pin(board.server.pid, 0)
    pin(board.store.pid, 1)
    return board


def long_name(number: int) -> str:
    """Return the name of a member: a URL of 40 to 60 characters that has little in common with others."""
    digest = hashlib.blake2b(str(number).encode(), digest_size=20).hexdigest()
    return f"https://example.org/{digest[: 20 + number % 21]}"


def sync_size(board: Board) -> int:
    """Return the bytes of the whole top, as a new viewer receives it."""
    with connect(f"ws://{board.server.address}{PATH}", compression=None, max_size=_LARGEST) as viewer:
        return len(viewer.recv(decode=False))


def fill_top(board: Board) -> None:
    """Give every member of the top a score."""
    fill(board, [{"key": _name(number), "amount": _SCORE} for number in range(_MEMBERS)])


def fill(board: Board, events: Sequence[dict[str, object]]) -> None:
    """Send one body of events; all must be counted."""
    connection = HTTPConnection(board.server.address, timeout=10)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {board.key}"}
    try:
        connection.request("POST", EVENTS, msgspec.json.encode(events), headers)
        answer = json.load(connection.getresponse())
    finally:
        connection.close()
    if answer.get("accepted") != len(events):
        raise BenchError(f"a body was not counted: {str(answer)[:200]}")


@contextmanager
def liked(board: Board) -> Iterator[Sender]:
    """Send likes to the members of the top, one after another, while in the context."""
    with posted(board, likes_of_top(), RATE) as sender:
        yield sender


def likes_of_top() -> list[bytes]:
    """Return bodies with likes for the members of the top, one after another.

    Each frame then has six changes, in about 400 bytes.
    """
    turns = [range(first, first + _LIKES) for first in range(0, _MEMBERS * _LIKES, _LIKES)]
    return [msgspec.json.encode([{"key": _name(number % _MEMBERS)} for number in turn]) for turn in turns]


@contextmanager
def posted(board: Board, bodies: Sequence[bytes], rate: float) -> Iterator[Sender]:
    """Send bodies in turn while in the context. Every event must be counted."""
    posting = Posting(path=EVENTS, bodies=bodies, rate=rate, key=board.key, expect=b'"rejected":[],')
    with posting_to(board.server, posting) as sender:
        yield sender


def settle() -> None:
    """Wait until the work after connecting is done."""
    time.sleep(SETTLE)


def _name(number: int) -> str:
    return f"post-{number:06d}"
