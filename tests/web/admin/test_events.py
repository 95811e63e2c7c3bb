"""The page of events: refused events, accepted events, and a form that sends a test event."""

from pathlib import Path

import httpx

from live.domain.board_file import parse_boards
from live.errors import REFUSALS
from live.web.pages.language import language_of, languages
from tests.harness.admin import add_key, administrator
from tests.harness.producer import post
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.web.admin.test_members import BOARDS, text_of


def test_each_refusal_has_a_fix_in_each_language() -> None:
    """The words of each language have a fix for each refusal code."""
    for tag in languages():
        assert {f"admin_fix_{code}" for code in REFUSALS} <= language_of(tag, "").table.keys(), tag


async def test_refused_and_accepted_events_are_shown_to_those_who_may_see_them(valkey_url: str, tmp_path: Path) -> None:
    """The server notes refused events only while somebody looks at the page.

    The page says what became of a test event.
    """
    settings = fresh_settings(valkey_url, data_dir=tmp_path, journal="sqlite")
    chief, some = await add_key(settings, "chief", verbs=("admin", "post")), await add_key(settings, "some", "vote")
    async with administrator(settings, *parse_boards(BOARDS), key=chief) as browser:
        bearer = {"Authorization": f"Bearer {chief}"}
        async with httpx.AsyncClient(base_url=browser.client.base_url, headers=bearer) as api:
            assert "No event was refused" in text_of((await browser.get("events")).text)
            refused = [{"board": "no<b>", "key": "Eve"}, {"type": "vote", "key": "Bo"}, {"key": ""}]
            await api.post("/v1/events", json=[*refused, {"board": "posts", "key": "Ada <i>"}])

            async def all_shown() -> bool:
                page = (await browser.get("events")).text
                return all(text in page for text in ("no&lt;b&gt;", "actor_required", "key_invalid", "Ada &lt;i&gt;"))

            await eventually(all_shown)
            only = (await browser.get("events?code=actor_required")).text
            assert "no&lt;b&gt;" not in only
            assert "Name the actor." in only
            sent = await browser.act("events", "send", board="posts", key="Cy", amount="2")
            assert "The event has counted" in text_of(sent.text)
            assert (await api.get("/v1/boards/posts/records/Cy")).json()["score"] == 2
            assert "<code>like</code> <b><bdi>Ada" in (await browser.get("events?type=like")).text
            assert "<bdi>Ada" not in (await browser.get("events?type=vote")).text
            unsent = text_of((await browser.act("events", "send", type="nothing", key="Cy")).text)
            assert "type_unknown" in unsent
            await post(api, {"board": "posts", "key": "Di"})
        await browser.sign_in(some)
        limited = (await browser.get("events")).text
        assert "actor_required" in limited.partition('id="refused"')[2]
        assert not any(text in limited for text in ("no&lt;b&gt;", "Ada", "posts", "Cy"))
        assert (await browser.act("events", "send", key="Cy")).status_code == 403
