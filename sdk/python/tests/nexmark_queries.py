"""The queries of the benchmark NEXMark by expressions, with the results of those in Rust."""

from pathlib import Path
from typing import Callable, Dict, Sequence

import ardea as a

#: The time without a limit of joins.
ALWAYS = "36500d"

#: The number of keys of the table of query 13.
SIDE_KEYS = 10_000

_TEXTS = ("name", "city", "state", "channel", "url", "extra")
_TIMES = ("date_time", "expires")


def _type(name: str) -> str:
    if name in _TIMES:
        return "int64"
    return "string" if name in _TEXTS else "uint64"


def _required(name: str) -> a.Expr:
    """Returns the value of a field that events of its kind have."""
    value = a.col(name).if_null("") if name in _TEXTS else a.col(name).required()
    return value.alias(name)


def events(p: a.Pipeline, path: str, *names: str) -> a.Stream:
    """Returns fields of all events, and their kind."""
    schema = {"kind": "string", **{name: _type(name) for name in names}}
    return p.read(a.files.json(path, schema=schema))


def of_kind(stream: a.Stream, kind: str, names: Sequence[str]) -> a.Stream:
    """Returns fields of the events of one kind."""
    return stream.filter(a.col("kind") == kind).select(*map(_required, names))


def bids(p: a.Pipeline, path: str, *names: str) -> a.Stream:
    """Returns fields of bids."""
    return of_kind(events(p, path, *names), "bid", names)


def timed(stream: a.Stream) -> a.Stream:
    """Assigns the times of the events."""
    return stream.with_timestamps(a.col("date_time").cast("timestamp[ms]"), idle=None)


def in_millis(bound: str, name: str) -> a.Expr:
    """Returns a bound of windows in milliseconds."""
    return a.col(bound).cast("timestamp[ms]").cast(int).alias(name)


def q0(p: a.Pipeline, path: str) -> a.Stream:
    return bids(p, path, "auction", "bidder", "price", "channel", "url", "date_time", "extra")


def q1(p: a.Pipeline, path: str) -> a.Stream:
    stream = bids(p, path, "auction", "bidder", "price", "date_time")
    return stream.select("auction", "bidder", (a.col("price") * 0.908).alias("price"), "date_time")


def q2(p: a.Pipeline, path: str) -> a.Stream:
    return bids(p, path, "auction", "price").filter(a.col("auction") % 123 == 0)


def q3(p: a.Pipeline, path: str) -> a.Stream:
    fields = ("id", "name", "city", "state", "seller", "category", "date_time")
    state = a.col("state")
    is_local = (state == "OR") | (state == "ID") | (state == "CA")
    wanted = timed(events(p, path, *fields).filter(is_local | (a.col("category") == 10)))
    persons = of_kind(wanted, "person", ("id", "name", "city", "state"))
    auctions = of_kind(wanted, "auction", ("id", "seller")).select("seller", auction=a.col("id"))
    joined = persons.key_by("id").interval_join(auctions.key_by("seller"), before=ALWAYS, after=ALWAYS)
    return joined.select("name", "city", "state", "auction")


def won(p: a.Pipeline, path: str) -> a.Stream:
    """Returns each auction with a valid bid, and its highest price."""
    fields = ("id", "seller", "category", "expires", "auction", "price", "date_time")
    both = timed(events(p, path, *fields).filter(a.col("kind") != "person"))
    auctions = of_kind(both, "auction", ("id", "seller", "category", "expires"))
    prices = of_kind(both, "bid", ("auction", "price", "date_time"))
    prices = prices.select("auction", "price", bid_time=a.col("date_time"))
    joined = auctions.key_by("id").interval_join(prices.key_by("auction"), after=ALWAYS)
    valid = joined.filter(a.col("bid_time") <= a.col("expires"))
    return valid.key_by("id", "seller", "category", "expires").aggregate(price=a.max("price"))


def q4(p: a.Pipeline, path: str) -> a.Stream:
    return won(p, path).key_by("category").aggregate(price=a.avg("price"))


def q5(p: a.Pipeline, path: str) -> a.Stream:
    stream = timed(bids(p, path, "auction", "date_time"))
    counts = stream.key_by("auction").window(a.sliding("10s", "2s")).aggregate(bids=a.count())
    counts = counts.select("auction", "bids", start=a.col("window_start"), end=a.col("window_end"))
    hot = counts.key_by().window(a.tumbling("2s")).top(a.all_with_max("bids"))
    bounds = (in_millis("start", "window_start"), in_millis("end", "window_end"))
    return hot.select(*bounds, "auction", "bids")


def q6(p: a.Pipeline, path: str) -> a.Stream:
    last = won(p, path).key_by("seller").top(a.top_n(10, "expires", "id"))
    return last.key_by("seller").aggregate(price=a.avg("price"))


def q7(p: a.Pipeline, path: str) -> a.Stream:
    stream = timed(bids(p, path, "auction", "bidder", "price", "date_time"))
    highest = stream.key_by().window(a.tumbling("10s")).top(a.all_with_max("price"))
    bounds = (in_millis("window_start", "window_start"), in_millis("window_end", "window_end"))
    return highest.select(*bounds, "auction", "bidder", "price")


def q8(p: a.Pipeline, path: str) -> a.Stream:
    is_person = a.col("kind") == "person"
    stream = events(p, path, "id", "name", "seller", "date_time")
    sellers = stream.filter(is_person | (a.col("kind") == "auction")).select(
        a.col("seller").if_null(a.col("id")).required().alias("id"),
        "seller",
        "name",
        is_person.alias("is_person"),
        _required("date_time"),
    )
    found = (
        timed(sellers)
        .key_by("id")
        .window(a.tumbling("10s"))
        .aggregate(name=a.max("name"), has_person=a.max("is_person"), auctions=a.count("seller"))
    )
    bounds = (in_millis("window_start", "window_start"), in_millis("window_end", "window_end"))
    return found.filter(a.col("has_person") & (a.col("auctions") > 0)).select(*bounds, "id", _required("name"))


def q13(p: a.Pipeline, path: str) -> a.Stream:
    """Joins bids with the table ``side.csv`` beside the events."""
    side = p.read(a.files.csv(Path(path).parent / "side.csv", schema={"key": "uint64", "value": "string"}))
    stream = bids(p, path, "auction", "bidder", "price", "date_time")
    joined = stream.with_column("side_key", a.col("auction") % SIDE_KEYS).hash_join(side, "side_key", "key")
    return joined.select("auction", "bidder", "price", "date_time", "value")


#: The queries by their names.
QUERIES: Dict[str, Callable[[a.Pipeline, str], a.Stream]] = {
    "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8, "q13": q13,
}
