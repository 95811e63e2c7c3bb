"""Mutants of a source: small mistakes, each a replacement of some bytes."""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

_OPPOSITES: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_EDGES: Final[dict[type[ast.cmpop], str]] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
# Tests of behaviour can't see whether these calls are made.
_UNSEEN_CALLS: Final = ("log.", "logger.", "typer.", "warnings.")


class Mutant(NamedTuple):
    """A mistake: the bytes from `start` to `end` become `wrong`. `kind` says what it does, and `line` where."""

    kind: str
    line: int
    start: int
    end: int
    wrong: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with the mistake. The code after the mistake keeps its line numbers."""
        ends = "\n" * source[self.start : self.end].count(b"\n")
        wrong = f"{self.wrong[:-1]}{ends})" if self.wrong.endswith(")") else self.wrong + ends
        return source[: self.start] + wrong.encode() + source[self.end :]


def mutants_of(source: bytes) -> list[Mutant]:
    """List every mutant of a module."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    return [
        Mutant(kind, node.lineno, starts[node.lineno - 1] + node.col_offset, _end(node, starts), wrong)
        for node in _functions(tree)
        for kind, wrong in _mistakes(node)
    ]


def _end(node: ast.expr | ast.stmt, starts: list[int]) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.end_lineno - 1] + node.end_col_offset


def _functions(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """Leave out defaults, annotations, decorators and asserts."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _walk(statement)


def _walk(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert | ast.JoinedStr):
        return  # the caller visits nested functions too
    if isinstance(node, ast.Expr) and ast.unparse(node).startswith(_UNSEEN_CALLS):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, field in ast.iter_fields(node):
        if name != "annotation":
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST):
                    yield from _walk(child)


def _mistakes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the kinds of mistakes that a node allows, with its new text."""
    match node:
        case ast.Compare(left, [operator], [right]):
            sides = [f"({ast.unparse(side)})" for side in (left, right)]
            yield "a comparison turned", f"({sides[0]} {_OPPOSITES[type(operator)]} {sides[1]})"
            if type(operator) in _EDGES:
                yield "an edge moved", f"({sides[0]} {_EDGES[type(operator)]} {sides[1]})"
        case ast.UnaryOp(ast.Not(), operand):
            yield "a `not` dropped", f"({ast.unparse(operand)})"
        case ast.BoolOp(operator, values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield "`and` and `or` exchanged", f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.Expr(ast.Call() | ast.Await()):
            yield "a call removed", "pass"
        case ast.Raise():
            yield "a `raise` removed", "pass"
        case ast.Constant(int() as number) if not isinstance(number, bool):
            yield "a number plus one", f"({number + 1})"
