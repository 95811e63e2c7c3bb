"""Tickets: codes on paper, each of which makes a browser one voter of a contest.

A code is the number of a ticket, encrypted with a key that is made of the secret of viewer tokens and the id of the
board. So nobody stores tickets: the server decrypts a code, and takes it if it finds the number of a ticket.
"""

import hmac
import re
from collections.abc import Iterable
from hashlib import blake2b, sha256
from typing import Final, NamedTuple

MOST_TICKETS: Final = 5000
"""The most tickets of a board. Of the 78 billion codes of eight letters, these are valid."""

_LETTERS: Final = "ABCDEFGHJKMNPQRSTUVWXYZ"  # without I, L and O, which look like digits and each other
_HALF: Final = 4  # letters
_SIZE: Final = len(_LETTERS) ** _HALF
_ROUNDS: Final = 10
_CODE: Final = 2 * _HALF
_PROOF: Final = 20  # letters, which are 90 bits
PROVEN: Final = _CODE + _PROOF
"""The letters of a code that nobody can guess, such as the one of a QR code."""

_IGNORED: Final = re.compile(r"[\s-]+")
_MOST: Final = 64  # characters of a code with white space and hyphens


class FoundTicket(NamedTuple):
    """A ticket of a board."""

    board: str
    number: int

    @property
    def voter(self) -> str:
        """The `sub` of the ticket's viewer token, which is the actor of its votes."""
        return voter_of(self.number)


def voter_of(number: int) -> str:
    """Name the voter with a ticket."""
    return f"ticket {number}"


def code_of(secret: str, board: str, number: int) -> str:
    """Return the eight letters of a ticket."""
    key, (left, right) = _key(secret, board), divmod(number, _SIZE)
    for step in range(_ROUNDS):
        left, right = right, (left + _mixed(key, step, right)) % _SIZE
    return _written(left * _SIZE + right, _CODE)


def whole_code_of(secret: str, board: str, number: int) -> str:
    """Return the code in a ticket's QR code: its eight letters, and more letters that prove them."""
    code = code_of(secret, board, number)
    return code + _proof(_key(secret, board), code)


def letters_of(text: str) -> str:
    """Return the letters of a code that somebody has typed: in upper case, without white space and hyphens."""
    return _IGNORED.sub("", text[:_MOST]).upper()


def find_ticket(secret: str, boards: Iterable[str], letters: str) -> FoundTicket | None:
    """Return the ticket with a code, or None if no board has one."""
    code, proof = letters[:_CODE], letters[_CODE:]
    if len(code) < _CODE or len(proof) not in {0, _PROOF} or not set(letters) <= set(_LETTERS):
        return None
    for board in boards:
        key = _key(secret, board)
        number = _decrypted(key, code)
        if 0 < number <= MOST_TICKETS and hmac.compare_digest(proof, _proof(key, code) if proof else ""):
            return FoundTicket(board, number)
    return None


def _decrypted(key: bytes, code: str) -> int:
    left, right = _read(code[:_HALF]), _read(code[_HALF:])
    for step in reversed(range(_ROUNDS)):
        left, right = (right - _mixed(key, step, left)) % _SIZE, left
    return left * _SIZE + right


def _key(secret: str, board: str) -> bytes:
    return hmac.digest(secret.encode(), b"tickets of " + board.encode(), sha256)


def _hash(key: bytes, text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=32, key=key, person=b"ticket").digest())


def _mixed(key: bytes, step: int, half: int) -> int:
    """Return the round function of the Feistel network, which turns numbers of tickets into codes."""
    return _hash(key, b"%d %d" % (step, half)) % _SIZE


def _proof(key: bytes, code: str) -> str:
    return _written(_hash(key, b"proof " + code.encode()) % len(_LETTERS) ** _PROOF, _PROOF)


def _written(number: int, length: int) -> str:
    letters = ""
    for _ in range(length):
        number, letter = divmod(number, len(_LETTERS))
        letters = _LETTERS[letter] + letters
    return letters


def _read(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * len(_LETTERS) + _LETTERS.index(letter)
    return number
