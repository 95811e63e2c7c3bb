"""Posts an event with a generated client, and reads the board. The address of the server is the first argument."""

import sys

from generated import Client  # type: ignore[import-not-found]
from generated.api.boards import get_board  # type: ignore[import-not-found]
from generated.api.events import post_events  # type: ignore[import-not-found]
from generated.models import Answer, BoardPage, Event  # type: ignore[import-not-found]

with Client(base_url=sys.argv[1]) as client:
    answer = post_events.sync(client=client, body=Event(key="from Python", amount=3))
    assert isinstance(answer, Answer), answer
    answer = post_events.sync(client=client, body=[Event(key="from Python"), Event(key="b", type_="like")])
    assert isinstance(answer, Answer), answer
    assert answer.accepted == 2, answer
    page = get_board.sync("posts", client=client, limit=5)
    assert isinstance(page, BoardPage), page
    print(answer.accepted, ", ".join(f"{record.key} {record.score}" for record in page.records))  # noqa: T201
