"""The command that posts a first event to a board, for the page of a board without records."""

import shlex
from collections.abc import Mapping

import msgspec

from live.domain.board import Board

_MEMBER = "Ada"


def curl_of(boards: Mapping[str, Board], board: Board, site: str, now: str, *, needs_key: bool) -> str | None:
    """The command, or None if no single event can start the board: it is frozen, or registers its members first.

    `site` is the address of the server, and `now` the time of the event on boards that use the time of events.
    """
    target = boards[next(iter(board.union))] if board.union else board
    if target.union or board.frozen or target.frozen or (target.votes is not None and target.votes.registered):
        return None
    event: dict[str, object] = {"board": target.id, "key": _MEMBER}
    if target.score is not None:
        event["fields"] = {field.name: field.high for field in target.score.fields}
    if target.votes is not None:
        event["actor"] = "you"
    if target.clock == "event":
        event["time"] = now
    headers = ["Content-Type: application/json", *(["Authorization: Bearer <id>.<secret>"] if needs_key else [])]
    body = msgspec.json.encode(event).decode()
    options = [f"-H {shlex.quote(header)}" for header in headers]
    return " ".join(["curl", f"{site}/v1/events", *options, "-d", shlex.quote(body)])
