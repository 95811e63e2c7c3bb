"""The documentation lists everything in the contract, and its references exist."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import typer
from prometheus_client import Counter, Gauge, Histogram

from bench.__main__ import PARTS
from live import metrics
from live.cli.main import app
from live.domain.board_file import parse_boards
from live.domain.choices import Choices
from live.domain.window import Forever, Periods, Rolling, Sliding
from live.errors import CLOSE_CODES, PROBLEMS, REFUSALS, RETRYABLE
from live.settings import METAS, OTHER_VARIABLES, Settings, environment_name

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS: Final = [environment_name(name) for name in Settings.__struct_fields__]
LIVE: Final = ROOT / "live"
SOURCES: Final = sorted(path for path in LIVE.rglob("*") if path.suffix in {".py", ".lua"})
FOLDERS: Final = sorted({f"{path.parent.relative_to(LIVE)}/" for path in SOURCES if path.parent != LIVE})
MODULES: Final = sorted(path.name for path in LIVE.glob("*.py") if not path.name.startswith("__"))
METRICS: Final = [
    family.name + ("_total" if isinstance(value, Counter) else "")
    for value in vars(metrics).values()
    if isinstance(value, Counter | Gauge | Histogram)
    for family in value.describe()
]


def rows(page: str) -> list[list[str]]:
    """The cells of every row of the tables on a page."""
    lines = [line for line in DOCS[page].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def first_cells(page: str) -> set[str]:
    """All code words in the first cells of rows."""
    return {word for row in rows(page) for word in re.findall(r"`([^`]+)`", row[0])}


def test_every_setting_is_documented() -> None:
    """The page describes each setting in the same words as `--help`, and says what a larger value costs."""
    for name, meta in METAS.items():
        assert meta.extra is not None
        (row,) = (row for row in rows("settings") if row[0] == f"`{environment_name(name)}`")
        assert row[2:] == [meta.description, meta.extra["costs"]], name


def test_there_are_at_most_50_settings() -> None:
    """A limit that follows from another is computed, and one that nobody can choose well is a constant."""
    assert len(SETTINGS) <= 50


def test_pages_name_only_existing_settings() -> None:
    """Each name on a page that begins with `LIVE_` is a setting, or one of `OTHER_VARIABLES`."""
    for path in PAGES:
        named = set(re.findall(r"\bLIVE_[A-Z_]+\b", path.read_text(encoding="utf-8")))
        assert named <= {*SETTINGS, *OTHER_VARIABLES, "LIVE_"}, path


def test_every_problem_code_is_documented() -> None:
    """The table has each code with its HTTP status."""
    for code in PROBLEMS:
        assert any(row[0] == str(PROBLEMS[code].status) and f"`{code}`" in row[1] for row in rows("http-api")), code


def test_the_documentation_lists_what_is_retryable() -> None:
    """The page lists the codes of refusals and of problems after which the same request can succeed."""
    listed = re.findall(r"^`retryable` is true (.*?)\.", DOCS["http-api"], re.MULTILINE | re.DOTALL)
    assert {code for codes in listed for code in re.findall(r"`(\w+)`", codes)} == RETRYABLE


def test_every_refusal_code_is_documented() -> None:
    """Each code is in the first column of a table."""
    for code in REFUSALS:
        assert code in first_cells("http-api")


@pytest.mark.parametrize("code", CLOSE_CODES)
def test_every_close_code_is_documented(code: int) -> None:
    """The table has each code with its reason, and whether to reconnect."""
    (row,) = (row for row in rows("live-protocol") if row[0] == str(code))
    assert row[1].startswith(CLOSE_CODES[code].reason)
    assert row[2].startswith("yes") is CLOSE_CODES[code].reconnect


def test_every_metric_is_documented() -> None:
    """The table has each metric with its name in Prometheus."""
    for name in METRICS:
        assert name in first_cells("metrics")


def test_only_existing_metrics_are_documented() -> None:
    """Each row of the table of metrics is a metric."""
    assert {name for name in first_cells("metrics") if name.startswith("live_")} == set(METRICS)


def commands() -> list[str]:
    """Every command as you type it."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    context = group.make_context("live", [], resilient_parsing=True)
    names = []
    for name in group.list_commands(context):
        inner = getattr(group.get_command(context, name), "commands", {})
        names += [f"live {name} {other}" for other in inner] or [f"live {name}"]
    return names


def test_every_command_is_documented() -> None:
    """The table of commands has each command."""
    for command in commands():
        assert any(word == command or word.startswith(f"{command} ") for word in first_cells("commands"))


def test_every_choice_of_a_board_is_documented() -> None:
    """The table of choices has each choice."""
    for choice in Choices.__struct_encode_fields__:
        assert choice in first_cells("boards")


def test_the_example_file_has_every_kind_of_board() -> None:
    """A server accepts the file."""
    (text,) = re.findall(r"```toml\n(.*?)```", DOCS["boards"], re.DOTALL)
    boards = parse_boards(text)
    assert {type(board.window) for board in boards} == {Rolling, Sliding, Periods, Forever}
    assert {board.operator for board in boards} == {"incr", "best"}
    assert any(board.union for board in boards)
    assert any(board.votes for board in boards)
    assert any(board.packing for board in boards)


def test_the_evening_explains_each_refused_vote() -> None:
    """The page has each message with which a phone refuses a vote or a ticket. A name or a number in it may differ."""
    page = DOCS["voting-evening"].lower()
    texts = json.loads((ROOT / "templates" / "words" / "en.json").read_text(encoding="utf-8"))
    refused = [
        text.removeprefix("Not counted: ").replace("{name}", "Echo")
        for name, text in texts.items()
        if name.startswith("refused: ") or name in {"ticket_unknown", "ticket_off", "ticket_wait"}
    ]
    assert len(refused) > 15
    assert [text for text in refused if re.split(r"[.,]| in \{n\}", text)[0].lower() not in page] == []


def test_every_unit_cost_can_be_measured_again() -> None:
    """The command in each row of the table runs an existing part of the benchmarks."""
    named = re.findall(r"`python -m bench --only ([\w-]+)`", DOCS["sizing"])
    assert named
    assert set(named) <= set(PARTS)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", without_code(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


def without_code(text: str) -> str:
    """A page without its code blocks, because `#` does not start a heading in them."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_every_internal_link_resolves() -> None:
    """Each link leads to a file, and to a heading if it names one.

    Pages of the site do not link to files outside of it.
    """
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text) + re.findall(
            r'src(?:set)?="(?!https?:)([^"]+)"', text
        ):
            file, _, heading = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.is_file(), link
            assert path.parent == ROOT or target.parent == ROOT / "docs", f"{link} leads out of the site"
            assert not heading or heading in anchors(target), link


def wrong_names(page: str) -> set[str]:
    """Return files, folders and functions that a page names and that do not exist.

    Paths begin with `tests/`, or are relative to `live`.
    """
    found = {
        path
        for path in re.findall(r"`([^`\s]+(?:\.py|\.lua|/))`", page)
        if not ((ROOT if path.startswith("tests/") else LIVE) / path).exists()
    }
    return found | (set(re.findall(r"`([\w.]+)\(\)`", page)) - functions())


@cache
def functions() -> set[str]:
    """The functions of the code in Python and Lua; methods also with the names of their classes."""
    found = set()
    for path in SOURCES:
        before, *classes = re.split(r"^class (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for owner, body in zip(["", *classes[::2]], [before, *classes[1::2]], strict=True):
            for name in re.findall(r"\b(?:def|function) (\w+)\(", body):
                found |= {name, f"{owner}.{name}"}
    return found


def test_the_pages_for_developers_name_what_exists() -> None:
    """Each file, folder and function that these pages name exists."""
    for page in ("architecture", "walks", "store-keys", "tested-faults"):
        assert wrong_names(DOCS[page]) == set(), page
    steps = DOCS["contributing"].split("## Add a choice to a board")[1].split("## Write code")[0]
    assert wrong_names(steps) == set()


@pytest.mark.parametrize(
    ("name", "wrong", "found"),
    [
        ("`fanout/hub.py`", "`fanout/hubs.py`", "fanout/hubs.py"),
        ("`store/lua/add.lua`", "`store/lua/count.lua`", "store/lua/count.lua"),
        ("`journal/log/`", "`journal/logs/`", "journal/logs/"),
        ("`read_tops()`", "`read_all_tops()`", "read_all_tops"),
        ("`Hub.admit()`", "`Hub.select()`", "Hub.select"),
    ],
)
def test_a_wrong_name_on_the_architecture_page_is_found(name: str, wrong: str, found: str) -> None:
    """The check finds the one name that was made wrong, and no other."""
    page = DOCS["architecture"] + DOCS["walks"]
    assert name in page
    assert wrong_names(page.replace(name, wrong)) == {found}


def test_the_architecture_page_names_every_package() -> None:
    """The table has each folder of `live`, and each module beside the folders."""
    for package in [*FOLDERS, *MODULES]:
        assert f"`{package}`" in DOCS["architecture"].split("## Packages")[1].split("## ")[0]


def test_every_page_is_reachable() -> None:
    """`index.md` links every page."""
    assert {f"{name}.md" for name in DOCS} - {"index.md"} == set(re.findall(r"\]\(([a-z-]+\.md)\)", DOCS["index"]))


def test_the_readme_is_short() -> None:
    """The README has at most 110 lines. Everything else is in docs."""
    assert len(README.splitlines()) <= 110


def test_pages_are_short() -> None:
    """No page has more than 2,500 words, and all pages together have at most 37,600, as `wc -w` counts them."""
    words = {name: len(text.split()) for name, text in DOCS.items()}
    assert max(words.values()) <= 2500, words
    assert sum(words.values()) <= 37_600, words


def test_the_readme_explains_what_is_public() -> None:
    """The README says that strangers can read boards, and links the page about security."""
    public = README.split("## What is public")[1].split("## ")[0]
    assert "can read every board" in public
    assert "`/metrics`" in public
    assert "docs/security.md" in public


@pytest.mark.slow
def test_pictures_are_small_and_used() -> None:
    """The documentation shows every picture of `docs`, and no other. Each picture has at most 64 KB."""
    pictures = {
        path.name: path.stat().st_size for path in (ROOT / "docs").iterdir() if path.suffix in {".png", ".webp"}
    }
    shown = {name for text in DOCS.values() for name in re.findall(r"[\w-]+\.(?:png|webp)", text)}
    assert shown == set(pictures)
    assert max(pictures.values()) <= 64 * 1024
