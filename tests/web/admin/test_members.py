"""The pages of members: finding, hiding, correcting, titles, and taking back what somebody sent."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx

from live.domain.board_file import parse_boards
from tests.harness.admin import Administrator, add_key, administrator, fields_of, trail_of
from tests.harness.producer import post
from tests.harness.settings import fresh_settings

BOARDS = """
[[board]]
id = "posts"
window = "forever"
[[board]]
id = "vote"
types = ["vote"]
window = "forever"
votes = { per_key = 100, per_actor = 1000 }
[[board]]
id = "climb"
types = ["climb"]
window = "forever"
operator = "best"
score = [{field = "metres", max = 9000}, {field = "minutes", order = "asc", max = 600}]
[[board]]
id = "secret"
types = ["secret"]
visibility = "private"
"""


def text_of(html: str) -> str:
    """Return the text of a page, without tags."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


async def check_member(browser: Administrator, api: httpx.AsyncClient) -> None:
    """Hide, show, correct and title a member by forms."""
    table = (await browser.get("members?board=posts&q=ADA")).text
    assert "Ada &lt;i&gt;" in table
    assert "Bo" not in text_of(table.partition("<tbody>")[2].partition("</tbody>")[0])
    hidden = await browser.act("members?board=posts&q=Ada", "hide")
    assert hidden.status_code == 303
    again = (await browser.client.get(hidden.headers["location"])).text
    assert "The member is hidden" in again
    assert (await api.get("/v1/boards/posts/records/Ada%20%3Ci%3E")).status_code == 404
    assert "Ada &lt;i&gt;" in (await browser.get("members?board=posts")).text, "the hidden member is not listed"
    await post(api, {"key": "Hedy", "board": "climb", "fields": {"metres": 4087, "minutes": 431}})
    for packed in ("members?board=climb", "member?key=Hedy&board=climb"):
        assert "metres 4,087 · minutes 431" in text_of((await browser.get(packed)).text)
    page = "member?key=Ada+%3Ci%3E&board=posts"
    assert (await browser.act(page, "show")).status_code == 303
    wrong = await browser.act(page, "correct", amount="many", reason="a")
    assert (wrong.status_code, 'value="many"' in wrong.text) == (422, True)
    assert (await browser.act(page, "correct", how="add", amount="-2", reason="<b>twice</b>")).status_code == 303
    assert (await api.get("/v1/boards/posts/records/Ada%20%3Ci%3E")).json()["score"] == 12
    assert (await browser.act(page, "title", title="The <i>", url="https://a.example/")).status_code == 303
    shown = await browser.get(page)
    assert "The &lt;i&gt;" in shown.text
    assert "&lt;b&gt;twice" in shown.text
    assert "<b>twice" not in shown.text
    assert (await browser.act(page, "untitle")).status_code == 303


async def check_void(browser: Administrator, api: httpx.AsyncClient, since: str) -> None:
    """Check that a dry run says what would change and changes nothing, and that the void then makes these changes."""
    before = (await api.get("/v1/boards/posts")).json()["records"]
    tried = await browser.act("void?producer=shop&board=posts", "try", producer="shop", board="posts", since=since)
    assert "This would change 2 members" in text_of(tried.text)
    assert "Bo 22 → \u2013" in text_of(tried.text)
    assert "live void --producer shop" in unescape(tried.text)
    assert (await api.get("/v1/boards/posts")).json()["records"] == before
    done = await browser.send("void", {name: text for name, text in fields_of(tried.text, "void").items() if text})
    assert "2 members have another score" in text_of(done.text), done.text
    left = (await api.get("/v1/boards/posts")).json()["records"]
    assert {one["key"]: one["score"] for one in left} == {"Cy": 1, "Ada <i>": -2}, "the void undid the correction"
    both = await browser.act("void", "try", producer="a", actor="b", since=since)
    assert (both.status_code, "either a producer or an actor" in both.text) == (400, True)


async def test_members_are_found_changed_and_taken_back_by_forms(valkey_url: str, tmp_path: Path) -> None:
    """Each act leaves one entry in the audit log, and the page says what each producer and actor sent."""
    file = tmp_path / "boards.toml"
    file.write_text(BOARDS)
    settings = fresh_settings(valkey_url, boards=file, data_dir=tmp_path / "data", journal="sqlite")
    since = (datetime.now(UTC) - timedelta(minutes=5)).isoformat(timespec="seconds")
    chief, shop = (
        await add_key(settings, "chief", verbs=("admin", "post")),
        await add_key(settings, "shop", verbs=("post",)),
    )
    other, some = await add_key(settings, "other", verbs=("post",)), await add_key(settings, "some", "vote")

    def api_of(key: str) -> Any:
        return httpx.AsyncClient(base_url=browser.client.base_url, headers={"Authorization": f"Bearer {key}"})

    async with administrator(settings, *parse_boards(BOARDS), key=chief) as browser:
        async with api_of(shop) as first, api_of(other) as second, api_of(chief) as api:
            await post(second, {"board": "posts", "key": "Cy", "amount": 1})
            await post(
                first, {"board": "posts", "key": "Ada <i>", "amount": 14}, {"board": "posts", "key": "Bo", "amount": 22}
            )
            await post(
                first, *({"type": "vote", "key": "Eve", "actor": f"a{n % 3 == 0}", "id": str(n)} for n in range(15))
            )
            await check_member(browser, api)
            voter = (await browser.get("member?key=Eve&board=vote")).text
            assert ">shop<" in voter
            assert re.search(r"<code>[0-9a-f]{8}</code>", voter)
            await check_void(browser, api, since)
        whats = [entry.what for entry in await trail_of(settings)]
        assert whats == ["voided", "begun", "untitled", "titled", "corrected", "shown", "hidden", "signed_in"]
        assert (await trail_of(settings))[0].who == "chief"
        await browser.sign_in(some)
        for page, status in (
            ("members?board=posts", 403), ("members?board=secret", 403), ("members", 200),
            ("member?key=Bo&board=posts", 403), ("member?key=Eve", 200),
        ):  # fmt: skip
            assert (await browser.get(page)).status_code == status, page
        shown = (await browser.get("member?key=Cy")).text
        assert "posts" not in shown
        assert 'value="title"' not in shown
        for board in ("posts", ""):
            assert (await browser.act("void", "try", producer="other", board=board, since=since)).status_code == 403


async def test_two_people_moderate_a_member_at_once(valkey_url: str, tmp_path: Path) -> None:
    """No correction is lost, and each entry of the audit log begins with the score that the entry before it left."""
    settings = fresh_settings(valkey_url, data_dir=tmp_path, journal="sqlite")
    chief = await add_key(settings, "chief", verbs=("admin", "post"))
    async with (
        administrator(settings, key=chief) as one,
        httpx.AsyncClient(base_url=one.client.base_url, timeout=180) as client,
    ):
        two = Administrator(client)
        await two.sign_in(chief)
        await one.act("events", "send", key="Ada", amount="100")

        async def moderate(browser: Administrator, amount: int) -> None:
            for _ in range(5):
                fields = {"how": "add", "amount": str(amount), "reason": "at once"}
                assert (await browser.act("member?key=Ada&board=posts", "correct", **fields)).status_code == 303

        await asyncio.gather(moderate(one, 1), moderate(two, 10))
        hiding = [browser.act("members?board=posts", "hide", key="Ada") for browser in (one, two)]
        assert [answer.status_code for answer in await asyncio.gather(*hiding)] == [303, 303]
        assert (await one.act("members?board=posts", "show", key="Ada")).status_code == 303
        assert (await client.get("/v1/boards/posts/records/Ada")).json()["score"] == 155
    scores = [entry for entry in await trail_of(settings) if entry.what == "corrected"]
    assert [entry.before["score"] for entry in scores[:-1]] == [entry.after["score"] for entry in scores[1:]]
    assert len(scores) == 10
