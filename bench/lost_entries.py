"""Measures how long it takes to write lost batches from the journal after a failover."""

import json
import os
import signal
import time
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Final

import redis

from bench.nodes import Site, client_of, cluster_of, until
from bench.processes import BenchError, Server
from bench.table import Report, Row, Scale

_BOARDS: Final = 20
_BOARD: Final = '[[board]]\nid = "b-{0}"\ntypes = ["b-{0}"]\nties = "key"\n'
_GOAL: Final = "≤ 5 s"


def lost_entries(scale: Scale, report: Report) -> Row:
    """Cut a replica off, count one batch after another on each board until SQL has all, and promote the replica.

    The time runs from the promotion until every board shows all that it had counted.
    """
    with ExitStack() as stack:
        nodes = cluster_of(stack, 1, 1)
        boards = "".join(_BOARD.format(number) for number in range(_BOARDS))
        site = Site(stack, nodes, boards, journal="sqlite", wait_replicas=0)
        connection = stack.enter_context(closing(HTTPConnection(site.server.address, timeout=30)))
        _count(connection)
        primary, replica = (client_of(node) for node in nodes)
        until(lambda: bool(primary.execute_command("WAIT", 1, 1000)), "the replica lags")  # type: ignore[no-untyped-call]
        until(lambda: _drained(primary), "the journal is not drained")
        replica.config_set("masteruser", "nobody")
        replica.config_set("masterauth", "wrong")
        primary.execute_command("CLIENT", "KILL", "TYPE", "replica")  # type: ignore[no-untyped-call]
        until(lambda: replica.role()[3] != b"connected", "the replica is still there")
        bodies = scale.lost // _BOARDS
        for number in range(bodies):
            report(f"batches: {number * _BOARDS:,}")
            _count(connection)
        until(lambda: _drained(primary), "the journal is not drained")
        os.kill(nodes[0].pid, signal.SIGKILL)
        report("promoting the replica")
        replica.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")  # type: ignore[no-untyped-call]
        started = time.perf_counter()
        until(lambda: replica.role()[0] == b"master", "the replica was not promoted", pause=0.01)
        lacking = {f"b-{number}" for number in range(_BOARDS)}
        until(lambda: _all_there(site.server, lacking, bodies + 1), "boards lack what was counted")
        seconds = time.perf_counter() - started
    count = bodies * _BOARDS
    return Row(
        work=f"replicas: after a failover, write {count:,} lost batches, on {_BOARDS} boards together",
        measured=f"{seconds:.1f} s, {count / seconds:,.0f} batches/s",
        goal=_GOAL,
        figures={"seconds": seconds, "batches": count},
    )


def _count(connection: HTTPConnection) -> None:
    """Count an event on each board. Each event is a separate batch, because nobody else sends."""
    body = json.dumps([{"key": "a", "board": f"b-{number}"} for number in range(_BOARDS)])
    connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if not answer.startswith(b'{"accepted":%d,' % _BOARDS):
        raise BenchError(f"events were answered {response.status} {answer[:200]!r}")


def _drained(primary: redis.Redis) -> bool:
    """Tell whether SQL has everything that the boards have counted."""
    for number in range(_BOARDS):
        journal, drained = primary.hmget(f"live:{{b-{number}}}:meta", "journal", "drained")
        if journal is None or journal.split()[-1] != drained:
            return False
    return True


def _all_there(server: Server, lacking: set[str], expected: int) -> bool:
    for board in sorted(lacking):
        try:
            with closing(HTTPConnection(server.address, timeout=10)) as connection:
                connection.request("GET", f"/v1/boards/{board}")
                response = connection.getresponse()
                content = response.read()
        except (OSError, HTTPException):
            return False
        if response.status != HTTPStatus.OK:
            return False
        shown = json.loads(content)["total_score"]
        if shown != expected:
            raise BenchError(f"{board} shows {shown:,} events of {expected:,}")
        lacking.discard(board)
    return True
