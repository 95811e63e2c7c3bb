"""The mistakes that people make, and the messages that they get, in the table `mistakes.txt`.

To see the messages after a change of the code, run `python -m tests.test_mistakes`, which writes them into the table.
"""

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from live.domain.board_file import make_board, parse_boards
from live.domain.choices import Choices
from live.errors import SetupError
from live.settings import load_settings
from tests.harness.boards import rolling_board
from tests.harness.server import server
from tests.harness.store import valkey

TABLE: Final = Path(__file__).with_name("mistakes.txt")
INDENT: Final = "    "


def sections() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Return each section of the table: its title, and the mistakes with the lines of their messages."""
    for section in TABLE.read_text(encoding="utf-8").split("\n# ")[1:]:
        title, *lines = section.rstrip().split("\n")
        found: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith(INDENT):
                found[-1][1].append(line.removeprefix(INDENT))
            elif line:
                found.append((line, []))
        yield title, found


def of_board(line: str) -> list[str]:
    """Return what the server says about a line of a boards file."""
    own = "" if line.startswith("id ") else 'id = "b"\n'
    try:
        parse_boards(f'[[board]]\nid = "a"\n[[board]]\n{own}{line}')
    except SetupError as error:
        return [said.partition("): ")[2] or said for said in str(error).split("\n")]
    return []


def of_setting(line: str) -> list[str]:
    """Return what the server says about an environment variable."""
    name, _, value = line.partition("=")
    try:
        load_settings({name: value})
    except SetupError as error:
        return str(error).split("\n")
    return []


async def of_request(client: httpx.AsyncClient, line: str) -> list[str]:
    """Return what a server says to a request."""
    method, path, *body = line.split(" ", 2)
    headers = {"Content-Type": "application/json"} if body else {}
    answer = await client.request(method, path, content=body[0] if body else None, headers=headers)
    if answer.headers["content-type"] != "application/problem+json":
        refused = answer.json()["rejected"]
        return [f"{one['code']}: {one['detail']}" for one in refused]
    problem = answer.json()
    assert problem["type"] == f"/docs#{problem['code']}"
    return [f"{problem['status']} {problem['code']}: {problem['detail']}".replace("\n", f"\n{INDENT}")]


async def said(store: str) -> str:
    """Return the table with the messages of the current code."""
    text = TABLE.read_text(encoding="utf-8").partition("\n# ")[0]
    boards = (
        rolling_board(),
        make_board(Choices(id="photos", types=("photo",))),
        make_board(Choices(id="songs", types=("score",), category=("pop", "rock"))),
    )
    async with server(store, *boards, anonymous_admin=True) as client:
        for title, mistakes in sections():
            text += f"\n# {title}\n"
            for mistake, _ in mistakes:
                messages = (
                    of_setting(mistake) if mistake.startswith("LIVE_")
                    else await of_request(client, mistake) if mistake.split(" ")[0].isupper()
                    else of_board(mistake)
                )  # fmt: skip
                text += "".join(f"{line}\n" for line in (mistake, *(INDENT + message for message in messages)))
    return text


async def test_every_mistake_has_its_message(valkey_url: str) -> None:
    """The table has at least a hundred messages. No message shows a type of Python or JSON, or a regular expression."""
    expected = TABLE.read_text(encoding="utf-8")
    messages = [message for _, mistakes in sections() for _, lines in mistakes for message in lines]
    assert len(messages) >= 100
    assert not [message for message in messages if re.search(r"`str`|`int`|\^\[|None", message)]
    assert await said(valkey_url) == expected


async def test_the_documentation_of_each_problem_is_where_problems_say(valkey_url: str) -> None:
    """The `type` of a problem includes the root path, and leads to an anchor that the page has."""
    async with server(valkey_url, root_path="/live") as client:
        problem = (await client.get("/live/v1/bords")).json()
        assert problem["type"] == "/live/docs#not_found"
        assert problem["detail"] == "did you mean /live/v1/boards?"
        assert 'id="not_found"' in (await client.get("/live/docs")).text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="live-") as folder:
        own = valkey(Path(folder))
        own.start()
        table = asyncio.run(said(own.url))
        own.kill()
    TABLE.write_text(table, encoding="utf-8")
