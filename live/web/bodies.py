"""JSON bodies of administrators: one object, nested no deeper than any board or contestant needs."""

from typing import Any, Final

import msgspec

from live.errors import ProblemError

_MOST_LEVELS: Final = 32  # far below what any parser, ours or a client's, refuses for its own sake


def read_object(body: bytes, code: str, what: str) -> dict[str, Any]:
    """The JSON object of a body; `what` tells people what it is to be, `code` is the problem of any other JSON.

    Raises:
        ProblemError: `code`, or `malformed_body` where the JSON is nested deeper than 32 levels.
    """
    try:
        value = msgspec.json.decode(body, type=dict[str, Any])
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(code, f"{what}: {error}") from None
    _require_levels(value)
    return value


def _require_levels(value: object) -> None:
    """Refuse a value that is nested too deeply, level by level, so that no depth is too much for this either."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise _too_deep()


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_deep() -> ProblemError:
    return ProblemError("malformed_body", f"the JSON is nested deeper than {_MOST_LEVELS} levels")
