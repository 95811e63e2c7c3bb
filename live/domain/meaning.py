"""What fields mean: their descriptions in the contracts. Several fields share each of the constants."""

from typing import Any, Final

from msgspec import Meta


def says(meaning: str, **limits: Any) -> Meta:  # noqa: ANN401 - as `Meta`
    """Describe a field."""
    return Meta(description=meaning, **limits)


ACTOR: Final = says("The person or thing that caused the event. Required on boards that count votes.")
BOARD: Final = says("Id of a board.")
CATEGORY: Final = says("Category of the event. A board that names categories takes only events of these categories.")
DEFINITION: Final = says(
    "A text that changes with the definition of the board. Updates omit it while the viewer stays."
)
DETAIL: Final = says("What is wrong, for people. The text may change.")
EPOCH: Final = says(
    "Identifies the data of the board. It changes when the board starts again, and when its contents are replaced."
)
FIELDS: Final = says("Whole numbers by name, for boards whose score is made of fields.")
FINAL: Final = says("True for a period that the board does not keep any more. Omitted on other periods.")
GAP: Final = says("Points behind the next rank. Null for the first record.")
ID: Final = says(
    "Identity of the event within its `source`. An event with an id counts once, however often it is sent."
)
IMAGE: Final = says("URL of a small picture. It begins with `https://`, and its host is in `LIVE_IMAGE_HOSTS`.")
INDEX: Final = says("Index of the event in the body, from 0.")
ITEMS: Final = says("The items.")
MEMBER: Final = says(
    "The member: 1 to 1,024 bytes of UTF-8 in NFC, without control or format characters. It is not `.` or `..`."
)
METADATA: Final = says(
    "A JSON object of up to 4,096 bytes that is stored with the record. Its strings have no control or format "
    "characters."
)
NEXT_CURSOR: Final = says("`cursor` of the next page. Null on the last page.")
OFFSET: Final = says("Number of changes of the board in this epoch.")
PERIOD: Final = says("Name of the period. Null on boards without a ranking for each period.")
PERIOD_SHOWN: Final = says("Name of the period. Omitted on boards without a ranking for each period.")
RANK: Final = says("Place in the ranking, from 1.")
RANK_COUNT: Final = says("Number of records on the board.")
RECORDS: Final = says("Records in the order of their ranks.")
RECOVERED: Final = says("Whether the viewer resumes from the position it sent.")
REPLACES: Final = says(
    "Member from which the `actor` takes the same amount back in the same step, on boards that count votes. If the "
    "actor has given it no such vote, nothing counts."
)
REVISION: Final = says(
    "How many times the period became final. A period that the board keeps again becomes final once more."
)
SCORE: Final = says("A whole number within ±2^53.")
SCORE_THEN: Final = says("The score at that time. Null if the member was not on the board.")
SERVER_TIME: Final = says("Time of the server, RFC 3339, up to a second old.")
SOURCE: Final = says("Namespace of the `id`, such as the name of the sender.")
TIME: Final = says("Time of the event, RFC 3339 with an offset. Default: now.")
TITLE: Final = says("What pages show instead of the member: 1 to 200 characters.")
TOTAL_SCORE: Final = says("Sum of all scores. Null where scores are not amounts.")
TYPE: Final = says("Type of the event. It feeds the boards that name it in `types`. Default `like`.")
URL: Final = says("Link of the member's title. It begins with `https://`.")
VIEWER_COUNT: Final = says("Number of viewers of the board, in all processes.")
