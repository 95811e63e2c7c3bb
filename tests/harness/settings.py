"""Settings and clients that no other test shares."""

import secrets
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from live.auth.client import Client
from live.settings import Duration, Settings


def fresh_settings(store: str, **changes: Any) -> Settings:
    """Settings with a unique key prefix, so that tests can share a store."""
    prefix = f"t{secrets.token_hex(6)}"
    beside = Path(store.removeprefix("unix://")).parent if store.startswith("unix://") else Path(tempfile.gettempdir())
    several = "+" in store.partition("://")[0]  # a Sentinel set or a Cluster: its servers share a busy machine
    own = Settings(
        store=store,
        store_timeout=Duration(10 if several else 5),
        write_deadline=Duration(10 if several else 5),
        port=0,
        key_prefix=prefix,
        journal="off",  # tests of the journal change this
        data_dir=beside / prefix,
    )
    return msgspec.structs.replace(own, **changes)


def make_client(**changes: Any) -> Client:
    """A client on this machine that requests the host `localhost`; `changes` replace its fields."""
    client = Client("127.0.0.1", "http", "localhost", None, local=True, own_name=True, proxied=False)
    return msgspec.structs.replace(client, **changes)
