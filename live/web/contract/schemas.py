"""The schemas of the contract, made from the structs of requests and responses, with the meaning of each field."""

from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final

import msgspec

from live.domain.text import METADATA
from live.errors import PROBLEMS, REFUSALS

Json = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"
_NAMES: Final = {"IncomingEvent": "Event"}  # for some structs, another name of the schema
_MEANT_AS: Final = {"RunningChoice": "BoardChoice"}  # the fields of the two structs have the same meanings

# What the choices of boards and of limits mean, by name, or by struct and name where a name is ambiguous. In all other
# structs, each field says what it means.
_CHOICES: Final[Mapping[str, str]] = {
    "board": "Id of a board.",
    "max_amount": "Maximum distance of an amount from zero, where amounts are added. Default 10^9.",
    "max_members": "Maximum number of members. Default 10,000,000.",
    "cap": "Keep exactly this many of the best records. Needs `set` or `best`.",
    "clock": "The source of the current time: the server or the newest event.",
    "conflation_interval": (
        "Minimum time between two messages to a viewer, `1ms` to `60s`. Default: `LIVE_CONFLATION_INTERVAL`."
    ),
    "dedupe_window": "Minimum time for which the board remembers ids, such as `30d`. Default: `LIVE_DEDUPE_WINDOW`.",
    "frozen": "Whether the board refuses events.",
    "visibility": "Who may read the board: everybody, or clients with an API key for it. Default: `LIVE_VISIBILITY`.",
    "idle_ttl": "The board deletes itself after nobody has used it for this long.",
    "journal": "What the journal keeps: every event (`events`), or nothing (`off`).",
    "journal_events": "How long the journal keeps every event, such as `30d`. Default: `LIVE_JOURNAL_EVENTS`.",
    "journal_periods": (
        "How long the journal keeps periods that the board drops, such as `400d`. Default: `LIVE_JOURNAL_PERIODS`."
    ),
    "like_button": "Whether visitors of the board's pages can like its members, without an API key.",
    "operator": "How an event changes a score: `incr` adds, `set` replaces, `best` keeps the best.",
    "ranks": "How equal scores are ranked: `ordinal` 1 2 3, `dense` 1 1 2, `competition` 1 1 3.",
    "sort_order": "Whether high scores (`desc`) or low scores (`asc`) come first.",
    "baseline": "From when on pages measure movement: an `hour` ago, or the start of the `day` or `week`.",
    "zeros": "Whether a member whose amounts add up to zero has a record. Default false.",
    "ties": "Among equal scores, `first` puts the earliest ahead, `last` the latest, and `key` sorts by name.",
    "title": "Name for people.",
    "union": "Ids of boards that this board adds up.",
    "BoardSummary.visibility": "Who may read the board: everybody, or clients with an API key for it.",
    "BoardSummary.category": "Event categories that the board takes. Empty means all.",
    "BoardSummary.max_amount": "Largest absolute amount of an event. Null on unions, and where amounts are not added.",
    "BoardSummary.score": "Fields that make up the score, in order of weight. Empty if the score is the amount.",
    "BoardSummary.votes": "Limits and times of voting. Null on boards without votes.",
    "BoardSummary.cap": "Number of records that the board keeps. Null means all.",
    "BoardSummary.idle_ttl": "Seconds without use after which the board deletes itself. Null means never.",
    "BoardSummary.types": "Event types that feed the board.",
    "BoardSummary.union": "Weight of each board that this board adds up, by id.",
    "BoardSummary.window": "The time range that the board covers. `kind` names the window; lengths are in seconds.",
    "format": "How people read scores: as a `number`, or as a `duration` such as `1:23`.",
    "scale": "How many decimals people read: with 2, the score 123 is `1.23`.",
    "unit": "What people read after a score, such as `€`.",
    "FieldChoice.field": "Name of the field.",
    "FieldChoice.max": "Largest value.",
    "FieldChoice.min": "Smallest value.",
    "FieldChoice.order": "Whether high values (`desc`) or low values (`asc`) are better.",
    "BoardChoice.category": "Event categories that the board takes. Default: all.",
    "BoardChoice.score": "Fields that make up the score, in order of weight.",
    "BoardChoice.types": "Event types that feed the board. Default `like`.",
    "BoardChoice.title": "Name for people. Default: the id.",
    "BoardChoice.votes": "Makes the board a contest and limits votes.",
    "BoardChoice.weights": "Weight of each board in `union`. Default 1.",
    "BoardChoice.window": "The time range that the board covers. Default: the last 24 hours in slots of one hour.",
    "LimitsChoice.boards": "Maximum number of boards with the prefix. Default: no limit.",
    "LimitsChoice.members": "Maximum sum of the `max_members` of these boards. Default: no limit.",
    "LimitsChoice.viewers": "Maximum viewers of these boards together. Default: no limit.",
    "LimitsChoice.rate": "Events per second that these boards count together. Default: no limit.",
    "BoardChoice.id": "Name of the board in addresses: lower-case letters, digits, `_` and `-`.",
    "VotesChoice.closes": "End of voting.",
    "VotesChoice.changes": "Whether votes can be taken back and changed. Default true.",
    "VotesChoice.grace": "How long after `closes` a vote may arrive that says that its `time` is before.",
    "VotesChoice.tickets": "Whether only votes with a viewer token, such as that of a ticket, count. Default false.",
    "VotesChoice.opens": "Start of voting.",
    "VotesChoice.per_actor": "Maximum votes per actor in total.",
    "VotesChoice.per_key": "Maximum votes per actor for one member.",
    "VotesChoice.registered": "Whether only registered members count.",
    "WindowChoice.calendar": "Length of the periods of a calendar board, such as `day`.",
    "WindowChoice.day_start": "Time at which days begin, such as `09:00`.",
    "WindowChoice.grace": "How long a period takes late events after its end.",
    "WindowChoice.keep": "Number of past periods to keep.",
    "WindowChoice.last": "One ranking over this many of the newest periods.",
    "WindowChoice.rolling": "Length of a window that moves in slots.",
    "WindowChoice.sliding": "Length of a window that is exact to the event.",
    "WindowChoice.slot": "Length of a slot of a rolling window.",
    "WindowChoice.timezone": "IANA name of the time zone, such as `Asia/Shanghai`.",
    "WindowChoice.week_start": "First day of a week.",
}


def components_of(structs: Iterable[type], template: str = REFERENCE) -> Json:
    """Make the schemas of structs by name, with the meaning of each field.

    A schema refers to another schema with a URL made from `template`.
    """
    _, found = msgspec.json.schema_components(structs, ref_template=template)
    components = {_NAMES.get(name, name): schema for name, schema in found.items()}
    for name, schema in components.items():
        schema["title"] = name
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])  # a docstring
        for field, spec in schema.get("properties", {}).items():
            default = spec.get("default")
            if not isinstance(default, bool | int) and (not default or isinstance(default, dict)):
                spec.pop("default", None)  # for example null, which the schema of the field does not allow
            if "description" not in spec:
                meant = _CHOICES.get(f"{_MEANT_AS.get(name, name)}.{field}") or _CHOICES.get(field)
                spec["description"] = meant or "Type of the message."
            if field == "metadata":
                spec["type"] = "object"
    return components


def contract_components(structs: Iterable[type]) -> Json:
    """Make the schemas of the HTTP contract, including the schemas of bodies that are not structs."""
    components = components_of(structs)
    components["ProblemBody"]["properties"]["code"]["enum"] = list(PROBLEMS)
    refusal = components["Rejection"]["properties"]["code"]
    refusal["enum"] = list(REFUSALS)
    refusal["description"] = listed(REFUSALS)
    choices = components["RunningChoice"]
    del choices["properties"]["id"]  # the id is in the path
    choices["required"].remove("id")
    components["BoardPatch"] = {
        "title": "BoardPatch",
        "type": "object",
        "description": "A JSON Merge Patch (RFC 7396) with the choices to change. Null restores a default.",
        "properties": {
            name: {
                "description": schema["description"],
                "anyOf": [{part: schema[part] for part in schema if part not in {"description", "default"}},
                          {"type": "null"}],
            }
            for name, schema in choices["properties"].items()
        },
        "additionalProperties": False,
    }  # fmt: skip
    components["Metadata"] = {
        "title": "Metadata",
        "type": "object",
        "description": METADATA.description,
        "additionalProperties": True,
    }
    components["CloudEvent"]["propertyNames"] = {"pattern": "^([a-z0-9]+|data_base64)$"}
    return components


def reference(struct: type | str) -> Json:
    """Refer to the schema of a struct, or to a schema by name."""
    name = struct if isinstance(struct, str) else struct.__name__
    return {"$ref": REFERENCE.format(name=_NAMES.get(name, name))}


def listed(meanings: Mapping[str, str]) -> str:
    """List codes and their meanings in Markdown."""
    return "\n".join(f"- `{code}`: {meaning}." for code, meaning in meanings.items())
