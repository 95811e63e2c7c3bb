"""Readers, scopes of boards, and the gate that shows private boards only to their readers."""

import ast
from pathlib import Path

import pytest

from live.domain.board_file import parse_boards
from live.domain.reader import ALL_BOARDS, NO_BOARDS, NOBODY, SERVER, BoardScope, Gated, Reader
from live.errors import ProblemError, SetupError, StoreUnavailableError
from tests.harness.boards import built

LIVE = Path(__file__).parents[2] / "live"


def test_a_scope_has_ids_and_prefixes() -> None:
    """`*` is the prefix of all ids. A prefix is no id by itself."""
    scope = BoardScope.of(("posts", "acme-*"))
    assert [name in scope for name in ("posts", "posts2", "acme-", "acme-x", "acme", "acm")] == [
        True, False, True, True, False, False,
    ]  # fmt: skip
    assert "anything" in ALL_BOARDS
    assert "anything" not in NO_BOARDS
    assert BoardScope.of(("a", "b-*")) == BoardScope.of(("b-*", "a"))


def test_the_gate_shows_private_boards_only_to_their_readers() -> None:
    """The boards keep their order. A board that turns private or public stays in its place."""
    gated: Gated[str] = Gated()
    for name in ("a", "b", "c"):
        gated.put(built(id=name, title=name), name)
    gated.put(built(id="b", title="b", visibility="private"), "B")
    gated.put(built(id="undecided", title="u", visibility=None), "u")
    reader = Reader(BoardScope.of(("b",)))
    assert (gated.all(NOBODY), gated.all(reader)) == (["a", "c"], ["a", "B", "c"])
    assert gated.all(SERVER) == ["a", "B", "c", "u"]
    assert [gated.find("b", who) for who in (NOBODY, reader, SERVER)] == [None, "B", "B"]
    reader.opens = NO_BOARDS
    assert gated.find("b", reader) is None
    assert reader.sees_more
    gated.put(built(id="b", title="b"), "again")
    assert gated.all(NOBODY) == ["a", "again", "c"]
    assert (gated.remove("undecided", NOBODY), gated.remove("undecided", SERVER)) == (None, "u")
    assert (len(gated), gated.has_private) == (3, False)


def test_a_refusal_says_what_is_wrong_with_the_credentials() -> None:
    """The refusal depends on the reader alone. If the credentials could not be checked, the client should try again."""
    assert isinstance(NOBODY.refusal(), ProblemError)
    assert "revoked" in str(Reader(fault="the API key is revoked").refusal())
    assert isinstance(Reader(is_sure=False).refusal(), StoreUnavailableError)
    with pytest.raises(StoreUnavailableError):
        Reader(is_sure=False).require_sure()


@pytest.mark.parametrize(
    ("part", "union", "is_valid"),
    [
        ("", "", True), ("", "private", True), ("", "public", False),
        ("public", "", True), ("public", "private", True), ("public", "public", True),
        ("private", "", False), ("private", "private", True), ("private", "public", False),
    ],
)  # fmt: skip
def test_a_union_is_no_more_public_than_its_parts(part: str, union: str, is_valid: bool) -> None:  # noqa: FBT001
    """The rule holds whatever the default visibility of the server is."""

    def choice(text: str) -> str:
        return f'visibility = "{text}"\n' if text else ""

    text = f'[[board]]\nid = "a"\n{choice(part)}[[board]]\nid = "b"\nvisibility = "public"\n'
    text += f'[[board]]\nid = "u"\nunion = ["a", "b"]\n{choice(union)}'
    if is_valid:
        assert len(parse_boards(text).by_id) == 3
    else:
        with pytest.raises(SetupError, match="a union shows what its parts hold"):
            parse_boards(text)


def test_no_request_reads_as_the_server() -> None:
    """In the code of requests, three places use `SERVER`, which may read every board, or the lists of all boards."""
    own = {"SERVER", "channels", "committers"}
    # A correction also goes to the unions of its board, and does not ask who may read them.
    # The code of a ticket opens its board, which may be private.
    allowed = {("web/parts.py", "committers"), ("web/api/admin.py", "SERVER"), ("web/pages/ticket.py", "SERVER")}
    found = set()
    for folder in ("web", "protocols"):
        for path in (LIVE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if name in own:
                    found.add((str(path.relative_to(LIVE)), name))
    assert found == allowed
