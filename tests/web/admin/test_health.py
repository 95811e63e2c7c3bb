"""The page of health: how much of the journal is in SQL, which processes are ready, and how full the store is."""

import time
from pathlib import Path

import httpx
import msgspec

from live.domain.board_file import parse_boards
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.registry.memory import MemoryLook
from live.store.registry.processes import Processes
from tests.harness.admin import add_key, administrator
from tests.harness.producer import post
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually
from tests.web.admin.test_members import BOARDS, text_of


async def test_the_page_says_what_is_safe_and_which_commands_check_it(valkey_url: str, tmp_path: Path) -> None:
    """An API key that is limited to some boards sees only these boards."""
    settings = fresh_settings(valkey_url, data_dir=tmp_path, journal="sqlite")
    chief, some = await add_key(settings, "chief", verbs=("admin", "post")), await add_key(settings, "some", "vote")
    store = connect(valkey_url, settings)
    async with administrator(settings, *parse_boards(BOARDS), key=chief) as browser:
        async with httpx.AsyncClient(
            base_url=browser.client.base_url, headers={"Authorization": f"Bearer {chief}"}
        ) as api:
            await post(api, {"board": "posts", "key": "Ada", "amount": 3})

        today = time.strftime("%Y-%m-%d", time.gmtime())

        async def is_safe() -> bool:
            shown = text_of((await browser.get("health")).text)
            return "UTC is in SQL; 0 bytes wait" in shown and today in shown  # nothing waits before the event either

        await eventually(is_safe)
        page = text_of((await browser.get("health")).text)
        assert "the store restarts nothing" in page
        assert "The process that served this page is ready" in page
        other = connect(valkey_url, fresh_settings(valkey_url, key_prefix=settings.key_prefix))
        other.high_water.active = True
        beside = Processes(other, ["posts", "vote"])
        for board, ready in (("vote", 2), ("posts", 1)):  # a process stays ready until all its boards are lost
            other.high_water.lose_boards({board: f"<{board}> went back"})
            await beside.beat()
            alive = (await browser.get("health")).text.partition('id="alive"')[2].partition("</ul>")[0]
            assert (text_of(alive).count("ready"), alive.count("&lt;vote&gt; went back")) == (ready, 2 - ready)
        await other.aclose()
        assert today in page
        assert "of posts" not in page
        assert all(f"live {command}" in page for command in ("check", "serve --check"))
        names = SystemKeys(settings.key_prefix)
        look = MemoryLook(int(time.time()) - 7200, {"": (1000, 0)})
        await store.call(names.memory, "RPUSH", names.memory, msgspec.json.encode(look))
        await store.each("CONFIG", "SET", "maxmemory", str(2**30))
        assert "it is full at" in text_of((await browser.get("health")).text)
        await store.each("CONFIG", "SET", "maxmemory", "0")
        await browser.sign_in(some)
        shown = await browser.get("health")
        assert not any(word in shown.text for word in ("posts", "bytes wait", "Memory in the store", "live "))
    await store.aclose()
