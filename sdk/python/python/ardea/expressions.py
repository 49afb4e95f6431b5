"""Expressions over the columns of a stream, computed in Rust without the interpreter."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Dict, Union

from .errors import invalid
from .schemas import ColumnType, data_type

Value = Union[None, bool, int, float, str, datetime, date]

_COMPARISONS = "use `is_null()`, or compare with `==` and combine with `&`, `|` and `~`"


class Expr:
    """An expression: one value for each record.

    Expressions are made of columns (``a.col``), constants and operators: ``+ - * / %``, the
    comparisons, and ``& | ~`` for conditions. The logic is that of SQL: an operation on null is
    null, and a filter drops records whose condition is null. ``/`` of integers rounds towards zero.
    A record for which an expression has no value, as in a division by zero, becomes a dead letter.

    >>> (col("price") * 2 > 10) & col("kind").is_not_null()
    Expr(((price * 2) > 10) and (kind is not null))
    """

    __slots__ = ("_name", "_text", "_tree")

    # An expression is compared by `==` to make a condition.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tree: Any, text: str, name: str) -> None:
        self._tree = tree
        self._text = text
        self._name = name

    def __repr__(self) -> str:
        return f"Expr({self._text})"

    def __bool__(self) -> bool:
        raise TypeError(f"the expression {self._text} has no truth value: {_COMPARISONS}")

    def tree(self) -> Any:
        """Returns the expression as plain data."""
        return self._tree

    def name(self) -> str:
        """Returns the name of the column that the expression makes."""
        return self._name

    def _binary(self, operation: str, symbol: str, other: Any, swapped: bool = False) -> Expr:
        right = expression(other)
        left, right = (right, self) if swapped else (self, right)
        tree = {"binary": {"operation": operation, "left": left._tree, "right": right._tree}}
        text = f"{left._operand()} {symbol} {right._operand()}"
        return Expr(tree, text, text)

    def _unary(self, operation: str, text: str) -> Expr:
        return Expr({"unary": {"operation": operation, "input": self._tree}}, text, text)

    def _operand(self) -> str:
        (kind,) = self._tree
        return self._text if kind in ("column", "literal", "cast") else f"({self._text})"

    def __add__(self, other: Any) -> Expr:
        return self._binary("add", "+", other)

    def __radd__(self, other: Any) -> Expr:
        return self._binary("add", "+", other, True)

    def __sub__(self, other: Any) -> Expr:
        return self._binary("subtract", "-", other)

    def __rsub__(self, other: Any) -> Expr:
        return self._binary("subtract", "-", other, True)

    def __mul__(self, other: Any) -> Expr:
        return self._binary("multiply", "*", other)

    def __rmul__(self, other: Any) -> Expr:
        return self._binary("multiply", "*", other, True)

    def __truediv__(self, other: Any) -> Expr:
        return self._binary("divide", "/", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return self._binary("divide", "/", other, True)

    def __mod__(self, other: Any) -> Expr:
        return self._binary("remainder", "%", other)

    def __rmod__(self, other: Any) -> Expr:
        return self._binary("remainder", "%", other, True)

    def __neg__(self) -> Expr:
        return self._unary("negate", f"-{self._operand()}")

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return self._binary("equal", "=", other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return self._binary("not_equal", "!=", other)

    def __lt__(self, other: Any) -> Expr:
        return self._binary("less", "<", other)

    def __le__(self, other: Any) -> Expr:
        return self._binary("less_or_equal", "<=", other)

    def __gt__(self, other: Any) -> Expr:
        return self._binary("greater", ">", other)

    def __ge__(self, other: Any) -> Expr:
        return self._binary("greater_or_equal", ">=", other)

    def __and__(self, other: Any) -> Expr:
        return self._binary("and", "and", other)

    def __rand__(self, other: Any) -> Expr:
        return self._binary("and", "and", other, True)

    def __or__(self, other: Any) -> Expr:
        return self._binary("or", "or", other)

    def __ror__(self, other: Any) -> Expr:
        return self._binary("or", "or", other, True)

    def __invert__(self) -> Expr:
        return self._unary("not", f"not {self._operand()}")

    def is_null(self) -> Expr:
        """Returns the condition that the value is null."""
        return self._unary("is_null", f"{self._operand()} is null")

    def is_not_null(self) -> Expr:
        """Returns the condition that the value is not null."""
        return self._unary("is_not_null", f"{self._operand()} is not null")

    def if_null(self, other: Any) -> Expr:
        """Returns the value, or another one where it is null."""
        return self._binary("if_null", "if null", other)

    def required(self) -> Expr:
        """Returns the value, and makes a dead letter of a record in which it is null."""
        tree = self._unary("required", f"{self._operand()} required")._tree
        return Expr(tree, f"{self._operand()} required", self._name)

    def cast(self, to: ColumnType) -> Expr:
        """Converts the value to another type, such as ``int`` or ``"timestamp[ms]"``."""
        text = f"cast({self._text} as {to})"
        return Expr({"cast": {"input": self._tree, "to": data_type(to)}}, text, text)

    def alias(self, name: str) -> Expr:
        """Names the column of the value."""
        return Expr({"alias": {"input": self._tree, "name": name}}, f"{self._text} as {name}", name)


def col(name: str) -> Expr:
    """Returns the expression of the column with this name."""
    if not isinstance(name, str):
        raise invalid(f"the name of a column is a text, and not {name!r}")
    return Expr({"column": name}, name, name)


def lit(value: Value) -> Expr:
    """Returns the expression of a constant."""
    tree: Dict[str, Any]
    if value is None:
        return Expr({"literal": "null"}, "null", "null")
    if isinstance(value, bool):
        tree = {"boolean": value}
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            tree = {"int": value}
        elif value < 2**64:
            tree = {"u_int": value}
        else:
            raise invalid(f"the integer {value} has more than 64 bits", "use a float")
    elif isinstance(value, float):
        tree = {"float": value}
    elif isinstance(value, str):
        tree = {"text": value}
    elif isinstance(value, (datetime, date)):
        tree = {"text": value.isoformat()}
    else:
        raise invalid(
            f"{value!r} is no constant of an expression",
            "use None, a bool, int, float, str, datetime or date",
        )
    text = repr(value) if not isinstance(value, str) else '"' + value + '"'
    return Expr({"literal": tree}, text, text)


def expression(value: Any) -> Expr:
    """Returns an expression unchanged, and other values as constants."""
    return value if isinstance(value, Expr) else lit(value)
