"""Durations, types and schemas of a description."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

import pyarrow as pa
import pytest

import ardea as a
from ardea.durations import microseconds
from ardea.inference import inferred_fields
from ardea.schemas import data_type, fields_of


def test_durations_have_units() -> None:
    assert microseconds("5s") == 5_000_000
    assert microseconds("1.5ms") == 1_500
    assert microseconds("2h") == 7_200_000_000
    assert microseconds(timedelta(minutes=1)) == 60_000_000


@pytest.mark.parametrize("text", ["", "5", "s", "5 parsecs", "-1s"])
def test_a_text_without_a_unit_is_no_duration(text: str) -> None:
    with pytest.raises(a.Error, match="is no duration") as raised:
        microseconds(text)
    assert raised.value.code == "ARD-101"
    assert raised.value.hint is not None


def test_types_are_those_of_python_or_arrow() -> None:
    assert data_type(int) == "Int64"
    assert data_type(datetime) == {"Timestamp": ["Microsecond", None]}
    assert data_type("timestamp[ns, tz=UTC]") == {"Timestamp": ["Nanosecond", "UTC"]}
    with pytest.raises(a.Error, match="is no type of a column"):
        data_type("number")


def test_a_schema_is_a_mapping_a_class_or_one_of_arrow() -> None:
    @dataclass
    class Bid:
        auction: int
        note: Optional[str]

    assert fields_of({"x": float}) == [("x", "Float64", True)]
    assert fields_of(pa.schema([pa.field("n", pa.int32(), nullable=False)])) == [
        ("n", "Int32", False)
    ]
    with pytest.raises(a.Error, match="is no schema"):
        fields_of(3)


def test_columns_of_a_class_are_null_only_if_optional() -> None:
    assert fields_of(Sale) == [("product", "Utf8", False), ("note", "Utf8", True)]


@dataclass
class Sale:
    """A record of the tests."""

    product: str
    note: Optional[str]


def test_the_types_of_a_collection_are_inferred() -> None:
    assert inferred_fields([{"a": 1}, {"a": 2.5, "b": None}, {"b": "x"}]) == [
        ("a", "Float64", True),
        ("b", "Utf8", True),
    ]
    assert inferred_fields([1, 2]) is None
    assert inferred_fields([{"a": 1}, {"a": "x"}]) is None
    assert inferred_fields([]) is None
