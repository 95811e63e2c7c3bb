"""The schema of boards files accepts what the server accepts, and finds mistakes before the server does."""

import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.errors import SetupError
from live.web.contract.documents import boards_file_schema
from tests.harness.definitions import EVERY_KIND

TOP = Path(__file__).parents[3]
MISTAKES = (
    "colour = 1", 'title = ""', 'title = "a\\u0000"', 'types = "like"', "types = []", 'operator = "sum"', "cap = 0",
    "union = ['a']", "weights = [1.5]", 'window = "day"', "window = {}", 'window = { rolling = "1h", sliding = "1h" }',
    'window = { rolling = "1 hour" }', 'window = { calendar = "fortnight" }', "votes = { per_key = 0 }",
    'votes = { opens = "soon" }', "score = [{ field = 'a' }]", "max_members = 0", "like_button = 1",
    'journal = "totals"', 'journal_events = "30 days"', 'conflation_interval = "fast"', 'visibility = "hidden"',
    "idle_ttl = 86400", 'frozen = "yes"',
)  # fmt: skip


def in_json(text: str) -> Any:
    """Return the data of a file as editors check it, with times as texts."""
    return msgspec.json.decode(msgspec.json.encode(tomllib.loads(text)))


@pytest.fixture(scope="module")
def schema() -> Any:
    """Return a validator that checks a boards file against the schema."""
    return jsonschema_rs.validator_for(boards_file_schema(), validate_formats=True)


def test_every_sample_file_is_valid(schema: Any) -> None:
    """The samples come from the documentation and from tests, and include every kind of board."""
    pages = [path.read_text(encoding="utf-8") for path in [TOP / "README.md", *(TOP / "docs").glob("*.md")]]
    samples = [text for page in pages for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    found = [text for text in samples if "[[board]]" in text]
    files = [*found, (TOP / "tests/soak/boards.toml").read_text(encoding="utf-8")]
    assert len(found) > 1
    for text in files:
        schema.validate(in_json(text))
        for board in parse_boards(text):
            schema.validate({"board": [{"id": board.id, **board.definition}]})
    for name, choices in EVERY_KIND.items():
        schema.validate({"board": [{"id": name, **choices}]})


@pytest.mark.parametrize("table", ['"acme-*" = { rate = 0 }', '"acme-*" = { borads = 1 }', "acme = {}", '"*" = {}'])
def test_a_mistake_in_limits_is_found(schema: Any, table: str) -> None:
    """A file may have limits without boards. The server refuses the same files as the schema."""
    good = '[limits]\n"acme-*" = { boards = 3, members = 1000, viewers = 50, rate = 10 }\n'
    schema.validate(in_json(good))
    assert parse_boards(good).limits
    text = f"[limits]\n{table}"
    assert not schema.is_valid(in_json(text))
    with pytest.raises(SetupError):
        parse_boards(text)


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_found(schema: Any, line: str) -> None:
    """The server refuses the same file as the schema."""
    text = f'[[board]]\nid = "a"\n{line}'
    assert not schema.is_valid(in_json(text))
    with pytest.raises(SetupError):
        parse_boards(text)


def test_a_file_needs_boards_with_ids(schema: Any) -> None:
    """A file with another table, such as `boards`, is refused too."""
    for text in ("", "board = []", "[[board]]", '[[board]]\nid = "A"', '[[boards]]\nid = "a"', "[board]\nid = 'a'"):
        assert not schema.is_valid(in_json(text))
