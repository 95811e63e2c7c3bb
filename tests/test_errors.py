"""The tables of errors are consistent, and match the code that uses them."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from live.errors import CLOSE_CODES, PROBLEMS, REFUSALS, RETRYABLE, ProblemError

ROOMS = Path(__file__).parent.parent / "live"
SOURCES = [path for path in ROOMS.rglob("*.py") if path.name != "errors.py"]
SCRIPTS = list(ROOMS.rglob("*.lua"))


def words(sources: Iterable[Path]) -> set[str]:
    """Return all quoted words of some sources."""
    return {word for path in sources for word in re.findall(r"""["']([a-z_0-9]+)["']""", code_of(path))}


def code_of(path: Path) -> str:
    """A source without Lua comments, which may contain quoted words."""
    text = path.read_text(encoding="utf-8")
    return re.sub("--.*", "", text) if path.suffix == ".lua" else text


def test_a_code_is_a_plain_word() -> None:
    """A code is in lower case with underscores, so that it is a valid name in any language."""
    for code in [*PROBLEMS, *REFUSALS]:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)


def test_a_problem_has_a_status_and_a_unique_title() -> None:
    """The title is a sentence without a full stop. The status is from 400 to 599."""
    for code, (status, title) in PROBLEMS.items():
        assert 400 <= status <= 599, code
        assert title[0].isupper(), code
        assert not title.endswith("."), code
        assert [problem.title for problem in PROBLEMS.values()].count(title) == 1, code


def test_no_code_has_two_meanings() -> None:
    """A code is either a problem or a refusal."""
    assert not PROBLEMS.keys() & REFUSALS.keys()


def test_a_refusal_for_the_time_names_the_clock_and_what_sets_the_limit() -> None:
    """A producer can tell a wrong clock from a limit that is too narrow."""
    assert all("clock" in REFUSALS[code] for code in ("late", "early"))
    assert "a minute" in REFUSALS["early"]
    assert all(choice in REFUSALS["late"] for choice in ("`window`", "`grace`"))


def test_what_is_retryable_is_in_a_table() -> None:
    """`RETRYABLE` has only codes that exist, and every problem with the status 408, 429, 500 or 503."""
    assert {*PROBLEMS, *REFUSALS} >= RETRYABLE
    assert {code for code, problem in PROBLEMS.items() if problem.status in {408, 429, 500, 503}} <= RETRYABLE


def test_every_code_is_used() -> None:
    """Each code of the tables is a quoted word in some source."""
    assert {*PROBLEMS, *REFUSALS} <= words([*SOURCES, *SCRIPTS])


def test_every_raised_problem_is_in_the_table() -> None:
    """The table has each code with which the sources raise a `ProblemError`."""
    raised = {
        code for path in SOURCES for code in re.findall(r'ProblemError\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert raised
    assert raised <= PROBLEMS.keys()


@pytest.mark.parametrize("code", CLOSE_CODES)
def test_a_close_code_determines_whether_to_reconnect(code: int) -> None:
    """Clients reconnect after 3000 to 3499, not after 3500 to 3999."""
    close = CLOSE_CODES[code]
    assert 3000 <= code <= 3999
    assert close.reconnect == (code < 3500)
    assert close.reason
    assert len(close.reason.encode()) <= 123  # the limit for the reason in a close frame


def test_a_problem_shows_its_code_and_detail() -> None:
    """The text has the code and then the detail. Log lines use it."""
    assert str(ProblemError("overloaded", "too much", retry_after=1)) == "overloaded: too much"
