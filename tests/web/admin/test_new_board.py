"""The page for a new board: the definition that the answers give, and mistakes in answers."""

import itertools
import re
import tomllib
from html import unescape
from typing import Any

import msgspec

from live.boards.definitions import DefinitionError, read_board
from live.domain.board_file import parse_boards
from live.web.admin.boards import board_toml
from live.web.admin.new_board import OPTIONS, USUAL, choices_of_answers, with_more
from tests.harness.admin import Administrator, add_key, administrator, fields_of, trail_of
from tests.harness.settings import fresh_settings

ANSWERS = {
    **USUAL,
    "types": "like, share",
    "window": "forever",
    "title": 'A "title" \\ of mine',
    "visibility": "public",
}


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
    answers = {**ANSWERS, "window": "week", "timezone": "Asia/Shanghai", "votes": "once"}
    more = 'ranks = "dense"\nwindow = { keep = 3 }\nvotes = { closes = 2026-12-01T12:00:00Z }'
    choices = with_more(choices_of_answers(answers), more)
    week = {"calendar": "week", "timezone": "Asia/Shanghai", "keep": 3}
    votes = {"per_key": 1, "closes": "2026-12-01T12:00:00Z"}
    assert {name: choices[name] for name in ("ranks", "window", "votes")} == {
        "ranks": "dense", "window": week, "votes": votes,
    }  # fmt: skip
    assert list(parse_boards(board_toml("mine", choices))) == [read_board("mine", choices)]
    odd = {'a "b"': {"c.d": [1.5, {"": "\x7f"}]}}
    assert tomllib.loads(board_toml("mine", odd)) == {"board": [{"id": "mine", **odd}]}


async def send(browser: Administrator, **answers: str) -> tuple[int, set[str], str]:
    """Send the form without its empty fields. Return the status, the fields that are marked as wrong, and the page."""
    filled = {name: text for name, text in {**ANSWERS, **answers}.items() if text}
    token = fields_of((await browser.get("new")).text, "create")
    answer = await browser.send("new", {**token, **filled})
    marked = re.findall(r'<(?:input|select|textarea) id="(\w+)"[^>]* aria-invalid="true"', answer.text)
    return answer.status_code, set(marked), answer.text


def shown_in(html: str) -> dict[str, str]:
    """Return what the fields of the form on a page hold."""
    held = dict(re.findall(r'<input id="(\w+)"[^>]* value="([^"]*)"', html))
    for name, options in re.findall(r'<select id="(\w+)".*?>(.*?)</select>', html, re.DOTALL):
        held[name] = "".join(re.findall(r'value="(\w+)" selected', options))
    held |= dict(re.findall(r'<textarea id="(\w+)"[^>]*>(.*?)</textarea>', html, re.DOTALL))
    return {name: unescape(text) for name, text in held.items()}


WRONG: dict[str, dict[str, Any]] = {
    "an id with a space": {"id": "No id!", "named": "id"},
    "the id of another board": {"id": "posts", "named": "id"},
    "a title that turns the text": {"title": "a\u202eb", "named": "title"},
    "no such type": {"types": "a\x00b", "named": "types"},
    "no such zone": {"window": "week", "timezone": "Nowhere/X", "named": "timezone"},
    "a window that keeps no best amounts": {"kept": "best_high", "window": "last_24h", "named": "kept"},
    "votes of best amounts": {"kept": "best_high", "votes": "once", "named": "votes"},
    **{
        f"toml {number}": {"toml": toml, "named": "toml"}
        for number, toml in enumerate(
            (
                "unit = ", 'id = "other"', f"cap = {'9' * 5000}", f"cap = {'[' * 3000}", "cap = nan", "cap = -inf",
                "votes = { per_key = 1e400 }", "types = [nan]",
            )
        )
    },
    "a choice in TOML that is too small": {"toml": "max_members = 0", "named": "toml"},
    "an unknown choice in TOML": {"toml": "strange = 1", "named": "toml"},
}  # fmt: skip


async def test_a_mistake_names_its_field_and_what_was_typed_stays(valkey_url: str) -> None:
    """The field is marked. Other choices are in the field with TOML. No board is made."""
    settings = fresh_settings(valkey_url)
    async with administrator(settings, key=await add_key(settings, "chief")) as browser:
        for what, answers in WRONG.items():
            typed = {name: text for name, text in answers.items() if name != "named"}
            status, marked, page = await send(browser, **{"id": "mine", **typed})
            assert status == 422, what
            alert = page.partition('role="alert">')[2].partition("</div>")[0]
            assert {answers["named"]} == marked, (what, marked, alert)
            assert shown_in(page).items() >= {"id": "mine", **ANSWERS, **typed}.items(), what
        assert [entry.what for entry in await trail_of(settings)] == ["signed_in"]


async def test_a_right_board_is_made_as_by_the_api(valkey_url: str) -> None:
    """A limited API key makes only its own boards, of event types that it may read."""
    settings = fresh_settings(valkey_url)
    key, limited = await add_key(settings, "chief"), await add_key(settings, "two", "my-*", sources=("like",))
    async with administrator(settings, key=key) as browser:
        assert (await send(browser, id="mine", toml='unit = "km"'))[0] == 303
        made, choices = (await trail_of(settings))[0], {**choices_of_answers(ANSWERS), "unit": "km"}
        await browser.client.put("/v1/boards/other", json=choices, headers={"Authorization": f"Bearer {key}"})
        same = (await trail_of(settings))[0]
        assert msgspec.structs.replace(same, at=0) == msgspec.structs.replace(made, at=0, board="other")
        await browser.sign_in(limited)
        assert (await send(browser, id="mine"))[0] == 403
        status, _, page = await send(browser, id="my-own")
        assert (status, "share" in page.partition('role="alert">')[2]) == (403, True)
        assert (await send(browser, id="my-own", types="like"))[0] == 303
        assert (await trail_of(settings))[0].who == "two"
