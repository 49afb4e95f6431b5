"""Ardea: a low-latency stream processing engine.

A job is a ``Pipeline``: sources, steps and sinks. Expressions over columns run in Rust without the
interpreter; functions run a batch at a time.

>>> import ardea as a
>>> p = a.Pipeline("sales")
>>> rows = [{"product": "tea", "amount": 4}, {"product": "milk", "amount": 1}]
>>> sold = p.read(a.items(rows)).filter(a.col("amount") > 2).collect()
>>> p.run(quiet=True)
Outcome(state='completed')
>>> sold.rows()
[{'product': 'tea', 'amount': 4}]
"""

from . import files
from ._ardea import RecordBatch, __version__
from .aggregates import Aggregate, avg, count, max, min, sum
from .batches import BatchFunction, batch
from .collected import Collected
from .commands import arguments
from .errors import Error, FunctionError
from .expressions import Expr, col, lit
from .keyed import Context
from .pipelines import Outcome, Pipeline
from .sources import Items, items
from .streams import KeyedStream, Stream, WindowedStream
from .windows import Window, daily, monthly, session, sliding, tumbling

__all__ = [
    "Aggregate",
    "BatchFunction",
    "Collected",
    "Context",
    "Error",
    "Expr",
    "FunctionError",
    "Items",
    "KeyedStream",
    "Outcome",
    "Pipeline",
    "RecordBatch",
    "Stream",
    "Window",
    "WindowedStream",
    "__version__",
    "arguments",
    "avg",
    "batch",
    "col",
    "count",
    "daily",
    "files",
    "items",
    "lit",
    "max",
    "min",
    "monthly",
    "session",
    "sliding",
    "sum",
    "tumbling",
]
