"""The peers of a POST of one event: the baseline, bare commands, webdis, and a naive handler."""

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from bench.board import Board
from bench.plans import Calls, Load, Members, Pairs, Plan, Posts
from bench.processes import Server, idle_server, microseconds, module_server
from bench.webdis import find_webdis, load_script, webdis_server


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that does the same work or less: its counted processes, and the requests for the same members.

    `share` is the fraction of the requests that this server gets. Fewer requests suffice to measure a slow server.
    """

    address: str
    counted: dict[str, Server]
    make: Callable[[Members], Posts | Pairs | Calls]
    expect: str = "{"
    key: str = ""
    share: float = 1

    def measure(self, members: Members, load: Load) -> dict[str, float]:
        """Return the microseconds of CPU per event, by process."""
        load = msgspec.structs.replace(load, requests=round(load.requests * self.share))
        plan = Plan(address=self.address, content=self.make(members), load=load, expect=self.expect, key=self.key)
        return microseconds(plan, self.counted)


def start_peers(stack: ExitStack, board: Board) -> dict[str, Peer]:
    """Run every installed peer.

    Peers that count use the board's store, with separate store keys. `nothing` and `naive` receive the same requests
    as the board, including the API key.
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
        make=lambda members: Calls(members=members, script=script),
        expect='{"EVALSHA":"',  # the beginning of a score; an error would be an array
    )  # fmt: skip


def _posts(members: Members) -> Posts:
    return Posts(members=members)


def _pairs(members: Members) -> Pairs:
    return Pairs(members=members)
