"""The schemas of the contract: made from the structs that decode and encode, with what their types can't say."""

from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final

import msgspec

from live.domain.event import MAX_KEY_BYTES, MAX_METADATA_BYTES
from live.errors import PROBLEMS, REFUSALS

Json = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"

# What each field means: by its name, and by struct and name where the name alone does not say it.
MEANINGS: Final[Mapping[str, str]] = {
    "actor": "Who sent the event. Boards that count votes need it.",
    "amount": "What is added to the score, or what the score becomes on boards with `set` or `best`. Default 1.",
    "board": "Id of a board.",
    "category": "Category of the event: boards that name categories take no other.",
    "max_amount": "How far from zero an amount may be, where amounts are added up. Default 10^9.",
    "max_members": "How many members the board takes. Default 10,000,000.",
    "cap": "The board keeps exactly this many of the best records. Needs `set` or `best`.",
    "clock": "What tells the time: the server, or the newest event.",
    "conflation_interval": "Least time between two frames to a viewer, `1ms` to `60s`. Default: the server's setting.",
    "detail": "What is wrong, for people. It may change.",
    "entrant_count": "How many keys are registered. Null where keys are not registered.",
    "epoch": "Names the data of the board. It changes when the board begins anew.",
    "fields": "Whole numbers by name, for boards whose score is made of fields.",
    "frozen": "Whether the board refuses events.",
    "gap": "What the record misses to the score of the one above. Null for the first.",
    "id": "Identity of the event within its `source`. An event with an id counts once, however often it is sent.",
    "idle_ttl": "The board removes itself after nobody has used it for so long.",
    "key": f"What is ranked: 1 to {MAX_KEY_BYTES:,} bytes of UTF-8 in NFC, no control or bidi characters.",
    "metadata": f"A JSON object of up to {MAX_METADATA_BYTES:,} bytes that is kept with the record.",
    "next_cursor": "`cursor` of the next page. Null on the last page.",
    "offset": "Counts the changes of the board since its epoch began.",
    "operator": "How an event changes a score: `incr` adds, `set` takes the last, `best` keeps the best.",
    "percentile": "Share of the other records that are behind, in percent.",
    "period": "Name of the period. Null on boards without a ranking for each period.",
    "position": "Place in the list, from 1, where it is not the rank because equal scores share one.",
    "prev_cursor": "`cursor` of the previous page. Null on the first page.",
    "rank": "Place in the ranking, from 1.",
    "rank_count": "How many records the board has.",
    "ranks": "How equal scores are ranked: `ordinal` 1 2 3, `dense` 1 1 2, `competition` 1 1 3.",
    "records": "Records, the first rank first.",
    "score": "A whole number within ±2^53.",
    "sort_order": "Whether high scores (`desc`) or low scores (`asc`) come first.",
    "source": "Names the sender of the `id`.",
    "ties": "Of equal scores, the `first` or `last` to get there is ahead, or the `key` decides.",
    "time": "When it happened, RFC 3339 with an offset. Default: now.",
    "title": "What people read.",
    "total_score": "Sum of all scores. Null where scores are not amounts.",
    "type": "Type of the event: it feeds the boards that name it in `source`. Default `like`.",
    "union": "Ids of boards that this board adds up.",
    "viewer_count": "How many viewers watch the board, in all processes.",
    "window": "What time the board covers.",
    "Answer.accepted": "How many events were counted now.",
    "Answer.duplicate": "How many events were known by their identity, and not counted again.",
    "Answer.offsets": "Offset of each board that the body has changed, by id.",
    "Answer.rejected": "The events that were refused, by index.",
    "BoardList.boards": "Every board, in the order of the boards file.",
    "BoardSummary.idle_ttl": "Seconds without use after which the board removes itself. Null: never.",
    "BoardSummary.source": "Types of events that feed the board.",
    "BoardSummary.union": "Weight of each board that this board adds up, by id.",
    "BoardSummary.window": "What time the board covers. `kind` names the window; lengths are in seconds.",
    "CloudEvent.sampledrate": "The amount. Default 1.",
    "CloudEvent.specversion": "Version of CloudEvents.",
    "CloudEvent.subject": "The key: what is ranked.",
    "Deed.at": "When, in milliseconds since 1970.",
    "Deed.choices": "The choices of the board after the change.",
    "Deed.what": "What was done.",
    "Deed.who": "Id of an API key, `anonymous`, or `server`.",
    "Event.board": "The one board to feed, in place of `type`.",
    "FieldChoice.field": "Name of the field.",
    "FieldChoice.max": "Largest value.",
    "FieldChoice.min": "Smallest value.",
    "FieldChoice.order": "Whether high values (`desc`) or low values (`asc`) are better.",
    "ProblemBody.code": "Stable name of the problem.",
    "ProblemBody.status": "HTTP status.",
    "ProblemBody.title": "The problem in a few words.",
    "ProblemBody.type": "Always `about:blank`.",
    "RecordView.rank": "Place in the ranking, from 1. Null for a registered key without a vote.",
    "RecordView.records": "The record with its neighbours.",
    "Rejection.board": "Id of the board that refused, where one of several did.",
    "Rejection.code": "Stable name of the refusal.",
    "Rejection.index": "Place of the event in the body, from 0.",
    "RunningChoice.category": "Categories of events that the board takes. Default: all.",
    "RunningChoice.score": "Fields that make the score, in order of weight.",
    "RunningChoice.source": "Types of events that feed the board. Default `like`.",
    "RunningChoice.title": "What people read. Default: the id.",
    "RunningChoice.votes": "Limits of votes, which make the board a contest.",
    "RunningChoice.weights": "Weight of each board in `union`. Default 1.",
    "RunningChoice.window": "What time the board covers. Default: the last 24 hours in slots of one hour.",
    "Standing.records": "The record of the key on each board that has it.",
    "Status.reason": "Why the state is stale.",
    "Status.retry_after": "Seconds after which to connect again.",
    "Status.stale": "Whether the records may be out of date.",
    "Sync.period": "Name of the period. Left out on boards without a ranking for each period.",
    "Sync.recovered": "Whether it follows the position that the viewer named.",
    "Trail.trail": "Changes of boards, the newest first.",
    "Update.changed": "Records that changed or moved, to insert in this order.",
    "Update.period": "Name of the period. Left out on boards without a ranking for each period.",
    "Update.recovered": "Whether it follows the position that the viewer named.",
    "Update.removed": "Keys that left the records.",
    "Update.since": "Offset that the update follows.",
    "Viewers.count": "How many viewers watch the board, in all processes.",
    "Visibility.hidden": "Whether the record has no rank. It goes on being counted.",
    "VotesChoice.closes": "When voting ends.",
    "VotesChoice.opens": "When voting begins.",
    "VotesChoice.per_actor": "Most votes of an actor in all.",
    "VotesChoice.per_key": "Most votes of an actor for one key.",
    "VotesChoice.registered": "Whether only registered keys are counted.",
    "WindowChoice.calendar": "Unit of calendar periods.",
    "WindowChoice.grace": "How long a period takes late events after its end.",
    "WindowChoice.keep": "How many periods are kept behind the current one.",
    "WindowChoice.last": "One ranking over this many of the newest periods.",
    "WindowChoice.rolling": "Length of a window that moves slot by slot.",
    "WindowChoice.sliding": "Length of a window that is exact to the event.",
    "WindowChoice.slot": "Length of a slot of a rolling window.",
    "WindowChoice.timezone": "IANA name of the time zone, such as `Asia/Shanghai`.",
    "WindowChoice.week_start": "First day of a week.",
}


def components_of(structs: Iterable[type]) -> Json:
    """The schemas of structs by name, each field with its meaning."""
    _, components = msgspec.json.schema_components(structs, ref_template=REFERENCE)
    for name, schema in components.items():
        schema["title"] = name
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])  # a docstring
        for field, told in schema.get("properties", {}).items():
            _clean(told)
            told["description"] = MEANINGS.get(f"{name}.{field}") or MEANINGS[field]
            if len(told.get("enum", ())) == 1 and field == "type":
                told["description"] = "Type of the message."
            if field == "metadata":
                told["type"] = "object"
    return components


def contract_components(structs: Iterable[type]) -> Json:
    """The schemas of the HTTP contract, those of its bodies that are no structs too."""
    components = components_of(structs)
    components["ProblemBody"]["properties"]["code"]["enum"] = list(PROBLEMS)
    refusal = components["Rejection"]["properties"]["code"]
    refusal["enum"] = list(REFUSALS)
    refusal["description"] = listed(REFUSALS)
    choices = components["RunningChoice"]
    del choices["properties"]["id"]  # it is in the path
    choices["required"].remove("id")
    components["BoardPatch"] = _patch_of(choices)
    components["Metadata"] = {
        "title": "Metadata",
        "type": "object",
        "description": MEANINGS["metadata"],
        "additionalProperties": True,
    }
    components["CloudEvent"]["propertyNames"] = {"pattern": "^([a-z0-9]+|data_base64)$"}
    return components


def reference(struct: type | str) -> Json:
    """Refers to the schema of a struct, or to one by its name."""
    return {"$ref": REFERENCE.format(name=struct if isinstance(struct, str) else struct.__name__)}


def listed(meanings: Mapping[str, str]) -> str:
    """Codes with what they mean, as one text."""
    return "\n".join(f"- `{code}`: {meaning}." for code, meaning in meanings.items())


def _clean(schema: Json) -> None:
    """Leave out a default that is no value of its own schema: none, or empty where something is needed."""
    default = schema.get("default")
    if not isinstance(default, bool | int) and (not default or isinstance(default, dict)):
        schema.pop("default", None)


def _patch_of(choices: Json) -> Json:
    """The schema of a JSON Merge Patch: every choice may be left out, or taken back with null."""
    properties = {
        name: {
            "description": schema["description"],
            "anyOf": [{part: value for part, value in schema.items() if part not in {"description", "default"}},
                      {"type": "null"}],
        }
        for name, schema in choices["properties"].items()
    }  # fmt: skip
    return {
        "title": "BoardPatch",
        "type": "object",
        "description": "A JSON Merge Patch (RFC 7396): the choices to change. Null takes one back to its default.",
        "properties": properties,
        "additionalProperties": False,
    }
