"""The codes of tickets: distinct, readable, and known only to those who have the secret."""

import random

import pytest

from live.auth.tickets import MOST_TICKETS, PROVEN, FoundTicket, code_of, find_ticket, letters_of, whole_code_of
from tests.harness.tokens import SECRET

BOARDS = ("films", "songs")


def test_each_ticket_has_a_code_of_its_own() -> None:
    """The server finds the board and the number of each ticket by its eight letters, and by its whole code."""
    codes = [code_of(SECRET, "songs", number) for number in range(1, MOST_TICKETS + 1)]
    assert len(set(codes)) == MOST_TICKETS
    assert {len(code) for code in codes} == {8}
    assert not set("".join(codes)) & set("ILO0123456789")
    for number in (1, 2, 300, MOST_TICKETS):
        assert find_ticket(SECRET, BOARDS, codes[number - 1]) == FoundTicket("songs", number)
        whole = whole_code_of(SECRET, "songs", number)
        assert (whole[:8], len(whole)) == (codes[number - 1], PROVEN)
        assert find_ticket(SECRET, BOARDS, whole) == FoundTicket("songs", number)


def test_only_tickets_have_codes() -> None:
    """Numbers beyond the last ticket, other boards, other secrets and changed letters are no tickets."""
    code, whole = code_of(SECRET, "songs", 7), whole_code_of(SECRET, "songs", 7)
    changed = [
        *(whole[:place] + ("A" if whole[place] != "A" else "B") + whole[place + 1 :] for place in range(PROVEN)),
        whole[:-1], whole + "A", whole[:9], code[:7], "", code.lower(), "IIIIIIII", "É" * 8, "1" * 8,
        code_of(SECRET, "songs", 0), code_of(SECRET, "songs", MOST_TICKETS + 1), code_of(SECRET[::-1], "songs", 7),
        code_of(SECRET, "other", 7),
    ]  # fmt: skip
    assert [letters for letters in changed if find_ticket(SECRET, BOARDS, letters) is not None] == []


def test_random_codes_find_nothing() -> None:
    """One of 15 million codes is that of a ticket."""
    draw = random.Random(1)
    guesses = ("".join(draw.choices("ABCDEFGHJKMNPQRSTUVWXYZ", k=8)) for _ in range(2000))
    assert not any(find_ticket(SECRET, ("songs",), guess) for guess in guesses)


@pytest.mark.parametrize("typed", ["abcd-efgh", " ABCD EFGH ", "Abcd\u2009Efgh\n", "a-b-c-d e f g h"])
def test_a_code_can_be_typed_in_any_form(typed: str) -> None:
    """Case, hyphens and white space do not matter."""
    assert letters_of(typed) == "ABCDEFGH"
