"""The audit log in the store."""

from live.store.connection.client import connect
from live.store.registry.trail import MOST_BYTES, AuditTrail, entry_of
from tests.harness.settings import fresh_settings


async def test_a_large_entry_keeps_only_its_size(valkey_url: str) -> None:
    """It says who did what, and how many bytes it would have had. So logged acts can't fill the store."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    trail = AuditTrail(client, settings.key_prefix)
    await trail.add(entry_of("ann", "titled", key="k", reason="r", before="b", after=""))
    await trail.add(entry_of("ann", "titled", key="k", reason="r", before="b", after="x" * MOST_BYTES))
    small, large = reversed(await trail.last(2))
    assert (small.before, small.after) == ("b", "")
    assert (large.who, large.what, large.key, large.reason, large.before) == ("ann", "titled", "k", "r", None)
    assert large.after["bytes"] > MOST_BYTES
    await client.aclose()
