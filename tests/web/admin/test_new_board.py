"""The page for a new board: the definition that the answers give, mistakes in answers, and the preview."""

import itertools
import re
import tomllib
from html import unescape

import msgspec
import pytest

from live.boards.definition import DefinitionError, forbidden, read_board
from live.domain.board_file import parse_boards
from live.web.admin.board import board_toml
from live.web.admin.new_board import FIXED, KEPT, TIES, VOTERS, WINDOWS, choices_of_answers, with_more
from tests.harness.admin import Administrator, add_key, administrator, fields_of, trail_of
from tests.harness.producer import post
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

ANSWERS = {
    "source": "like, share", "window": "forever", "timezone": "Asia/Shanghai", "kept": "incr", "votes": "programs",
    "count": "3", "ties": "first", "title": 'A "title" \\ of mine', "visibility": "public",
}  # fmt: skip
OPTIONS = {"window": tuple(WINDOWS), "kept": KEPT, "votes": VOTERS, "ties": TIES}


def test_each_answer_is_a_definition_that_says_the_same_as_toml() -> None:
    """For all valid combinations of answers, a boards file gives the same definition."""
    valid = 0
    for answers in itertools.product(*OPTIONS.values()):
        choices = choices_of_answers({**ANSWERS, **dict(zip(OPTIONS, answers, strict=True))})
        try:
            board = read_board("mine", choices)
        except DefinitionError:
            continue
        valid += 1
        assert list(parse_boards(board_toml("mine", choices))) == [board]
    assert valid > 100


def test_other_choices_are_added_as_toml() -> None:
    """Choices that are added to a table such as `window` do not replace the answers in it.

    A boards file gives the same definition.
    """
    answers = {**ANSWERS, "window": "week", "day_start": "09:00", "votes": "once"}
    more = 'ranks = "dense"\nwindow = { keep = 3 }\nvotes = { closes = 2026-12-01T12:00:00Z }'
    choices = with_more(choices_of_answers(answers), more)
    week = {"calendar": "week", "timezone": "Asia/Shanghai", "day_start": "09:00", "keep": 3}
    votes = {"per_key": 1, "closes": "2026-12-01T12:00:00Z"}
    assert {name: choices[name] for name in ("ranks", "window", "votes")} == {
        "ranks": "dense", "window": week, "votes": votes,
    }  # fmt: skip
    assert list(parse_boards(board_toml("mine", choices))) == [read_board("mine", choices)]
    odd = {'a "b"': {"c.d": [1.5, {"": "\x7f"}]}}
    assert tomllib.loads(board_toml("mine", odd)) == {"board": [{"id": "mine", **odd}]}


def test_the_questions_say_which_answers_are_fixed() -> None:
    """An answer is marked as fixed if and only if a board with data refuses to change it."""
    base = read_board("mine", choices_of_answers(ANSWERS))
    for question, options in {**OPTIONS, "source": ("x",), "title": ("y",), "visibility": ("private",)}.items():
        changed = [read_board("mine", choices_of_answers({**ANSWERS, question: option})) for option in options]
        others = [board for board in changed if board != base]
        assert all(any(forbidden(base, board)) for board in others) is (question in FIXED), question
    registered = read_board("mine", choices_of_answers({**ANSWERS, "registered": "1"}))
    assert list(forbidden(base, registered))


async def send(browser: Administrator, act: str, **answers: str) -> str:
    """Send the form without its empty answers; returns the page."""
    page = (await browser.get("new")).text
    tokens = {f"token_{one}": token for one, token in re.findall(r'name="token_(\w+)" value="(\w+)"', page)}
    filled = {name: text for name, text in {**ANSWERS, **answers}.items() if text}
    return (await browser.send("new", {**tokens, **filled, "act": act})).text


def errors_beside(html: str) -> dict[str, int]:
    """Return how many mistakes are beside each question."""
    parts = re.findall(r'<div id="wrong-(\w*)" data-made>(.*?)</div>', html, re.DOTALL)
    return {question: part.count("<p ") for question, part in parts if "<p " in part}


async def test_all_mistakes_are_beside_their_questions_and_a_right_board_is_made_as_by_the_api(valkey_url: str) -> None:
    """All mistakes are shown at once. With a limited API key, they include what the API key may not do.

    No board is made before all answers are right.
    """
    settings = fresh_settings(valkey_url)
    key = await add_key(settings, "chief")
    limited = await add_key(settings, "two", "my-*", sources=("like",))
    async with administrator(settings, key=key) as browser:
        for act in ("preview", "create"):
            page = await send(
                browser, act, id="posts", source="", kept="best_high", window="last_24h", title="a\u202eb",
                votes="several", count="x", timezone="",
            )  # fmt: skip
            found = errors_beside(page)
            assert {"id", "source", "kept", "votes", "title"} <= set(found), found
            assert 'value="a\u202eb"' in page
        assert errors_beside(await send(browser, "create", id="No id!")).keys() == {"id"}
        for more in (
            "cap = ", "max_members = 0", "strange = 1", 'id = "other"', f"cap = {'9' * 30}", f"cap = {'9' * 5000}",
            f"cap = {'[' * 3000}", "cap = nan", "cap = -inf", "votes = { per_key = 1e400 }", "types = [nan]",
        ):  # fmt: skip
            page = await send(browser, "create", id="mine", more_choices=more)
            assert "more_choices" in errors_beside(page), more[:20]
        assert errors_beside(await send(browser, "create", id="mine", window="week", timezone="Nowhere/X")).keys() == {
            "window"
        }
        assert [entry.what for entry in await trail_of(settings)] == ["signed_in"]
        await send(browser, "create", id="mine")
        made, choices = (await trail_of(settings))[0], choices_of_answers(ANSWERS)
        await browser.client.put("/v1/boards/other", json=choices, headers={"Authorization": f"Bearer {key}"})
        same = (await trail_of(settings))[0]
        assert msgspec.structs.replace(same, at=0) == msgspec.structs.replace(made, at=0, board="other")
        await browser.sign_in(limited)
        assert errors_beside(await send(browser, "create", id="mine")).keys() == {"id"}
        assert errors_beside(await send(browser, "create", id="my-own")).keys() == {"source"}, (
            "the page accepts `share`, an event type that the API key may not read"
        )
        await send(browser, "create", id="my-own", source="like")
        assert (await trail_of(settings))[0].who == "two"


@pytest.mark.parametrize("window", ['rolling = "24h"', 'sliding = "24h"'])
async def test_the_preview_shows_what_the_board_would_show(valkey_url: str, window: str) -> None:
    """The preview shows what the last hour would give: sums, last amounts or best amounts.

    It reads the journals of the boards that the API key includes.
    """
    settings = fresh_settings(valkey_url, journal="sqlite")
    key, limited = await add_key(settings, "chief", verbs=("admin", "post")), await add_key(settings, "two", "none")
    boards = parse_boards(f'[[board]]\nid = "posts"\nwindow = {{ {window} }}')
    async with administrator(settings, *boards, key=key) as browser:
        client = browser.client
        client.headers["Authorization"] = f"Bearer {key}"
        for amount in (5, 1, 3):
            await post(client, {"key": "<b>Ada", "amount": amount}, {"key": "Bo", "amount": 4})

        async def shown(**answers: str) -> list[tuple[str, str]]:
            page = await send(browser, "preview", id="mine", source="like", **answers)
            return [
                (unescape(name), score) for name, score in re.findall(r"<li><bdi>(.*?)</bdi> <b>(.*?)</b></li>", page)
            ]

        async def complete() -> bool:
            return await shown() == [("Bo", "12"), ("<b>Ada", "9")]

        await eventually(complete)
        assert await shown(kept="set") == [("Bo", "4"), ("<b>Ada", "3")]
        assert await shown(kept="best_high") == [("<b>Ada", "5"), ("Bo", "4")]
        assert await shown(kept="best_low") == [("<b>Ada", "1"), ("Bo", "4")]
        assert "No board counts events" in await send(browser, "preview", id="mine", source="request")
        await browser.sign_in(limited)
        assert await shown() == []
        assert "act" in fields_of((await browser.get()).text, "out")
