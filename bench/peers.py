"""Against whom a POST of one event is measured: the floor, bare commands, webdis, and a handler of the naive kind."""

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from bench.board import Board
from bench.plans import Calls, Keys, Load, Pairs, Plan, Posts
from bench.processes import Server, idle_server, microseconds, module_server
from bench.webdis import find_webdis, load_script, webdis_server


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Who does the same, or less: every process that is counted, and what is sent for the same keys.

    `share` is the part of the requests that are sent; the slow ones need fewer for a figure that is as good.
    """

    address: str
    counted: dict[str, Server]
    make: Callable[[Keys], Posts | Pairs | Calls]
    expect: str = "{"
    key: str = ""
    share: float = 1

    def measure(self, keys: Keys, load: Load) -> dict[str, float]:
        """Microseconds of CPU for each event, by process."""
        load = msgspec.structs.replace(load, requests=round(load.requests * self.share))
        plan = Plan(address=self.address, content=self.make(keys), load=load, expect=self.expect, key=self.key)
        return microseconds(plan, self.counted)


def start_peers(stack: ExitStack, board: Board) -> dict[str, Peer]:
    """Every peer that is installed; those that count do it on the board's store, on keys of their own.

    The requests to the first two are to the byte those to the board, its key included.
    """
    idle = stack.enter_context(idle_server())
    naive = stack.enter_context(module_server("bench.naive", board.store.address))
    peers = {
        "nothing": Peer(address=idle.address, counted={"server": idle}, make=_posts, key=board.key),
        "naive": Peer(
            address=naive.address, counted={"server": naive, "store": board.store}, make=_posts, key=board.key,
            expect='{"accepted":1,', share=0.25,
        ),
        "bare": Peer(address=board.store.address, counted={"store": board.store}, make=_pairs),
    }  # fmt: skip
    program = find_webdis()
    if program is not None:
        peers["webdis"] = _webdis(stack, board, program)
    return peers


def _webdis(stack: ExitStack, board: Board, program: str) -> Peer:
    script = load_script(board.store)
    server = stack.enter_context(webdis_server(program, board.store))
    return Peer(
        address=server.address, counted={"server": server, "store": board.store},
        make=lambda keys: Calls(keys=keys, script=script),
        expect='{"EVALSHA":"',  # a score; a refusal would be an array
    )  # fmt: skip


def _posts(keys: Keys) -> Posts:
    return Posts(keys=keys)


def _pairs(keys: Keys) -> Pairs:
    return Pairs(keys=keys)
