"""Steps that read two streams, and steps with the state of a key over columns."""

from datetime import datetime
from typing import Any, Dict, List

import ardea as a
import pytest

Rows = List[Dict[str, Any]]


def timed(p: a.Pipeline, rows: Rows) -> a.Stream:
    """Returns a stream whose event time is the column ``at`` in seconds."""
    return p.read(a.items(rows)).with_timestamps(
        a.col("at").cast("timestamp[s]"), idle=None
    )


def by(rows: Rows, *keys: str) -> Rows:
    return sorted(rows, key=lambda row: [str(row[key]) for key in keys])


def test_a_hash_join_adds_the_columns_of_the_table() -> None:
    p = a.Pipeline("names")
    flights = p.read(a.items([{"carrier": "UA", "delay": 15}, {"carrier": "XX", "delay": 16}]))
    carriers = p.read(a.items([{"code": "UA", "name": "United"}]))
    named = flights.hash_join(carriers, "carrier", "code").collect()
    p.run()
    assert named.rows() == [{"carrier": "UA", "delay": 15, "name": "United"}]


def test_an_outer_hash_join_keeps_records_without_a_match() -> None:
    p = a.Pipeline("names")
    flights = p.read(a.items([{"code": "UA", "delay": 15}, {"code": "XX", "delay": 16}]))
    carriers = p.read(a.items([{"code": "UA", "name": "United"}]))
    named = flights.hash_join(carriers, "code", outer=True).collect()
    p.run()
    assert by(named.rows(), "code") == [
        {"code": "UA", "delay": 15, "name": "United"},
        {"code": "XX", "delay": 16, "name": None},
    ]


def test_a_table_without_an_end_is_refused() -> None:
    p = a.Pipeline("names")
    numbers = p.read(a.generate.sequence(3))
    endless = p.read(a.generate.at_rate(10)).select(n=a.col("number"))
    numbers.hash_join(endless, "number", "n").discard()
    with pytest.raises(a.Error, match="read to its end first") as error:
        p.run()
    assert "test_joins.py" in str(error.value)


def test_a_window_join_pairs_records_of_one_window() -> None:
    p = a.Pipeline("pairs")
    left = timed(p, [{"k": 1, "at": 0, "l": "a"}, {"k": 1, "at": 11, "l": "b"}])
    right = timed(p, [{"k2": 1, "at": 3, "r": "x"}, {"k2": 2, "at": 12, "r": "y"}])
    right = right.select("k2", "r")
    joined = left.key_by("k").window(a.tumbling("10s")).join(right.key_by("k2")).collect()
    p.run()
    assert joined.rows() == [{"k": 1, "at": 0, "l": "a", "r": "x"}]


def test_an_interval_join_pairs_records_by_their_distance() -> None:
    p = a.Pipeline("pairs")
    orders = timed(p, [{"id": 1, "at": 0}, {"id": 2, "at": 100}])
    payments = timed(p, [{"id": 1, "at": 8, "paid": 5}, {"id": 2, "at": 200, "paid": 7}])
    payments = payments.select("id", "paid")
    paid = orders.key_by("id").interval_join(payments.key_by("id"), after="10s").collect()
    p.run()
    assert paid.rows() == [{"id": 1, "at": 0, "paid": 5}]


def test_an_outer_interval_join_emits_unmatched_records() -> None:
    p = a.Pipeline("pairs")
    orders = timed(p, [{"id": 1, "at": 0}, {"id": 2, "at": 100}])
    payments = timed(p, [{"id": 1, "at": 8, "paid": 5}]).select("id", "paid")
    paid = (
        orders.key_by("id")
        .interval_join(payments.key_by("id"), before="1s", after="10s", outer=True, name="paid")
        .collect()
    )
    p.run()
    assert by(paid.rows(), "id") == [
        {"id": 1, "at": 0, "paid": 5},
        {"id": 2, "at": 100, "paid": None},
    ]


def test_merged_streams_have_the_records_of_both() -> None:
    p = a.Pipeline("merged")
    web = p.read(a.items([{"price": 5}], schema={"price": int}))
    app = p.read(a.items([{"price": 7}, {"price": None}], schema={"price": int}))
    bids = web.merge(app).filter(a.col("price").is_not_null()).collect()
    p.run()
    assert by(bids.rows(), "price") == [{"price": 5}, {"price": 7}]


def test_merged_streams_of_objects_have_the_objects_of_both() -> None:
    p = a.Pipeline("merged")
    first, second = p.read(a.items([(1,), (2,)])), p.read(a.items(["x"]))
    merged = first.merge(second).collect()
    p.run()
    assert sorted(merged.rows(), key=str) == [(1,), (2,), "x"]


def test_merged_streams_with_different_columns_are_refused() -> None:
    p = a.Pipeline("merged")
    first, second = p.read(a.items([{"a": 1}])), p.read(a.items([{"b": 1}]))
    first.merge(second).discard()
    with pytest.raises(a.Error, match="different columns: a: Int64, and b: Int64"):
        p.run()
    with pytest.raises(a.Error, match="different pipelines"):
        first.merge(a.Pipeline("other").read(a.items([{"a": 1}])))


def test_rolling_aggregates_follow_each_record() -> None:
    p = a.Pipeline("balances")
    rows = [{"name": "ann", "amount": 5}, {"name": "bob", "amount": 1}, {"name": "ann", "amount": -2}]
    balances = p.read(a.items(rows)).key_by("name").rolling(balance=a.sum("amount")).collect()
    p.run()
    assert by(balances.rows(), "name", "amount") == [
        {"name": "ann", "amount": -2, "balance": 3},
        {"name": "ann", "amount": 5, "balance": 5},
        {"name": "bob", "amount": 1, "balance": 1},
    ]


def test_rolling_aggregates_with_a_ttl_begin_again() -> None:
    p = a.Pipeline("balances")
    rows = [{"k": 1, "at": at} for at in (0, 1, 500)]
    counts = timed(p, rows).key_by("k").rolling_with_ttl("1m", "counts", n=a.count()).collect()
    p.run()
    assert [row["n"] for row in counts] == [1, 2, 1]


def test_the_first_record_of_each_key_is_distinct() -> None:
    p = a.Pipeline("distinct")
    rows = [{"k": k, "at": at} for at, k in enumerate("aabab")]
    first = p.read(a.items(rows)).key_by("k").distinct("first").collect()
    apart = timed(p, rows).key_by("k").distinct_within("3s").collect()
    p.run()
    assert by(first.rows(), "k") == [{"k": "a", "at": 0}, {"k": "b", "at": 2}]
    assert by(apart.rows(), "at") == [{"k": "a", "at": 0}, {"k": "b", "at": 2}, {"k": "a", "at": 3}]


def test_the_greatest_records_are_those_of_a_key_or_window() -> None:
    p = a.Pipeline("top")
    rows = [{"k": 1, "at": at, "price": price} for at, price in enumerate([3, 9, 9, 4])]
    bids = timed(p, rows)
    two = bids.key_by("k").top(a.top_n(2, "price", -a.col("at"))).collect()
    best = bids.key_by("k").window(a.tumbling("2s")).top(a.all_with_max("price")).collect()
    p.run()
    assert by(two.rows(), "at") == [rows[1], rows[2]]
    assert [(row["window_start"], row["price"]) for row in by(best.rows(), "at")] == [
        (datetime(1970, 1, 1, 0, 0, 0), 9),
        (datetime(1970, 1, 1, 0, 0, 2), 9),
    ]


def test_a_session_ends_after_a_gap() -> None:
    p = a.Pipeline("sessions")
    clicks = timed(p, [{"user": "ann", "at": at} for at in (0, 4, 8, 30)])
    results, late = (
        clicks.key_by("user").window(a.session("10s")).aggregate_and_late("s", clicks=a.count())
    )
    sessions, late_clicks = results.collect(), late.collect()
    p.run()
    found = [(row["window_start"].second, row["window_end"].second, row["clicks"]) for row in sessions]
    assert sorted(found) == [(0, 18, 3), (30, 40, 1)]
    assert len(late_clicks) == 0


def test_results_at_the_end_need_an_end() -> None:
    for step in ("aggregate", "top"):
        p = a.Pipeline("endless")
        keyed = p.read(a.generate.at_rate(10)).key_by("number")
        results = keyed.aggregate(n=a.count()) if step == "aggregate" else keyed.top(a.top_n(1, "number"))
        results.discard()
        with pytest.raises(a.Error, match="emits its results at the end"):
            p.run()
