"""Invalid combinations of choices, and unions of boards that can't be added up."""

import pytest

from tests.domain.board_files import (
    CAPPED,
    DAYS,
    FOREVER,
    LEAVES,
    LEAVING,
    SCORE,
    VOTES,
    VOTES_LEAVE,
    board_of,
    mistakes,
)

LIKES = "like_button = true"


def test_contradictory_choices_are_refused() -> None:
    """The message names the contradictory choices, the reason, and what to choose instead."""
    for lines, message in [
        *(
            ([window, f'operator = "{operator}"'], f"`operator = {operator}` {LEAVES}")
            for window in LEAVING
            for operator in ("set", "best")
        ),
        *(
            (
                [window, VOTES],
                VOTES_LEAVE,
            )
            for window in LEAVING
        ),
        (
            [FOREVER, "cap = 10"],
            CAPPED,
        ),
        (
            [FOREVER, SCORE, "max_amount = 5"],
            "`max_amount` with `score`: the ranges of the fields limit what is added; leave it out",
        ),
        ([FOREVER, SCORE, VOTES], "`votes` with `score`: a vote is one number; leave out one of them"),
        (
            [FOREVER, SCORE, LIKES, "votes = { per_key = 1 }"],
            [
                "`votes` with `score`: a vote is one number; leave out one of them",
                "`like_button` with `score`: a like adds 1 and has no fields; leave out one of them",
            ],
        ),
        (
            [FOREVER, 'score = [{ field = "a", min = 1, max = 9 }]'],
            "score: the field a 1..9 has no 0, with which every total begins",
        ),
        (
            [FOREVER, 'operator = "best"', 'sort_order = "asc"', SCORE],
            "`score` with `sort_order = asc`: each field has its own `order`; leave it at desc",
        ),
        *(
            (
                [DAYS, f'operator = "{operator}"', VOTES],
                f"`votes` with `operator = {operator}`: votes are added; use incr",
            )
            for operator in ("set", "best")
        ),
        (
            [FOREVER, "votes = { opens = 2026-01-02T00:00:00Z, closes = 2026-01-02T00:00:00Z }"],
            "`votes` closes before it opens",
        ),
        (["weights = [1, 2]"], "`weights` needs `union`"),
        (
            ['dedupe_window = "30d"', 'journal = "off"'],
            "`dedupe_window` with `journal = off`: only the journal keeps ids for so long; leave it out",
        ),
        (
            ['dedupe_window = "31d"'],
            "`dedupe_window` of 31d is longer than the journal keeps events, 30d; make `journal_events` as long",
        ),
        (
            ['dedupe_window = "3d"', 'journal_events = "36h"'],
            "`dedupe_window` of 3d is longer than the journal keeps events, 36h; make `journal_events` as long",
        ),
        (
            ['dedupe_window = "30"'],
            "dedupe_window: '30' is not a duration; expected a number and ms, s, m, h or d, like 24h",
        ),
        *(
            (
                [FOREVER, LIKES, line],
                "`like_button` with `union`, `clock = event` or an operator other than incr: a like adds 1 now",
            )
            for line in ('operator = "best"', 'clock = "event"')
        ),
        *(
            (
                [window, LIKES],
                "`like_button` with this window needs `votes = { per_key = 1 }`, to count a like of a visitor once",
            )
            for window in (FOREVER, DAYS)
        ),
        *(
            (
                [FOREVER, LIKES, votes],
                "`like_button` with `votes` needs `per_key = 1`: a visitor has one vote for each member",
            )
            for votes in ("votes = { per_key = 2 }", "votes = { per_actor = 1 }")
        ),
        *(
            (
                [window, LIKES],
                "`like_button` with a window and slot of more than 8d in all: likes are remembered for 8d at most",
            )
            for window in ('window = { rolling = "8d", slot = "1d" }', 'window = { sliding = "9d" }')
        ),
    ]:
        text = "\n".join(('[[board]]\nid = "b"', *lines))
        messages = [message] if isinstance(message, str) else message
        assert mistakes(text) == [f"board 1 ('b'): {each}" for each in messages]


@pytest.mark.parametrize("operator", ["set", "best"])
@pytest.mark.parametrize("window", [FOREVER, DAYS])
@pytest.mark.parametrize("more", [[], ["cap = 1"], [SCORE], [SCORE, "cap = 100000"]])
def test_windows_without_expiry_accept_every_operator(operator: str, window: str, more: list[str]) -> None:
    """A cap and packed fields are also accepted."""
    assert board_of(window, f'operator = "{operator}"', *more).operator == operator


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['union = ["x", "x"]'], "`union` names a board twice; give it a weight instead"),
        (['union = ["x", "y"]', "weights = [1]"], "`weights` has 1 numbers for 2 boards in `union`"),
        *(
            (['union = ["x", "y"]', line], "`union` with `types` or `category`: a union counts what its boards count")
            for line in ('types = ["like"]', 'category = ["a"]')
        ),
        *(
            (['union = ["x", "y"]', FOREVER, line],
             "`union` with `votes` or an operator other than incr: a union only adds")
            for line in (VOTES, 'operator = "best"')
        ),
        (['union = ["x", "y"]', "weights = [1, 2]", SCORE],
         "`weights` with `score`: each field of a union is the sum of the fields of its boards; leave it out"),
        (['union = ["x", "y"]', LIKES],
         "`like_button` with `union`, `clock = event` or an operator other than incr: a like adds 1 now"),
    ],
)  # fmt: skip
def test_an_invalid_union_is_refused(lines: list[str], message: str) -> None:
    """The choices of the union contradict each other, whatever its parts are."""
    text = "\n".join(('[[board]]\nid = "x"\n[[board]]\nid = "y"\n[[board]]\nid = "u"', *lines))
    assert mistakes(text) == [f"board 3 ('u'): {message}"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([], "its union: there is no board `y`; there are: x, z"),
        (['id = "y"', 'union = ["x", "z"]'], "its union names 'y', which is a union itself; name its boards instead"),
        (['id = "y"', FOREVER, 'operator = "best"'], "its union names 'y', whose scores are not plain sums"),
        (['id = "y"', FOREVER, VOTES], "its union names 'y', whose scores are not plain sums"),
        (
            ['id = "y"', 'dedupe_window = "30d"'],
            "its union names 'y', which remembers ids for 30d; let the union remember them as long",
        ),
        (['id = "y"', SCORE], "its union names 'y', whose `score` has other fields or ranges"),
        (['id = "y"', FOREVER], "its union names 'y', which has another window or clock"),
        (['id = "y"', 'window = { rolling = "12h" }'], "its union names 'y', which has another window or clock"),
        (['id = "y"', 'clock = "event"'], "its union names 'y', which has another window or clock"),
    ],
)
def test_a_union_of_incompatible_boards_is_refused(other: list[str], message: str) -> None:
    """The parts must be plain sums over the same window, with the same clock."""
    text = '[[board]]\nid = "u"\nunion = ["x", "y"]\n[[board]]\nid = "x"\n[[board]]\nid = "z"\n'
    text += "\n".join(("[[board]]", *other)) if other else ""
    assert mistakes(text) == [f"board 'u': {message}"]


def test_a_mistake_in_a_part_is_not_repeated_for_the_union() -> None:
    """The mistake is reported once, for the part. For the union, the part counts as existing."""
    text = '[[board]]\nid = "u"\nunion = ["x", "y"]\n[[board]]\nid = "x"\n[[board]]\nid = "y"\ncap = 0'
    assert mistakes(text) == ["board 3 ('y'): `cap`: expected a whole number from 1 to 100,000, got 0"]
