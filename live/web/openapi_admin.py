"""The operations of administrators in the OpenAPI document."""

from live.boards.definition import RunningChoice
from live.web.board_changes import Trail
from live.web.boards import BoardSummary
from live.web.describing import (
    ADMIN,
    CHANGING,
    COUNT,
    ENTERING,
    KEYED,
    OF_BOARD,
    OF_KEY,
    REMOVING,
    TEXT,
    body_of,
    document,
    done,
    operation,
    parameter,
)
from live.web.record_changes import Visibility
from live.web.schemas import Json, reference


def get_trail() -> Json:
    """What shows who changed which boards."""
    limit = parameter("limit", "query", {**COUNT, "maximum": 1000}, "Most changes in the answer.")
    return operation(
        "getTrail", "administration", "Read who changed which boards.",
        "The newest change first, of the boards that the API key is for.", document(Trail), ADMIN, limit,
        security=KEYED,
    )  # fmt: skip


def board_changes() -> Json:
    """What makes, changes and removes a board while the server runs."""
    shown = document(BoardSummary)
    made = {"201": {**shown["200"], "description": "Made.", "headers": {"Location": TEXT}}, **shown}
    put = operation(
        "putBoard", "administration", "Make a board, or replace its choices.",
        "Choices that are left out get their defaults.", made, CHANGING - {"board_not_found"}, OF_BOARD, security=KEYED,
    )  # fmt: skip
    patch = operation(
        "patchBoard", "administration", "Change some choices of a board.",
        "Choices that are left out stay.", shown, CHANGING, OF_BOARD, security=KEYED,
    )  # fmt: skip
    delete = operation(
        "deleteBoard", "administration", "Remove a board.", "Everything that the board owns goes with it.",
        done(204, "The board is removed."), REMOVING, OF_BOARD, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(RunningChoice), "application/json")
    patch["requestBody"] = body_of(reference("BoardPatch"), "application/merge-patch+json", "application/json")
    return {"put": put, "patch": patch, "delete": delete}


def record_changes() -> Json:
    """What registers, withdraws, hides and shows a record."""
    own = ENTERING - {"record_not_found", "record_voted", "board_open_to_all"} | {"malformed_body", "body_too_large"}
    put = operation(
        "putRecord", "administration", "Register a key for a contest.", "Or give a registered key other metadata.",
        {**done(201, "The key is registered."), **done(204, "The key has other metadata.")},
        own | {"board_open_to_all"}, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    patch = operation(
        "patchRecord", "administration", "Hide a record, or show it again.", "A hidden record goes on being counted.",
        done(204, "Done."), own, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    delete = operation(
        "deleteRecord", "administration", "Withdraw a registered key.", "A key that has votes is not withdrawn.",
        done(204, "The key is withdrawn."), ENTERING, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference("Metadata"), "application/json")
    patch["requestBody"] = body_of(reference(Visibility), "application/json")
    return {"put": put, "patch": patch, "delete": delete}
