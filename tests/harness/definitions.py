"""Definitions of boards of every kind, which together have every choice at a value other than its default."""

from typing import Any, Final

EVERY_KIND: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "rolling": {"title": "Rolling", "window": {"rolling": "90m", "slot": "30s"}, "ranks": "dense", "ties": "key"},
    "sliding": {"window": {"sliding": "1h"}, "clock": "event", "types": ["a", "b"]},
    "liked": {"window": {"sliding": "3h"}, "like_button": True, "category": ["art", "music"]},
    "week": {
        "window": {"calendar": "week", "timezone": "Asia/Shanghai", "week_start": "sunday", "keep": 3, "grace": "10m"},
        "journal_events": "30d", "journal_periods": "400d", "conflation_interval": "250ms",
    },
    "last": {"window": {"calendar": "day", "last": 7}, "journal": "off", "visibility": "private"},
    "best": {"operator": "best", "window": "forever", "cap": 5, "sort_order": "asc", "ties": "last"},
    "set": {
        "operator": "set", "window": {"calendar": "month", "day_start": "09:00"}, "ranks": "competition",
        "max_members": 100,
    },
    "fields": {
        "operator": "best", "window": "forever", "visibility": "public",
        "score": [{"field": "levels", "max": 99}, {"field": "seconds", "order": "asc", "min": -5, "max": 999}],
    },
    "contest": {
        "window": "forever", "frozen": True, "idle_ttl": "2d",
        "votes": {
            "per_key": 1, "per_actor": 4, "opens": "2026-01-01T00:00:00Z", "closes": "2100-01-01T00:00:00.250000Z",
            "registered": True, "changes": False,
        },
    },
    "donors": {"window": "forever", "unit": "€", "scale": 2, "dedupe_window": "30d"},
    "table": {
        "window": {"calendar": "year"}, "zeros": True,
        "score": [{"field": "points", "max": 200}, {"field": "difference", "min": -300, "max": 300}],
    },
    "laps": {"operator": "best", "sort_order": "asc", "window": "forever", "scale": 3, "format": "duration"},
    "free": {"window": "forever", "votes": {}, "max_amount": 3},
    "union": {"union": ["plain", "other"], "weights": [2, -1]},
}  # fmt: skip
"""Choices of boards, in the form in which the server writes them back."""
