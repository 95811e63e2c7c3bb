"""The README lists every word of the contract: settings, codes, close codes, metrics, commands."""

import re
from pathlib import Path

import msgspec
import pytest
from prometheus_client import Counter, Gauge, Histogram

from live import metrics
from live.cli.main import app
from live.domain.board_file import BoardChoice, parse_boards
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import CLOSE_CODES, PROBLEMS, REFUSALS
from live.settings import Settings, environment_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"[A-Za-z0-9_]+", README))
SETTINGS = [environment_name(name) for name in Settings.__struct_fields__]
METRICS = [
    family.name + ("_total" if isinstance(value, Counter) else "")
    for value in vars(metrics).values()
    if isinstance(value, Counter | Gauge | Histogram)
    for family in value.describe()
]


@pytest.mark.parametrize("variable", SETTINGS)
def test_every_setting_is_documented(variable: str) -> None:
    """Each by the name of its environment variable."""
    assert variable in WORDS


@pytest.mark.parametrize("field", msgspec.structs.fields(Settings), ids=lambda field: field.name)
def test_the_meaning_of_a_setting_is_the_tables(field: msgspec.structs.FieldInfo) -> None:
    """The README says of a setting what --help says."""
    meaning = next(part.description for part in field.type.__metadata__ if isinstance(part, msgspec.Meta))
    assert meaning is not None
    assert " ".join(meaning.split()) in " ".join(README.split())


def test_no_setting_is_documented_that_is_not_there() -> None:
    """A variable that was renamed is renamed in the README too."""
    known = {*SETTINGS, "LIVE_", "LIVE_KEY"}  # the last is read by the commands that send events
    assert {word for word in WORDS if word.startswith("LIVE_")} <= known


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_is_documented(code: str) -> None:
    """Each with its HTTP status on the same line."""
    assert any(re.search(rf"\b{code}\b.*\b{PROBLEMS[code].status}\b|\b{PROBLEMS[code].status}\b.*\b{code}\b", line)
               for line in README.splitlines())  # fmt: skip


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refusal_is_documented(code: str) -> None:
    """Each by its code."""
    assert code in WORDS


@pytest.mark.parametrize("code", CLOSE_CODES)
def test_every_close_code_is_documented(code: int) -> None:
    """Each by its number, with its reason on the same line."""
    assert any(str(code) in line and CLOSE_CODES[code].reason in line for line in README.splitlines())


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented(name: str) -> None:
    """Each by the name under which Prometheus stores it."""
    assert name in WORDS


def test_no_metric_is_documented_that_is_not_there() -> None:
    """Names of histograms may carry what Prometheus appends to them."""
    documented = {word for word in WORDS if re.fullmatch(r"live_[a-z_]+", word)}
    assert {re.sub(r"_(bucket|count|sum)$", "", word) for word in documented} <= set(METRICS)


@pytest.mark.parametrize("name", [str(command.name or command.callback.__name__) for command in app.registered_commands
                                  if command.callback is not None])  # fmt: skip
def test_every_command_is_documented(name: str) -> None:
    """Each as one would type it."""
    assert re.search(rf"\blive {name}\b", README)


def test_the_boards_of_the_readme_are_boards() -> None:
    """Its example is a file that a server takes, and shows every kind of window, operator and feed."""
    (text,) = (block for block in re.findall(r"```toml\n(.*?)```", README, re.DOTALL) if "[[board]]" in block)
    boards = parse_boards(text)
    assert {type(board.window) for board in boards} == {Rolling, Sliding, Periods, Forever}
    assert {board.operator for board in boards} == {"incr", "best"}
    assert any(board.union for board in boards)
    assert any(board.votes for board in boards)
    assert any(board.score for board in boards)


@pytest.mark.parametrize("choice", BoardChoice.__struct_fields__)
def test_every_choice_is_documented(choice: str) -> None:
    """Each by its name, in the table of choices."""
    assert re.search(rf"^\|.*`{choice}`.*\|", README, re.MULTILINE)


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "docs/security.md"])
def test_what_a_document_names_is_there(name: str) -> None:
    """Its links lead to files and headings, and its settings are settings."""
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"\bLIVE_[A-Z_]+\b", text)) <= {*SETTINGS, "LIVE_KEY"}
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        file, _, heading = link.partition("#")
        target = (path.parent / file) if file else path
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
        assert not heading or heading in {
            re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings
        }


def test_the_readme_says_what_is_public() -> None:
    """Boards and metrics are, in plain words, before anybody opens a server to others."""
    public = README.split("## What is public")[1].split("## ")[0]
    assert "may read every board" in public
    assert "`/metrics`" in public
    assert "docs/security.md" in public
