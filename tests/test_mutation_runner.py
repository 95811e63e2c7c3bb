"""The runner of mutants accepts a failed assertion of a test, and nothing else."""

import pytest
import redis

from live.errors import StoreUnavailableError
from live.store.board.requests import SCRIPTS
from live.store.connection import high_water
from tests.harness.mutation import compiled, must_be_caught, mutated, replaced


class Counter:
    """Something with a function to replace."""

    def add(self, one: int, other: int) -> int:
        return one + other


def test_a_failed_assertion_is_a_catch() -> None:
    """`must_be_caught` suppresses the assertion that fails in its body."""
    with must_be_caught("one is two"):
        assert Counter().add(1, 1) == 1


def test_a_mutant_that_passes_is_reported() -> None:
    """The report names the mistake."""
    with pytest.raises(pytest.fail.Exception, match="no test notices this mistake: nothing"), must_be_caught("nothing"):
        pass


@pytest.mark.parametrize("error", [StoreUnavailableError("gone"), TimeoutError(), redis.ResponseError("ERR")])
def test_another_error_is_not_a_catch(error: Exception) -> None:
    """Errors other than a failed assertion could come from a mutant that does not even run."""
    with pytest.raises(type(error)), must_be_caught("it raises"):
        raise error


def test_an_assertion_of_the_program_is_not_a_catch() -> None:
    """Only a test may say that a result is wrong."""
    failing = compile("def fail():\n    assert False", str(high_water.__file__), "exec")
    names: dict[str, object] = {}
    exec(failing, names)  # noqa: S102 - an assertion whose file is part of the program
    fail = names["fail"]
    assert callable(fail)
    with pytest.raises(AssertionError), must_be_caught("it asserts"):
        fail()


def test_a_script_that_does_not_compile_is_an_error(valkey_url: str) -> None:
    """The store compiles each mutant before a test runs it."""
    with pytest.raises(redis.ResponseError, match="compil"), must_be_caught("it has no end"):
        compiled(valkey_url, SCRIPTS.add.changed(SCRIPTS.add.source + "if"))


@pytest.mark.parametrize("right", ["no such piece", "local"])
def test_a_piece_that_is_missing_or_repeated_is_an_error(right: str) -> None:
    """If the piece occurs twice or not at all, the mutant would not make the mistake that the test means."""
    with pytest.raises(ValueError, match="times in the script, not once"), must_be_caught("it is elsewhere"):
        mutated("local a = 1\nlocal b = 2", {right: ""})


def test_a_function_is_replaced_while_in_the_context() -> None:
    """Afterwards, the right function is back."""
    with must_be_caught("it subtracts"), replaced(Counter, "add", lambda _, one, other: one - other):
        assert Counter().add(2, 1) == 3
    assert Counter().add(2, 1) == 3


def test_a_mutant_that_nothing_calls_is_an_error() -> None:
    """A test that does not call the mutant proves nothing."""
    with pytest.raises(RuntimeError, match="nothing called add"), replaced(Counter, "add", lambda *_: 0):
        pass


def test_a_function_that_does_not_exist_is_an_error() -> None:
    """Somebody may have renamed the function, so the mutant replaces nothing."""
    with pytest.raises(AttributeError), replaced(Counter, "subtract", lambda *_: 0):
        pass
