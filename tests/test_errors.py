"""The tables of what can go wrong: sane, and in step with the code that speaks of them."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from live.errors import CLOSE_CODES, PROBLEMS, REFUSALS, ProblemError

ROOMS = Path(__file__).parent.parent / "live"
SOURCES = [path for path in ROOMS.rglob("*.py") if path.name != "errors.py"]
SCRIPTS = list(ROOMS.rglob("*.lua"))


def words(sources: Iterable[Path]) -> set[str]:
    """Every quoted word of some sources."""
    return {word for path in sources for word in re.findall(r"""["']([a-z_0-9]+)["']""", code_of(path))}


def code_of(path: Path) -> str:
    """A source without the comments of Lua, which quote words too."""
    text = path.read_text(encoding="utf-8")
    return re.sub("--.*", "", text) if path.suffix == ".lua" else text


@pytest.mark.parametrize("code", [*PROBLEMS, *REFUSALS])
def test_a_code_is_a_plain_word(code: str) -> None:
    """Codes are lower case with underscores, so that they are good names in any language."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)


@pytest.mark.parametrize("code", PROBLEMS)
def test_a_problem_has_a_status_and_a_title_of_its_own(code: str) -> None:
    """The title is a sentence for people, without a full stop; the status is an error's."""
    status, title = PROBLEMS[code]
    assert 400 <= status <= 599
    assert title[0].isupper()
    assert not title.endswith(".")
    assert [problem.title for problem in PROBLEMS.values()].count(title) == 1


def test_no_code_means_two_things() -> None:
    """A problem and a refusal are never mixed up."""
    assert not PROBLEMS.keys() & REFUSALS.keys()


@pytest.mark.parametrize("code", [*PROBLEMS, *REFUSALS])
def test_every_code_of_the_tables_is_spoken(code: str) -> None:
    """A code that nothing ever answers with is not promised."""
    assert code in words([*SOURCES, *SCRIPTS])


def test_every_problem_that_is_raised_is_in_the_table() -> None:
    """No route can raise what the table does not know."""
    raised = {
        code for path in SOURCES for code in re.findall(r'ProblemError\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert raised
    assert raised <= PROBLEMS.keys()


@pytest.mark.parametrize("code", CLOSE_CODES)
def test_a_close_code_tells_whether_to_come_back(code: int) -> None:
    """3000 to 3499 come back, 3500 to 3999 do not."""
    close = CLOSE_CODES[code]
    assert 3000 <= code <= 3999
    assert close.reconnect == (code < 3500)
    assert close.reason
    assert len(close.reason.encode()) <= 123  # what fits into a close frame


def test_a_problem_tells_its_code_and_detail() -> None:
    """A log line of a problem says what it was."""
    assert str(ProblemError("overloaded", "too much", retry_after=1)) == "overloaded: too much"
