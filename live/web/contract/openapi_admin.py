"""The administration routes in the OpenAPI document."""

from live.boards.definition import RunningChoice
from live.web.boards import BoardSummary
from live.web.contract.operations import (
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
from live.web.contract.schemas import Json, reference
from live.web.records import Visibility
from live.web.writes.admin import AuditLog


def get_audit_log() -> Json:
    """The audit log."""
    limit = parameter("limit", "query", {**COUNT, "maximum": 1000}, "Maximum number of entries.")
    return operation(
        "getTrail", "administration", "Read the audit log.",
        "Changes of the boards that the API key includes, newest first.", document(AuditLog), ADMIN, limit,
        security=KEYED,
    )  # fmt: skip


def board_changes() -> Json:
    """Creates, changes and deletes a run-time board."""
    shown = document(BoardSummary)
    made = {"201": {**shown["200"], "description": "Created.", "headers": {"Location": TEXT}}, **shown}
    put = operation(
        "putBoard", "administration", "Create a board, or replace its choices.",
        "Omitted choices get their defaults.", made,
        CHANGING - {"board_not_found"} | {"too_many_boards"}, OF_BOARD, security=KEYED,
    )  # fmt: skip
    patch = operation(
        "patchBoard", "administration", "Change some choices of a board.",
        "Omitted choices stay unchanged.", shown, CHANGING, OF_BOARD, security=KEYED,
    )  # fmt: skip
    delete = operation(
        "deleteBoard", "administration", "Delete a board.", "This deletes everything that the board owns.",
        done(204, "The board is deleted."), REMOVING, OF_BOARD, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(RunningChoice), "application/json")
    patch["requestBody"] = body_of(reference("BoardPatch"), "application/merge-patch+json", "application/json")
    return {"put": put, "patch": patch, "delete": delete}


def record_changes() -> Json:
    """Registers, withdraws, hides and shows a record."""
    own = ENTERING - {"record_not_found", "record_voted", "board_open_to_all"} | {"malformed_body", "body_too_large"}
    put = operation(
        "putRecord", "administration", "Register a contestant.", "Or replace the metadata of a contestant.",
        {**done(201, "The member is registered."), **done(204, "The metadata is replaced.")},
        own | {"board_open_to_all", "too_many_members"}, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    patch = operation(
        "patchRecord", "administration", "Hide a record, or show it again.", "A hidden record keeps counting.",
        done(204, "The record is hidden or shown."), own, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    delete = operation(
        "deleteRecord", "administration", "Withdraw a contestant.", "A contestant with votes can't be withdrawn.",
        done(204, "The contestant is withdrawn."), ENTERING, OF_BOARD, OF_KEY, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference("Metadata"), "application/json")
    patch["requestBody"] = body_of(reference(Visibility), "application/json")
    return {"put": put, "patch": patch, "delete": delete}
