"""Functions on batches."""

from typing import Any, Dict, List

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ardea as a

ROWS: List[Dict[str, Any]] = [{"auction": n, "price": float(n), "name": f"n{n}"} for n in range(3)]


@a.batch(adds={"euros": float})
def with_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("euros", pc.multiply(batch["price"], 2.0))


@a.batch(adds={"euros": float})
def with_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(euros=frame["price"] * 2)


@a.batch(adds={"euros": float})
def with_polars(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(euros=pl.col("price") * 2)


@a.batch(adds={"euros": float})
def with_table(table: pa.Table) -> pa.Table:
    return table.append_column("euros", pc.multiply(table["price"], 2.0))


def run(function: Any, rows: List[Dict[str, Any]] = ROWS) -> List[Dict[str, Any]]:
    p = a.Pipeline("batches")
    out = p.read(a.items(rows)).map(function).collect()
    p.run()
    return out.rows()


@pytest.mark.parametrize("function", [with_arrow, with_pandas, with_polars, with_table])
def test_a_function_adds_a_column_in_each_form(function: Any) -> None:
    assert run(function) == [{**row, "euros": row["price"] * 2} for row in ROWS]


def test_arrow_gets_the_columns_without_a_copy() -> None:
    addresses = []

    @a.batch
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        addresses.append(batch["price"].buffers()[1].address)
        return batch

    p = a.Pipeline("shared")
    rows = p.read(a.items(ROWS))
    before = rows.collect()
    rows.map(same).collect()
    p.run()
    (batch,) = before.batches()
    assert addresses == [pa.record_batch(batch)["price"].buffers()[1].address]


def test_a_function_may_return_fewer_records() -> None:
    @a.batch
    def cheap(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.less(batch["price"], 1.5))

    assert run(cheap) == ROWS[:2]


def test_the_columns_may_be_others() -> None:
    @a.batch(schema={"total": float})
    def total(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(total=pl.col("price").sum())

    assert run(total) == [{"total": 3.0}]


def test_a_result_of_another_type_is_refused() -> None:
    @a.batch
    def wrong(batch: pa.RecordBatch) -> Any:
        return [1, 2]

    with pytest.raises(a.FunctionError, match="'wrong' returned list, and not a RecordBatch"):
        run(wrong)


def test_a_result_with_other_columns_is_refused() -> None:
    @a.batch
    def renamed(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.rename(columns={"price": "cost"})

    with pytest.raises(a.FunctionError, match='has no column "price"') as raised:
        run(renamed)
    assert raised.value.step == "renamed"

    @a.batch(adds={"euros": float})
    def texts(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(euros="1")

    with pytest.raises(a.FunctionError, match='a column "euros" of the type'):
        run(texts)


def test_a_function_that_drops_records_is_refused_in_a_stream_with_event_time() -> None:
    @a.batch
    def first(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(0, 1)

    p = a.Pipeline("timed")
    p.read(a.items([{"t": 1}, {"t": 2}])).with_timestamps(lambda r: r["t"]).map(first).collect()
    with pytest.raises(a.Error, match="returned 1 records for 2"):
        p.run()


def test_an_exception_of_a_batch_function_is_the_cause() -> None:
    @a.batch
    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise KeyError("price")

    with pytest.raises(a.FunctionError, match="KeyError: 'price'") as raised:
        run(failing)
    assert isinstance(raised.value.__cause__, KeyError)


def test_annotations_choose_the_form() -> None:
    with pytest.raises(a.Error, match="cannot read"):
        a.batch(lambda_of_int)
    with pytest.raises(a.Error, match="has no parameter"):
        a.batch(without_parameter)  # type: ignore[arg-type]


def lambda_of_int(batch: int) -> int:
    return batch


def without_parameter() -> None:
    return None
