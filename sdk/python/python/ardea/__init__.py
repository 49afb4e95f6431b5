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

from . import files, generate, kafka, nats, postgres, redis, tcp
from ._ardea import RecordBatch, __version__
from .aggregates import Aggregate, avg, count, max, min, sum
from .batches import BatchFunction, batch
from .collected import Collected
from .commands import arguments
from .errors import Error, FunctionError
from .expressions import Expr, col, lit
from .grouped import KeyedStream, WindowedStream
from .keyed import Context
from .pipelines import Outcome, Pipeline
from .selections import TopRecords, all_with_max, top_n
from .sources import Items, items
from .standard import stdin, stdout
from .streams import Stream
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
    "TopRecords",
    "Window",
    "WindowedStream",
    "__version__",
    "all_with_max",
    "arguments",
    "avg",
    "batch",
    "col",
    "count",
    "daily",
    "files",
    "generate",
    "items",
    "kafka",
    "lit",
    "max",
    "min",
    "monthly",
    "nats",
    "postgres",
    "redis",
    "session",
    "sliding",
    "stdin",
    "stdout",
    "sum",
    "tcp",
    "top_n",
    "tumbling",
]
