"""Measures the calls of functions: ``python -m ardea.bench``.

Prints the records per second of processor time for a column that is added by an expression, by a
batch function, and by a function on records. If the package ``bytewax`` is installed, its rates for
the functions on records follow, from the same process.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List

from .batches import BatchFunction
from .expressions import col
from .pipelines import Pipeline
from .sources import Items
from .streams import Stream

ROWS: List[Dict[str, Any]] = [
    {"auction": n, "bidder": 7 * n, "price": 1.5 * n, "channel": f"channel-{n % 10}"}
    for n in range(1000)
]


#: The functions on records that both systems call.
is_expensive: Callable[[Dict[str, Any]], bool] = lambda bid: bid["price"] > 10  # noqa: E731
in_euros: Callable[[Dict[str, Any]], Dict[str, Any]] = lambda bid: {  # noqa: E731
    "auction": bid["auction"],
    "euros": bid["price"] * 0.908,
}


def by_expression(bids: Stream) -> Stream:
    """Adds a column by an expression."""
    return bids.with_column("euros", col("price") * 0.908)


def by_batch_function(bids: Stream) -> Stream:
    """Adds a column by a function on Arrow batches."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def euros(batch: Any) -> Any:
        values = pc.multiply(batch.column("price"), 0.908)
        names = [*batch.schema.names, "euros"]
        return pa.RecordBatch.from_arrays([*batch.columns, values], names=names)

    return bids.map(BatchFunction(euros, adds={"euros": float}))


def by_filter(bids: Stream) -> Stream:
    """Selects records by a function."""
    return bids.filter(is_expensive)


def by_row_function(bids: Stream) -> Stream:
    """Adds a column by a function on records."""
    return bids.with_column("euros", lambda bid: bid["price"] * 0.908, type=float)


def by_row_map(bids: Stream) -> Stream:
    """Makes new records by a function on records."""
    return bids.map(in_euros, schema={"auction": int, "euros": float})


CASES: Dict[str, Callable[[Stream], Stream]] = {
    "expression": by_expression,
    "batch function": by_batch_function,
    "lambda, filter": by_filter,
    "lambda, column": by_row_function,
    "lambda, map": by_row_map,
}


def measure(step: Callable[[Stream], Stream], records: int) -> float:
    """Returns the records per second of processor time."""
    pipeline = Pipeline("bench")
    source = Items(ROWS, batch_rows=len(ROWS), repeat=max(1, records // len(ROWS)))
    step(pipeline.read(source)).discard()
    before = time.process_time()
    pipeline.run(threads=1, quiet=True, settings={"spin": "0us"})
    return records / (time.process_time() - before)


def measure_bytewax(operator: str, function: Callable[[Any], Any], records: int) -> float:
    """Returns the records per second of processor time of an operator of Bytewax."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main

    class Discard(StatelessSinkPartition):  # type: ignore[misc]
        def write_batch(self, items: Any) -> None:
            pass

    class DiscardSink(DynamicSink):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Discard:
            return Discard()

    rows = itertools.chain.from_iterable(itertools.repeat(ROWS, max(1, records // len(ROWS))))
    flow = Dataflow("bench")
    stream = op.input("in", flow, TestingSource(rows, batch_size=len(ROWS)))
    op.output("out", getattr(op, operator)("step", stream, function), DiscardSink())
    before = time.process_time()
    run_main(flow)
    return records / (time.process_time() - before)


def report(name: str, rate: float, as_json: bool) -> None:
    """Prints the rate of a case."""
    if as_json:
        load = os.getloadavg()[0]
        print(json.dumps({"case": name, "records_per_cpu_second": rate, "load": load}))
    else:
        print(f"{name:16} {rate:14,.0f} records per CPU second")


def main() -> None:
    """Runs all cases."""
    parser = argparse.ArgumentParser(prog="python -m ardea.bench", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="for functions on records")
    parser.add_argument("--json", action="store_true", help="print one JSON object a case")
    options = parser.parse_args()
    for name, step in CASES.items():
        records = options.records if name.startswith("lambda") else 20 * options.records
        report(name, measure(step, records), options.json)
    if importlib.util.find_spec("bytewax") is None:
        print("bytewax          SKIPPED: it is not installed (pip install bytewax)", file=sys.stderr)
        return
    for operator, function in (("filter", is_expensive), ("map", in_euros)):
        rate = measure_bytewax(operator, function, options.records)
        report(f"bytewax, {operator}", rate, options.json)


if __name__ == "__main__":
    main()
