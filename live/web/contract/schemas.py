"""The schemas of the contract, made from the structs of requests and responses, with the meaning of each field."""

from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final

import msgspec

from live.domain.event import MAX_KEY_BYTES, MAX_METADATA_BYTES
from live.errors import PROBLEMS, REFUSALS

Json = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"
_NAMES: Final = {"IncomingEvent": "Event"}  # for some structs, another name of the schema
_MEANT_AS: Final = {"RunningChoice": "BoardChoice"}  # the fields of the two structs have the same meanings

# The meaning of each field, by name, or by struct and name where the name is ambiguous.
MEANINGS: Final[Mapping[str, str]] = {
    "actor": "The person or thing that caused the event. Required on boards that count votes.",
    "amount": "The amount to add to the score, 1 by default. Boards with `set` or `best` need it: it is the new score.",
    "board": "Id of a board.",
    "category": "Category of the event. A board that names categories takes only events of these categories.",
    "max_amount": "Maximum distance of an amount from zero, where amounts are added. Default 10^9.",
    "max_members": "Maximum number of members. Default 10,000,000.",
    "cap": "Keep exactly this many of the best records. Needs `set` or `best`.",
    "clock": "The source of the current time: the server or the newest event.",
    "conflation_interval": (
        "Minimum time between two messages to a viewer, `1ms` to `60s`. Default: `LIVE_CONFLATION_INTERVAL`."
    ),
    "dedupe_window": "Minimum time for which the board remembers ids, such as `30d`. Default: `LIVE_DEDUPE_WINDOW`.",
    "detail": "What is wrong, for people. The text may change.",
    "entrant_count": "Number of registered members. Null on boards without registration.",
    "epoch": "Identifies the data of the board. It changes when the board starts again.",
    "fields": "Whole numbers by name, for boards whose score is made of fields.",
    "frozen": "Whether the board refuses events.",
    "gap": "Points behind the next rank. Null for the first record.",
    "id": "Identity of the event within its `source`. An event with an id counts once, however often it is sent.",
    "visibility": "Who may read the board: everybody, or clients with an API key for it. Default: `LIVE_VISIBILITY`.",
    "idle_ttl": "The board deletes itself after nobody has used it for this long.",
    "journal": "What the journal keeps: every event (`events`), or nothing (`off`).",
    "journal_events": "How long the journal keeps every event, such as `30d`. Default: `LIVE_JOURNAL_EVENTS`.",
    "journal_periods": (
        "How long the journal keeps periods that the board drops, such as `400d`. Default: `LIVE_JOURNAL_PERIODS`."
    ),
    "key": f"The member: 1 to {MAX_KEY_BYTES:,} bytes of UTF-8 in NFC, without control or format characters.",
    "like_button": "Whether visitors of the board's pages can like its members, without an API key.",
    "metadata": (
        f"A JSON object of up to {MAX_METADATA_BYTES:,} bytes that is stored with the record. Its strings have no "
        "control or format characters."
    ),
    "next_cursor": "`cursor` of the next page. Null on the last page.",
    "offset": "Number of changes of the board in this epoch.",
    "operator": "How an event changes a score: `incr` adds, `set` replaces, `best` keeps the best.",
    "percentile": "Percentage of the other records that come after this one in the ranking.",
    "period": "Name of the period. Null on boards without a ranking for each period.",
    "position": "Place in the list, from 1. Present if it differs from the rank because equal scores share a rank.",
    "prev_cursor": "`cursor` of the previous page. Null on the first page.",
    "rank": "Place in the ranking, from 1.",
    "rank_count": "Number of records on the board.",
    "ranks": "How equal scores are ranked: `ordinal` 1 2 3, `dense` 1 1 2, `competition` 1 1 3.",
    "records": "Records in the order of their ranks.",
    "replaces": (
        "Member from which the `actor` takes the same amount back in the same step, on boards that count votes. If the "
        "actor has given it no such vote, nothing counts."
    ),
    "score": "A whole number within ±2^53.",
    "sort_order": "Whether high scores (`desc`) or low scores (`asc`) come first.",
    "source": "Namespace of the `id`, such as the name of the sender.",
    "baseline": "From when on pages measure movement: an `hour` ago, or the start of the `day` or `week`.",
    "zeros": "Whether a member whose amounts add up to zero has a record. Default false.",
    "ties": "Among equal scores, `first` puts the earliest ahead, `last` the latest, and `key` sorts by name.",
    "definition": "A text that changes with the definition of the board. Updates omit it while the viewer stays.",
    "time": "Time of the event, RFC 3339 with an offset. Default: now.",
    "title": "Name for people.",
    "total_score": "Sum of all scores. Null where scores are not amounts.",
    "type": "Type of the event. It feeds the boards that name it in `types`. Default `like`.",
    "union": "Ids of boards that this board adds up.",
    "viewer_count": "Number of viewers of the board, in all processes.",
    "window": "The time range that the board covers.",
    "Answer.accepted": "Number of events that were counted.",
    "Answer.duplicate": "Number of events that were not counted again, because their identity was known.",
    "Answer.duplicates": "Indexes of the duplicates, if other events counted. Omitted otherwise.",
    "Answer.offsets": "New offset of each board that changed, by id.",
    "Answer.records": "Records of the members, in the order of the events. Only with `rank=true`.",
    "EventRecord.best": (
        "Whether the event was a new best of its member. Null for a duplicate, on boards that do not keep the best, "
        "and if the connection to the store was lost meanwhile."
    ),
    "EventRecord.epoch": "Epoch of the board when the record was read.",
    "EventRecord.index": "Index of the event in the body, from 0.",
    "EventRecord.offset": "Offset of the board when the record was read: the offset of the event, or a later one.",
    "EventRecord.period": "Period in which the event counted. Null on boards without a ranking for each period.",
    "EventRecord.rank": "Place in the ranking, from 1. Null if the member is not on the board.",
    "EventRecord.score": "The score. Null if the member is not on the board.",
    "Answer.rejected": "Refused events, by index.",
    "BaselineView.ranks": (
        "Rank at that time, by member: of the first 1,000 of that time, and of the first 1,000 of now. Null for a "
        "member without a record."
    ),
    "BaselineView.complete": "Whether `ranks` has every member that had a record.",
    "BaselineView.scores": "Score of each of the first 1,000 members of that time, by member.",
    "BaselineView.rank_count": "Number of members on the board at that time. Null if unknown.",
    "BaselineView.per_minute": "Sum of the amounts counted in an average minute since then. Null if unknown.",
    "BaselineView.since": "The time of the ranks and scores, RFC 3339. Null if there is no baseline yet.",
    "BoardList.boards": "All boards, in the order of the boards file.",
    "BoardSummary.visibility": "Who may read the board: everybody, or clients with an API key for it.",
    "BoardSummary.category": "Event categories that the board takes. Empty means all.",
    "BoardSummary.max_amount": "Largest absolute amount of an event. Null on unions, and where amounts are not added.",
    "BoardSummary.score": "Fields that make up the score, in order of weight. Empty if the score is the amount.",
    "BoardSummary.votes": "Limits and times of voting. Null on boards without votes.",
    "BoardSummary.cap": "Number of records that the board keeps. Null means all.",
    "Entrant.score": "Votes of the member. 0 without votes.",
    "EntrantList.entrants": "Registered members, in no particular order.",
    "EntrantList.next_cursor": "`cursor` of the next page. Null on the last page.",
    "BoardSummary.idle_ttl": "Seconds without use after which the board deletes itself. Null means never.",
    "BoardSummary.types": "Event types that feed the board.",
    "BoardSummary.union": "Weight of each board that this board adds up, by id.",
    "BoardSummary.window": "The time range that the board covers. `kind` names the window; lengths are in seconds.",
    "CloudEvent.amount": "The amount to add, or the new score. Written as text if it has more than 32 bits.",
    "CloudEvent.fields": "JSON text of an object: whole numbers by name, for boards whose score is made of fields.",
    "CloudEvent.metadata": "JSON text of an object that is stored with the record.",
    "CloudEvent.specversion": "Version of CloudEvents.",
    "CloudEvent.subject": "The member.",
    "image": "URL of a small picture. It begins with `https://`, and its host is in `LIVE_IMAGE_HOSTS`.",
    "items": "The items.",
    "url": "Link of the member's title. It begins with `https://`.",
    "Item.title": "What pages show instead of the member: 1 to 200 characters.",
    "ItemChoice.title": "What pages show instead of the member: 1 to 200 characters.",
    "Liked.counted": "False if nothing has changed: for example, the visitor had liked the member before.",
    "VoterView.left": "Votes that the visitor has left. Null without a limit.",
    "VoterView.votes": "Those of the members that have a vote of the visitor.",
    "AuditEntry.address": "Address of the client. Omitted for commands.",
    "AuditEntry.after": "The values after the action. Omitted if there are none.",
    "AuditEntry.at": "Time of the action, in milliseconds since 1970.",
    "AuditEntry.before": "The values before the action. Omitted if there were none.",
    "AuditEntry.board": "Id of the board. Omitted for actions that do not belong to a single board.",
    "AuditEntry.key": "The member or the API key that was changed. Omitted for other actions.",
    "AuditEntry.reason": "Why, in the words of the administrator. Omitted if the administrator gave no reason.",
    "AuditEntry.request": "The `X-Request-Id` of the request. Omitted without one.",
    "AuditEntry.what": "What was done.",
    "AuditEntry.who": "Id of an API key, `anonymous`, `server`, or `command:` and the user of a command.",
    "SlotList.records": "Scores of the members, in the order of the request.",
    "SlotList.slots": "The time of each point, the oldest point first. The last point is the slot that is still open.",
    "SlotScores.scores": "One score for each point. Null means no event, on boards that do not add amounts.",
    "SlotTime.end": "End of the newest slot of the point, RFC 3339. Null if the window has no slots.",
    "SlotTime.start": "Start of the oldest slot of the point, RFC 3339. Null if the window has no slots.",
    "closes": "End of voting, RFC 3339. Omitted on boards whose voting has no end.",
    "final_at": "When the result of the voting is final, RFC 3339. Omitted on boards whose voting has no end.",
    "format": "How people read scores: as a `number`, or as a `duration` such as `1:23`.",
    "opens": "Start of voting, RFC 3339. Omitted on boards whose voting has no start.",
    "period_end": "When the period ends, RFC 3339. Omitted on boards without a ranking for each period.",
    "period_start": "When the period begins, RFC 3339. Omitted on boards without a ranking for each period.",
    "scale": "How many decimals people read: with 2, the score 123 is `1.23`.",
    "unit": "What people read after a score, such as `€`.",
    "BoardPage.as_of": "The time of a page of the past, RFC 3339. Omitted on pages of the present.",
    "RecordView.as_of": "The time of a record of the past, RFC 3339. Omitted on records of the present.",
    "final": "True for a period that the board does not keep any more. Omitted on other periods.",
    "revision": "How many times the period became final. A period that the board keeps again becomes final once more.",
    "Explanation.as_of": "The time at which the score is explained, RFC 3339.",
    "Explanation.changes": "The newest changes before that time, the newest change first.",
    "Explanation.parts": "How much each slot adds to the score, the oldest slot first.",
    "Explanation.score": "The score at that time. Null if the member was not on the board.",
    "HistoryList.records": "The members, in the order of the request.",
    "HistoryList.since": "The first time for which the journal has the board. Omitted if the request has `key`.",
    "HistoryStep.at": "The time, RFC 3339.",
    "HistoryStep.rank": "The rank at that time. Null if the member was not on the board.",
    "HistoryStep.score": "The score at that time. Null if the member was not on the board.",
    "RecordHistory.steps": "The record at each time, the earliest time first.",
    "ScoreChange.amount": "Sum of the amounts of the member's events that were counted together.",
    "ScoreChange.reason": "Why an administrator corrected the score. Omitted for events.",
    "ScoreChange.at": "When these events were counted, RFC 3339.",
    "ScorePart.end": "End of the slot, RFC 3339. Null if the window has no slots.",
    "ScorePart.start": "Start of the slot, RFC 3339. Null if the window has no slots.",
    "Event.board": "The one board to feed, instead of `type`.",
    "FieldChoice.field": "Name of the field.",
    "FieldChoice.max": "Largest value.",
    "FieldChoice.min": "Smallest value.",
    "FieldChoice.order": "Whether high values (`desc`) or low values (`asc`) are better.",
    "ProblemBody.code": "Stable name of the problem.",
    "ProblemBody.retryable": "Whether the reason can pass, so that the same request can succeed later.",
    "ProblemBody.status": "HTTP status.",
    "ProblemBody.title": "The problem in a few words.",
    "ProblemBody.type": "Address of the documentation of `code`, on this server.",
    "RecordView.rank": "Place in the ranking, from 1. Null for a contestant without votes.",
    "Corrected.before": "The score before the correction. Null if the member had no score.",
    "Corrected.score": "The score after the correction.",
    "RecordChange.add": "What to add to the score.",
    "RecordChange.hidden": "Whether the record is removed from the ranking. Its events still count.",
    "RecordChange.reason": "Why the score is corrected. The journal keeps it.",
    "RecordChange.score": "The new score.",
    "RecordChange.time": "A time in the slot or period to correct. Default: now.",
    "RecordView.records": "The record with its neighbours.",
    "Rejection.board": "Id of the board that refused the event. Omitted on a server with one board.",
    "Rejection.counted": "True if another board has counted the event, now or before. Omitted otherwise.",
    "Rejection.code": "Stable name of the refusal.",
    "Rejection.retryable": "Whether the reason can pass, so that the same event can count later.",
    "Rejection.index": "Index of the event in the body, from 0.",
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
    "MemberRecords.records": "The record of the member on each board that has it.",
    "Status.reason": "Why the state is stale.",
    "Status.retry_after": "Seconds after which to connect again.",
    "Status.stale": "Whether the records may be out of date.",
    "Sync.period": "Name of the period. Omitted on boards without a ranking for each period.",
    "Sync.recovered": "Whether the viewer resumes from the position it sent.",
    "KeyList.keys": (
        "The API keys: what each may do, the fingerprints of its secrets, and how many requests its rate has `refused`."
    ),
    "KeyChoice.boards": "The boards of the API key, as ids and prefixes such as `acme-*`; `*` for all.",
    "KeyChoice.verbs": "What the API key may do. Default: `post`.",
    "KeyChoice.rate": "Events per second; 0 for no limit. Default: `LIVE_RATE`.",
    "KeyChoice.types": "Event types that boards of this administrator may take; `*` for all.",
    "KeyChoice.for": "How long the API key is valid, such as `30d`, or `never` if it has no end.",
    "KeyChoice.any_board": "Whether `boards` may name boards that do not exist yet.",
    "MadeKey.key": "The API key to send. No other response has it.",
    "MadeKey.fingerprint": "A short public name of the secret.",
    "TokenChoice.boards": "The private boards of the token, as ids and prefixes such as `acme-*`.",
    "TokenChoice.for": "How long the token is valid, such as `8h`.",
    "TokenChoice.key": "The member who is the viewer.",
    "TokenChoice.likes": "The boards on which the viewer may vote, as ids and prefixes.",
    "TokenChoice.sub": "Who votes, if `likes` names a board: the `actor` of the votes.",
    "SignedToken.token": "The token. No other response has it.",
    "SignedToken.expires": "When the token ends.",
    "AuditLog.trail": "Actions of administrators, newest first.",
    "Update.changed": "Records that are new, changed or moved. Insert them in this order.",
    "Update.period": "Name of the period. Omitted on boards without a ranking for each period.",
    "Update.recovered": "Whether the viewer resumes from the position it sent.",
    "Update.removed": "Members that left the list.",
    "Update.since": "Offset to which the update applies.",
    "Viewers.count": "Number of viewers of the board, in all processes.",
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
    "Alive.time": "Time of the server, RFC 3339, up to a second old.",
    "Sync.time": "Time of the server, RFC 3339, up to a second old.",
    "Update.time": "Time of the server, RFC 3339, up to a second old.",
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
            spec["description"] = MEANINGS.get(f"{_MEANT_AS.get(name, name)}.{field}") or MEANINGS[field]
            if len(spec.get("enum", ())) == 1 and field == "type":
                spec["description"] = "Type of the message."
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
        "description": MEANINGS["metadata"],
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
