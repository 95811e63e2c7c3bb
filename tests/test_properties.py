"""The ledger against a brute-force model: any order of adds, rotations, clocks and restarts."""

from pathlib import Path

import pytest

from tests.harness.ledger_machine import LedgerMachine
from tests.harness.machines import run_machine, run_mutant
from tests.harness.mutation import Mutant, must_be_caught
from tests.harness.store import REDIS_SERVER, StoreProcess, valkey

MUTANTS = {
    "the clock goes back": Mutant("add", "if held and held > micros then", "if false then"),
    "the clock goes back after an event": Mutant("add", "'clock', digits(micros), ...", "..."),
    "the clock goes back after a rotation": Mutant("rotate", "'clock', digits(micros), ...", "..."),
    "a slot expires too early": Mutant("rotate", ">= request.kept", "> request.kept"),
    "a slot expires too late": Mutant("rotate", ">= request.kept", ">= request.kept - 10"),
    "a negative score is dropped": Mutant("rotate", "elseif score ~= 0 then", "elseif score > 0 then"),
    "a slot is dropped half subtracted": Mutant("rotate", "if left == 0", "if true"),
    "a subtracted field stays": Mutant("rotate", "then\n  call('HDEL', slot, unpack(members))", "then"),
    "a score of zero stays": Mutant(
        "add", "if score == 0 and (zero_is_none or dropped and dropped[j]) then score = nil end", ""
    ),
    "a slot is not listed": Mutant("add", "call('ZADD', slots, group.start, group.start)", "local _ = 0"),
    "a value is not bounded": Mutant("add", "(fields or widest > most) and", "fields and"),
    "a negative value is not bounded": Mutant("add", "elseif -value > widest then", "elseif false then"),
    "the future is not bounded": Mutant("add", "(latest and latest > now + request.future)", "false"),
    "a plan is not checked": Mutant("add", "not fits(request.clock, board.newest, board.latest)", "false"),
    "an identity is not searched": Mutant("add", "if #known > 1", "if false"),
    "an identity is searched only in the newest bucket": Mutant("add", "for i = 1, #buckets - 1 do", "for i = 1, 1 do"),
    "an identity is not recorded": Mutant("add", "call('SADD', buckets[1],", "call('SMISMEMBER', buckets[1],"),
    "a bucket expires immediately": Mutant("add", "digits(bucket + identities.kept)", "1"),
    "the wrong bucket is dropped": Mutant(
        "add", "call('UNLINK', buckets[#buckets])", "call('UNLINK', buckets[#buckets - 1])"
    ),
    "a bucket goes backward with the clock": Mutant("add", "floor(seconds / ", "floor(store_now / 1000 / "),
    "an old bucket is written to": Mutant("add", "(identities and bucket ~= identities.bucket)", "false"),
    "ties are read backwards": Mutant("read", "rows[2 * (last - i + first) - 1]", "rows[2 * i - 1]"),
    "a tie that a page cuts is reversed": Mutant("read", "if not whole then", "if false then"),
    "a cursor repeats a record": Mutant("read", "exact and position + 1 or position", "position"),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "clock"), [("valkey", "event"), ("redis", "server")])
def test_the_ledger_equals_the_model(kind: str, clock: str, tmp_path: Path, effort: int) -> None:
    """With the real scripts, invariant I1 holds after every step of any schedule.

    Once all rotations are done, the board equals a plain count.
    """
    if kind == "redis" and REDIS_SERVER is None:
        pytest.skip("redis-server is not installed")
    store = valkey(tmp_path) if kind == "valkey" else StoreProcess(str(REDIS_SERVER), tmp_path)
    store.start()
    try:
        for each in (clock,) if effort == 1 else ("server", "event"):
            run_machine(lambda: LedgerMachine(store, each), examples=50 * effort, steps=40)  # noqa: B023
    finally:
        store.kill()


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_script_is_caught(name: str, volatile_store: StoreProcess) -> None:
    """The property above detects every mutant of the scripts."""
    with must_be_caught(name):
        for clock in ("server", "event"):  # the server clock comes first, because it catches more mutants
            run_mutant(lambda: LedgerMachine(volatile_store, clock, MUTANTS[name]), examples=100, steps=40)  # noqa: B023
