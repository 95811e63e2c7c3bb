"""The languages of the pages: which language a request receives, and that all words come from the tables."""

import re
from collections.abc import AsyncIterator, Iterator
from html import unescape
from string import Formatter
from typing import Any

import httpx
import pytest
from jinja2 import Environment, nodes

from live.domain.board_file import parse_boards
from live.domain.calendar import EXAMPLES
from live.errors import CLOSE_CODES, PROBLEMS, EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.channel import reason_of
from live.web.pages.language import TAGS, Message, language_of, languages
from live.web.pages.words import moment, moment_words, period_words
from live.web.parts import assets
from live.web.responses import as_problem
from tests.harness.producer import post
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

ENGLISH, CHINESE = (languages()[tag] for tag in TAGS)
TEMPLATES = sorted(path for path in assets("templates").rglob("*.html") if path.name != "docs.html")
# The script for producers is left out: it shows nothing on a page, and its messages are for programmers.
SCRIPTS = sorted(
    path for path in assets("static").rglob("*.js") if "words" not in path.parts and path.name != "producer.js"
)
BOARDS = """
[[board]]
id = "posts"
title = "帖子"
types = ["like"]
[[board]]
id = "notes"
title = "笔记"
types = ["note"]
[[board]]
id = "week"
title = "周榜"
window = {calendar = "week", timezone = "UTC"}
clock = "event"
[[board]]
id = "vote"
title = "投票"
window = "forever"
votes = {per_actor = 4, opens = 2026-01-01T00:00:00Z, closes = 2099-06-01T14:30:00Z, registered = true}
[[board]]
id = "union"
title = "合榜"
union = ["posts", "notes"]
"""
LETTERS = re.compile(r"[^\W\d_]{2,}")
KNOWN = {"Live", "Board", "English", "JavaScript", "CSV", "JSON", "UTC"}  # names that are the same in every language


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with boards of several kinds, whose titles are Chinese."""
    async with (
        run_server(fresh_settings(valkey_url), parse_boards(BOARDS)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await post(client, {"key": "一", "board": "posts"}, {"key": "二", "amount": 5, "board": "posts"})
        for day in ("12", "19"):
            await post(client, {"board": "week", "key": "三", "time": f"2025-11-{day}T00:00:00Z"})
        yield client


def holes(message: Message) -> set[str]:
    """The names in braces in the forms of a sentence."""
    forms = [message] if isinstance(message, str) else message.values()
    return {hole for form in forms for _, hole, _, _ in Formatter().parse(form) if hole}


@pytest.mark.parametrize("tag", TAGS[1:])
def test_every_language_is_complete(tag: str) -> None:
    """Each language has the messages of English, with the same placeholders. Nothing is empty or left in English."""
    other = languages()[tag].table
    assert list(other) == list(ENGLISH.table)
    assert {name: holes(message) for name, message in other.items()} == {
        name: holes(message) for name, message in ENGLISH.table.items()
    }
    same = {name for name, message in other.items() if message == ENGLISH.table[name]}
    assert same == {"product"}
    forms = [
        form for message in other.values() for form in ([message] if isinstance(message, str) else message.values())
    ]
    assert all(form.strip() for form in forms)
    assert [type(message) for message in other.values()] == [type(message) for message in ENGLISH.table.values()]


def test_no_name_is_in_two_parts_of_the_table() -> None:
    """The table has each name of the scripts' parts and of the server's parts once, and no other names."""
    for tag in TAGS:
        words = assets("static") / "client" / "words"
        own = assets("templates") / "words"
        parts = [words / f"{tag}.js", words / "few" / f"{tag}.js", own / f"{tag}.json", own / "admin" / f"{tag}.json"]
        names = [re.findall(r'^  "([^"]+)":', part.read_text(encoding="utf-8"), re.MULTILINE) for part in parts]
        assert sorted(name for part in names for name in part) == sorted(languages()[tag].table)


@pytest.mark.parametrize(
    ("requested", "accepted", "tag"),
    [
        (None, "", "en"), (None, "de, fr;q=0.5", "en"), (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh-Hans"),
        (None, "en-GB,zh;q=0.9", "en"), (None, "zh;q=0.1, en;q=0.2", "en"), (None, "zh;q=0, fr", "en"),
        (None, "ZH-Hant-TW", "zh-Hans"), (None, "zh;q=x", "en"), (None, "fr, zh;q=0.3, *;q=0.1", "zh-Hans"),
        ("zh", "en", "zh-Hans"), ("zh-Hans", "", "zh-Hans"), ("en", "zh", "en"), ("tlh", "zh", "zh-Hans"),
        ("", "zh", "zh-Hans"), (None, "zh;q=nan, en", "en"),
    ],
)  # fmt: skip
def test_the_url_takes_precedence_over_the_browser(requested: str | None, accepted: str, tag: str) -> None:
    """Unknown languages are ignored. The default is English."""
    assert language_of(requested, accepted).tag == tag


@pytest.mark.slow
async def test_pages_say_their_language(client: httpx.AsyncClient) -> None:
    """Browsers, screen readers and caches learn the language. Links keep a language that the URL names."""
    response = await client.get("/boards/posts", headers={"Accept-Language": "zh"})
    assert '<html lang="zh-Hans">' in response.text
    assert response.headers["content-language"] == "zh-Hans"
    assert response.headers["vary"] == "Accept-Language, Cookie, Accept-Encoding"
    assert '<b id="rank-count">2</b> 个上榜' in response.text
    requested = await client.get("/?lang=zh-Hans&theme=dark", headers={"Accept-Language": "en"})
    assert requested.headers["content-language"] == "zh-Hans"
    assert 'href="/boards/posts?lang=zh-Hans&amp;theme=dark"' in requested.text
    week = await client.get("/boards/week?key=x&lang=zh")
    assert 'href="?period=previous&amp;key=x&amp;lang=zh"' in week.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "/", "/boards/posts", "/boards/posts?key=%E4%B8%80", "/boards/posts?key=%E6%97%A0", "/boards/week",
        "/boards/week?period=previous", "/boards/vote", "/boards/union,posts,notes", "/embed/posts", "/boards/none",
        "/none",
    ],
)  # fmt: skip
async def test_a_chinese_page_is_all_chinese(client: httpx.AsyncClient, path: str) -> None:
    """All text and spoken or visible attributes are Chinese, except parts that are marked as English."""
    html = (await client.get(path, params={**httpx.URL(path).params, "lang": "zh-Hans"})).text
    assert {word for text in seen(html) for word in re.findall(r"[A-Za-z]{2,}", text)} <= KNOWN


def seen(html: str) -> Iterator[str]:
    """Return the texts and the spoken attributes of a page, without the texts that are marked as English."""
    html = re.sub(r'<(\w+)[^>]* lang="en"[^>]*>.*?</\1>', "", html, flags=re.DOTALL)
    html = re.sub(r"<(pre|textarea|code)[^>]*>.*?</\1>", "", html, flags=re.DOTALL)  # no code
    for attribute in ("alt", "aria-label", "placeholder", "title"):
        yield from (unescape(value) for value in re.findall(rf' {attribute}="([^"]*)"', html))
    yield unescape(re.sub("<[^>]+>", " ", html))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_words(path: Any) -> None:
    """Outside of tags, and in attributes that are seen or heard, everything comes from the tables."""
    tree = Environment(autoescape=True).parse(path.read_text(encoding="utf-8"))
    html = "".join(
        part.data if isinstance(part, nodes.TemplateData) else "\0"
        for output in tree.find_all(nodes.Output)
        for part in output.nodes
    )
    assert [word for text in seen(html) for word in LETTERS.findall(text)] == []
    for output in tree.find_all(nodes.Output):
        for part in output.nodes:
            assert not LETTERS.search(part.value if isinstance(part, nodes.Const) else ""), part


def test_words_in_a_template_are_noticed() -> None:
    """`seen` returns words for people in a template, so `test_templates_hold_no_words` can fail."""
    for html in ("<p>Hello</p>", '<p title="Hello">\0</p>', '<input placeholder="Find">'):
        assert [word for text in seen(html) for word in LETTERS.findall(text)] != []


PROSE = re.compile(r"[^\W\d_]{2,}[,:;]? +[^\W\d_]|^\W*[A-Z][a-z]+\W*$")  # two words, or one capitalised word
NOT_SHOWN = {
    "", "ease-out", "Content-Type", "Retry-After", "If-None-Match", "Bearer ", "Escape", "Enter",
    "nothing heard", "no answer", "(prefers-reduced-motion: reduce)", "a message was missed",
    "use client", "no WebSocket:",
    "color-mix(in srgb, var(--lb-accent, var(--_accent)) 18%, var(--lb-paper, var(--_paper)))",
}  # fmt: skip


def test_scripts_hold_no_words() -> None:
    """No literal reads like a sentence or a label, except names of the platform and reasons for programmers."""
    for path in SCRIPTS:
        assert [text for text in prose(path.read_text(encoding="utf-8")) if text not in NOT_SHOWN] == []


def test_words_in_a_script_are_noticed() -> None:
    """`prose` returns words for people in a script, so `test_scripts_hold_no_words` can fail."""
    assert list(prose('x = "Frozen"; y = `takes ${a} first`; // no "Such thing" here')) == ["Frozen", "takes  first"]
    assert list(prose('/* "Not this" */ translate("live"); z = "store unreachable"; throw new Error("not this")')) == [
        "store unreachable"
    ]


def prose(script: str) -> Iterator[str]:
    """Return a script's literals that read like words for people, without the messages of errors."""
    code = re.sub(r"/\*.*?\*/|(?<![:\\/\"])//[^\n]*", "", script, flags=re.DOTALL)
    code = re.sub(r"new (?:Error|Gap)\([^\n]*|^import .*|^export .* from .*", "", code, flags=re.MULTILINE)
    for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`', code):
        text = re.sub(r"\$\{[^}]*\}", "", "".join(literal))
        if PROSE.search(text) and not re.search(r"^[#.\[]|\[[\w-]+|[#.]\w+|^\w+(?:, \w+)+$", text):
            yield text


def test_reasons_of_the_server_are_translated() -> None:
    """The reasons say why a board is stale, or why a socket closes for good."""
    stale = [reason_of(StoreUnavailableError("x")), reason_of(EpochLostError("x"))]
    final = [close.reason for close in CLOSE_CODES.values() if not close.reconnect]
    missing = {*stale, *final} - {name.removeprefix("reason: ") for name in ENGLISH.table}
    assert missing == set()


def test_problems_are_explained() -> None:
    """Each text that names a problem comes with texts that say why it happened and what to do next."""
    codes = [name.removeprefix("problem: ") for name in ENGLISH.table if name.startswith("problem: ")]
    assert {"board_not_found", "period_not_found", "parameter_invalid", "store_unavailable", "epoch_lost"} <= set(codes)
    assert {"past_unavailable", "past_too_large"} <= set(codes)
    for language in languages().values():
        texts = [name.split(": ") for name in language.table if name.startswith(("problem: ", "why: ", "next: "))]
        assert {code for _, code in texts} <= PROBLEMS.keys(), "texts of problems that do not exist"
        assert all(f"{kind}: {code}" in language.table for code in codes for kind in ("why", "next"))
    assert all(isinstance(as_problem(ProblemError(code, "x")), ProblemError) for code in codes)


def test_periods_and_moments_are_dates() -> None:
    """Each language orders the parts of a date in its own way."""
    found = {unit: period_words(ENGLISH, unit, name) for unit, name in EXAMPLES.items()}
    assert found == {
        "hour": "21 November 2026, from 14:00 for an hour", "day": "21 November 2026", "week": "week 47 of 2026",
        "month": "November 2026", "quarter": "quarter 4 of 2026", "year": "2026",
    }  # fmt: skip
    assert [period_words(CHINESE, unit, name) for unit, name in EXAMPLES.items()] == [
        "2026年11月21日 14:00 起的一小时", "2026年11月21日", "2026年第47周", "2026年11月", "2026年第4季度", "2026年",
    ]  # fmt: skip
    assert moment_words(CHINESE, moment(1_763_733_600_000)) == "2025年11月21日 14:00 UTC"
