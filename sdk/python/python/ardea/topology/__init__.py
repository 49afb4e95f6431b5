"""Spouts and bolts: topologies with components in Python.

>>> from ardea.topology import Bolt
>>> class Split(Bolt):
...     outputs = ["word"]
...
...     def execute(self, tuple, out):
...         for word in tuple["line"].split():
...             out.emit(word)

A component runs in a process of its own, one for each instance: see ``docs/python.md``.
"""

from .builder import BoltInputs, TopologyBuilder
from .collectors import Collector, HeldTuple, SpoutCollector
from .components import DONE, Bolt, ComponentContext, Direct, Next, Spout, wait
from .state import JobFailure, State
from .tuples import Tuple

__all__ = [
    "Bolt",
    "BoltInputs",
    "Collector",
    "ComponentContext",
    "DONE",
    "Direct",
    "HeldTuple",
    "JobFailure",
    "Next",
    "Spout",
    "SpoutCollector",
    "State",
    "TopologyBuilder",
    "Tuple",
    "wait",
]
