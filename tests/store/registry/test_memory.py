"""The memory of the store at earlier times."""

import msgspec
import pytest

from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.registry.memory import HOUR, look_at_memory
from tests.harness.settings import fresh_settings


@pytest.mark.one_server
async def test_a_look_at_the_memory_is_remembered_once_an_hour(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest measurements are dropped."""
    monkeypatch.setattr("live.store.registry.memory._MOST", 2)
    settings = fresh_settings(valkey_url)
    client, key = connect(valkey_url, settings), SystemKeys(settings.key_prefix).memory
    seen: list[list[int]] = []
    for ago in (HOUR - 60, HOUR, HOUR, HOUR, HOUR):
        *earlier, present = await look_at_memory(client)
        seen.append([look.at for look in earlier])
        ((used, most),) = present.servers.values()
        assert (used > 500_000, most) == (True, 0)
        aged = msgspec.structs.replace(present, at=present.at - ago)
        await client.call(key, "LSET", key, 0, msgspec.json.encode(aged))
    assert [len(times) for times in seen] == [0, 1, 1, 2, 2]
    assert all(times == sorted(times) for times in seen)
    await client.aclose()
