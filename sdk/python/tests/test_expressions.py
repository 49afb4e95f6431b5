"""Expressions as plain data."""

from datetime import datetime

import pytest

import ardea as a


def test_an_expression_is_plain_data() -> None:
    expr = a.col("price") * 2 > 10
    assert expr.tree() == {
        "binary": {
            "operation": "greater",
            "left": {
                "binary": {
                    "operation": "multiply",
                    "left": {"column": "price"},
                    "right": {"literal": {"int": 2}},
                }
            },
            "right": {"literal": {"int": 10}},
        }
    }


def test_constants_may_stand_on_both_sides() -> None:
    assert repr(1 - a.col("x")) == "Expr(1 - x)"
    assert repr(10 < a.col("x")) == "Expr(x > 10)"
    assert repr(-a.col("x") % 3) == "Expr((-x) % 3)"


def test_conditions_are_combined_by_operators() -> None:
    expr = (a.col("kind") == "bid") & ~a.col("price").is_null() | (a.col("x") != 1)
    assert repr(expr) == (
        'Expr(((kind = "bid") and (not (price is null))) or (x != 1))'
    )


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="has no truth value"):
        bool(a.col("x") > 1)
    with pytest.raises(TypeError, match="has no truth value"):
        1 < a.col("x") < 3  # noqa: B015


def test_constants_of_other_types_are_refused() -> None:
    assert a.lit(datetime(2020, 1, 2)).tree() == {"literal": {"text": "2020-01-02T00:00:00"}}
    assert a.lit(2**64 - 1).tree() == {"literal": {"u_int": 2**64 - 1}}
    with pytest.raises(a.Error, match="more than 64 bits"):
        a.lit(2**64)
    with pytest.raises(a.Error, match="is no constant"):
        a.col("x") + [1]


def test_the_name_of_a_column_is_its_alias_or_its_text() -> None:
    assert (a.col("x") + 1).name() == "x + 1"
    assert (a.col("x") + 1).alias("y").name() == "y"
    assert a.col("x").cast("timestamp[ms]").tree()["cast"]["to"] == {
        "Timestamp": ["Millisecond", None]
    }
