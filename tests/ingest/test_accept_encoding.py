"""Which clients receive gzip."""

import pytest

from live.http.reply import takes_gzip


@pytest.mark.parametrize(
    "accepted",
    [
        ("gzip",), ("GZIP",), ("gzip, deflate, br",), ("br;q=1.0, gzip;q=0.8, *;q=0.1",), ("gzip;q=0.001",), ("*",),
        ("deflate", "gzip"), ("identity;q=0.5, gzip",), ("identity;q=0.5, gzip;q=0.5",), ("x-gzip",), ("gzip ; q=1",),
        ("identity;q=0, *;q=0.5",), ("gzip;q=1.000",),
    ],
)  # fmt: skip
def test_clients_that_accept_gzip_receive_it(accepted: tuple[str, ...]) -> None:
    """These clients accept gzip by name, or by `*`, and do not prefer the plain form."""
    assert takes_gzip(accepted)


@pytest.mark.parametrize(
    "accepted",
    [
        (), ("",), ("identity",), ("br",), ("gzip;q=0",), ("gzip;q=0.000",), ("gzip; q=0, *",), ("*;q=0",),
        ("gzip;q=0.5, identity",), ("identity, gzip;q=0.9",), ("gzip;q=2",), ("gzip;q=-1",), ("gzip;q=",),
        ("gzip;q=0.0001",), ("gzip;q=nan",), ("gzip;level=1",), ("gzipped",), ("gzip;q=\u0660.5",), ("deflate, x;q=1",),
    ],
)  # fmt: skip
def test_other_clients_receive_plain_responses(accepted: tuple[str, ...]) -> None:
    """These clients do not name gzip, refuse it, prefer the plain form, or send something invalid."""
    assert not takes_gzip(accepted)
