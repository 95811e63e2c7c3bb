"""The forms of pages, as schemas."""

from typing import Final

from live.web.contract.operations import STRING
from live.web.pages.language import TAGS
from live.web.pages.preferences import BACK, THEMES

LIKE_FORM: Final = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "The member."},
        "replaces": {"type": "string", "description": "On a board with votes, the member whose vote is taken back."},
        "undo": {"type": "string", "description": "Instead of `key`: only take the vote for this member back."},
        "page": {"type": "string", "enum": ["record"], "description": "Whether to return to the page of the record."},
    },
}
TICKET_FORM: Final = {"type": "object", "properties": {"code": STRING}, "required": ["code"]}
PREFERENCES: Final = {
    "type": "object",
    "properties": {
        "theme": {"type": "string", "enum": list(THEMES)},
        "lang": {"type": "string", "enum": list(TAGS)},
        "back": {"type": "string", "pattern": f"^{BACK}$", "maxLength": 4096, "description": "The page to return to."},
    },
    "required": ["back"],
}
