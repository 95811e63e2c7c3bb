"""The reads of the past, as operations of `/openapi.json`."""

from typing import Final

from live.web.contract.operations import BOARD, OF_BOARD, OF_KEY, PAST, RECORD, document, operation, parameter
from live.web.contract.schemas import Json
from live.web.past import MAX_MEMBERS, MAX_STEPS, HistoryList

_TIME: Final = {"type": "string", "format": "date-time"}

AS_OF: Final = parameter(
    "as_of", "query", _TIME,
    "Read the board as it was at this time: with everything that was counted before. "
    "This needs a journal. Beyond `LIVE_JOURNAL_EVENTS`, it is read as it was at the beginning of that hour.",
)  # fmt: skip
EXPLAIN: Final = parameter(
    "explain", "query", {"type": "string", "enum": ["true"]},
    "Return an `Explanation` instead: what the score consists of, and its newest changes. This needs a journal.",
)  # fmt: skip
_SPAN: Final = (
    parameter("from", "query", _TIME, "The first time. By default a day before `to`."),
    parameter("to", "query", _TIME, "The last time. By default now."),
    parameter("step", "query", {"type": "string", "default": "1h"},
              f"The time between two steps, such as `5m` or `1d`. At most {MAX_STEPS} steps."),
)  # fmt: skip


def past_operations() -> Json:
    """The histories of records."""
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_MEMBERS}
    keys = {**parameter("key", "query", several, "Repeat it for each member."), "required": True}
    one = operation(
        "getHistory", "records", "Read how a record moved.",
        "Its score and rank at each time, null where it was not on the board. This needs a journal.",
        document(HistoryList), RECORD - {"period_not_found", "record_not_found"} | PAST,
        OF_BOARD, OF_KEY, *_SPAN,
    )  # fmt: skip
    some = operation(
        "listHistory", "boards", "Read how some records moved.",
        "The same for several members.", document(HistoryList), BOARD | PAST, OF_BOARD, keys, *_SPAN,
    )  # fmt: skip
    return {
        "/v1/boards/{board}/records/{key}/history": {"get": one},
        "/v1/boards/{board}/history": {"get": some},
    }
