"""Settings and clients that no other test shares."""

import secrets
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from live.auth.requester import Requester
from live.settings import METAS, Settings, environment_name, parse_cache_time, parse_retention, parse_time


def fresh_settings(store: str, **changes: Any) -> Settings:
    """Settings with a unique key prefix, so that tests can share a store."""
    prefix = f"t{secrets.token_hex(6)}"
    beside = Path(store.removeprefix("unix://")).parent if store.startswith("unix://") else Path(tempfile.gettempdir())
    several = "+" in store.partition("://")[0]  # a Sentinel set or a Cluster: its servers share a busy machine
    own = Settings(
        store=store,
        store_timeout=10 if several else 5,
        write_deadline=10 if several else 5,
        port=0,
        key_prefix=prefix,
        journal="off",  # tests of the journal change this
        data_dir=beside / prefix,
    )
    return msgspec.structs.replace(own, **changes)


def make_client(**changes: Any) -> Requester:
    """A client on this machine that requests the host `localhost`; `changes` replace its fields."""
    client = Requester("127.0.0.1", "http", "localhost", None, local=True, own_name=True, proxied=False)
    return msgspec.structs.replace(client, **changes)


def as_environment(settings: Settings) -> dict[str, str]:
    """The environment from which `load_settings` reads the same settings, for a server in another process."""
    environment: dict[str, str] = {}
    for name, meta in METAS.items():
        value, reads = getattr(settings, name), (meta.extra or {})["reads"]
        if reads is parse_time:
            text = f"{value:.3f}s"
        elif reads is parse_cache_time and value == 0:
            text = "off"
        elif reads in {parse_retention, parse_cache_time}:
            text = f"{value}s"
        elif isinstance(value, tuple):
            text = ",".join(value)
        else:
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        environment[environment_name(name)] = text
    return environment
