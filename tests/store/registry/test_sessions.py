"""The sessions in the store, and what ends them."""

import msgspec
import pytest

from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.registry.sessions import IDLE, LONGEST, Session, SessionStore, _has_ended
from tests.harness.settings import fresh_settings


@pytest.mark.parametrize(
    ("used", "now", "has_ended"),
    [(0, IDLE - 1, False), (0, IDLE, True), (LONGEST - 1, LONGEST - 1, False), (LONGEST - 1, LONGEST, True)],
)
def test_a_session_ends_without_use_and_after_its_longest_time(used: int, now: int, *, has_ended: bool) -> None:
    """A session whose time is up in this second has ended."""
    assert _has_ended(Session("chief", "f", 0, used), now) is has_ended


async def test_the_oldest_sessions_end_first(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A use makes a session younger. The sessions of an API key end together."""
    monkeypatch.setattr("live.store.registry.sessions._MOST", 2)
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    sessions = SessionStore(client)
    key = SystemKeys(settings.key_prefix).sessions
    now = int((await client.call(key, "TIME"))[0])
    for name, used in (("first", now - 1), ("second", now - 2)):
        session = msgspec.json.encode(Session("chief", "f", now - 2, used))
        await client.write(key, "HSET", key, name, session)
    await sessions.add("third", "chief", "f")
    assert await sessions.find("second", is_use=False) is None
    found = await sessions.find("first", is_use=False)
    assert found is not None
    assert (found.id, found.fingerprint) == ("chief", "f")
    assert (await sessions.find("first", is_use=False), await sessions.find("none", is_use=True)) == (found, None)
    old = msgspec.structs.replace(found, used=now - IDLE // 2)
    await client.write(key, "HSET", key, "first", msgspec.json.encode(old))
    assert await sessions.find("first", is_use=False) == old
    longer = await sessions.find("first", is_use=True)
    assert longer is not None
    assert longer.used >= now
    assert await sessions.find("first", is_use=False) == longer
    assert await sessions.end_all("other") == 0
    assert await sessions.end_all("chief") == 2
    assert await sessions.find("third", is_use=False) is None
    await sessions.add("fourth", "chief", "f")
    await sessions.end("fourth")
    assert await sessions.find("fourth", is_use=False) is None
    await client.aclose()
