"""The JSON Schema of a boards file, `/boards.schema.json`, made from the structs that read the file.

Editors check a TOML file against the schema and offer the choices, if the first line of the file names the schema:
`#:schema <address>`.
"""

from functools import cache
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from live.domain.board_file import BoardChoice
from live.domain.limits import PREFIX, LimitsChoice
from live.domain.window import WINDOW_KINDS
from live.ingest.replies import Reply
from live.web.contract.schemas import Json, components_of
from live.web.http.responses import kept_json, negotiated

_REFERENCE: Final = "#/$defs/{name}"


async def get_boards_schema(request: Request) -> Response:
    """Read the schema of boards files.

    Returns a JSON Schema, for editors.
    """
    return negotiated(request, _reply())


@cache
def _reply() -> Reply:
    return kept_json(boards_file_schema())


@cache
def boards_file_schema() -> Json:
    """Make the document at `/boards.schema.json`."""
    tables = components_of([BoardChoice, LimitsChoice], _REFERENCE)
    tables["WindowChoice"]["oneOf"] = [{"required": [kind]} for kind in WINDOW_KINDS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Boards of Live Board",
        "description": "Each [[board]] table defines a board, and each [limits] table limits the boards with a prefix.",
        "type": "object",
        "properties": {
            "board": {
                "description": "The boards, in the order in which pages list them.",
                "type": "array",
                "items": {"$ref": _REFERENCE.format(name=BoardChoice.__name__)},
                "minItems": 1,
            },
            "limits": {
                "description": "What all boards whose ids begin with a prefix may have together.",
                "type": "object",
                "patternProperties": {f"^{PREFIX.pattern}$": {"$ref": _REFERENCE.format(name=LimitsChoice.__name__)}},
                "additionalProperties": False,
            },
        },
        "anyOf": [{"required": ["board"]}, {"required": ["limits"]}],
        "additionalProperties": False,
        "$defs": tables,
    }
