#!/usr/bin/env python3
"""Computes a NEXMark query over a file of JSON lines in SQL, independently of the engine.

    oracle.py --query q5 -i events.jsonl -o expected.jsonl [--window 10s --slide 2s] [--side side.csv]

Writes one JSON object a result, sorted. The queries are those of the NEXMark chapter of Apache Beam's documentation,
with the result columns of `ardea nexmark run`:

q0   the bids as they came
q1   bids with price * 0.908
q2   auction and price of the bids with auction % 123 = 0
q3   persons in OR, ID, CA joined with the auctions of category 10 that they sell, whichever of the two comes first
q4   average winning price of each category that has an auction with a winner
q5   in each sliding window that has a bid, the auctions with the most bids
q6   average winning price over each seller's last ten auctions that have a winner, ordered by expiry, then id
q7   the highest bids of each tumbling window, all ties
q8   persons who appear and open an auction in the same tumbling window, each once
q13  bids joined with the side input on auction % 10000

A bid wins if it has the highest price among the bids with auction.date_time <= bid.date_time <= auction.expires (of
ties, the earliest wins, which is never seen: no query shows more of it than the price). Windows are aligned to the
epoch, before it as well: window_start is a multiple of the slide, window_end = window_start + window, and an event at
time t is in the windows with window_start <= t < window_end. A person's id and an auction's id are taken to be unique.
"""

import argparse
import csv
import json
import math
import re
import sys

import duckdb

COLUMNS = {
    "kind": "VARCHAR",
    # person and auction
    "id": "UBIGINT",
    # person
    "name": "VARCHAR",
    "city": "VARCHAR",
    "state": "VARCHAR",
    # auction
    "expires": "BIGINT",
    "seller": "UBIGINT",
    "category": "UBIGINT",
    # bid
    "auction": "UBIGINT",
    "bidder": "UBIGINT",
    "price": "UBIGINT",
    "channel": "VARCHAR",
    "url": "VARCHAR",
    # all
    "date_time": "BIGINT",
    "extra": "VARCHAR",
}

# A macro `aligned(t, step)`: the greatest multiple of step that is not above t. SQL's % has the sign of its left side.
ALIGNED = "CREATE MACRO aligned(t, step) AS t - ((t % step) + step) % step"

VIEWS = """
CREATE VIEW person AS
    SELECT id, coalesce(name, '') AS name, coalesce(city, '') AS city, coalesce(state, '') AS state, date_time
    FROM event WHERE kind = 'person';
CREATE VIEW auction AS
    SELECT id, date_time, expires, seller, category FROM event WHERE kind = 'auction';
CREATE VIEW bid AS
    SELECT auction, bidder, price, coalesce(channel, '') AS channel, coalesce(url, '') AS url, date_time,
           coalesce(extra, '') AS extra
    FROM event WHERE kind = 'bid';
CREATE VIEW winner AS
    SELECT a.id, a.category, a.seller, a.expires, max(b.price) AS price
    FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY ALL;
"""

QUERIES = {
    "q0": "SELECT auction, bidder, price, channel, url, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction
        FROM person p JOIN auction a ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, CAST(sum(CAST(price AS HUGEINT)) AS DOUBLE) / count(*) AS price
        FROM winner GROUP BY category
    """,
    # Counts by pane (the greatest common divisor of window and slide), then adds up the panes of every window.
    "q5": """
        WITH paned AS (
            SELECT auction, aligned(date_time, $pane) AS pane, count(*) AS bids FROM bid GROUP BY ALL
        ), assigned AS (
            SELECT auction, bids, pane,
                   unnest(range(aligned(pane, $slide), pane - $window, -$slide)) AS window_start
            FROM paned
        ), counted AS (
            SELECT window_start, auction, CAST(sum(bids) AS BIGINT) AS bids FROM assigned GROUP BY ALL
        )
        SELECT window_start, window_start + $window AS window_end, auction, bids
        FROM counted
        QUALIFY bids = max(bids) OVER (PARTITION BY window_start)
    """,
    "q6": """
        WITH latest AS (
            SELECT seller, price FROM winner
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
        )
        SELECT seller, CAST(sum(CAST(price AS HUGEINT)) AS DOUBLE) / count(*) AS price
        FROM latest GROUP BY seller
    """,
    "q7": """
        SELECT aligned(date_time, $window) AS window_start, aligned(date_time, $window) + $window AS window_end,
               auction, bidder, price
        FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY aligned(date_time, $window))
    """,
    "q8": """
        WITH appeared AS (
            SELECT aligned(date_time, $window) AS window_start, id, min(name) AS name FROM person GROUP BY ALL
        ), opened AS (
            SELECT DISTINCT aligned(date_time, $window) AS window_start, seller FROM auction
        )
        SELECT p.window_start, p.window_start + $window AS window_end, p.id, p.name
        FROM appeared p JOIN opened o ON o.window_start = p.window_start AND o.seller = p.id
    """,
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.date_time, s.value
        FROM bid b JOIN side s ON s.key = b.auction % 10000
    """,
}

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def duration_ms(text):
    """'10s', '500ms', '1m30s' in milliseconds."""
    parts = re.findall(r"(\d+)\s*([a-z]+)\s*", text)
    whole = re.sub(r"\d+\s*[a-z]+\s*", "", text)
    if not parts or whole or any(unit not in UNITS_MS for _, unit in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration; write it like 10s, 500ms or 1m30s")
    milliseconds = sum(int(number) * UNITS_MS[unit] for number, unit in parts)
    if milliseconds == 0:
        raise argparse.ArgumentTypeError("a window or slide of no length has no events in it")
    return milliseconds


def load_events(connection, path):
    """The table `event` with a row for each line."""
    connection.execute(ALIGNED)
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
    connection.execute(
        f"""CREATE TABLE event AS SELECT * FROM read_json($path, format = 'newline_delimited',
            columns = {{{columns}}}, maximum_object_size = 67108864)""",
        {"path": path},
    )
    connection.execute(VIEWS)


def load_side(connection, path):
    """The table `side` from a CSV file of key and value, with or without a header."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    if rows and not rows[0][0].strip().isdigit():
        rows = rows[1:]
    pairs = [(int(row[0]), row[1]) for row in rows]
    connection.execute("CREATE TABLE side (key UBIGINT, value VARCHAR)")
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    connection.execute("INSERT INTO side SELECT unnest($keys::UBIGINT[]), unnest($values::VARCHAR[])",
                       {"keys": keys, "values": values})


def compute(query, events, window_ms=10_000, slide_ms=2_000, side=None):
    """The results of `query` over the file `events`: sorted dictionaries, column by column."""
    connection = duckdb.connect()
    load_events(connection, events)
    if query == "q13":
        if side is None:
            raise ValueError("q13 joins with a side input: name it with --side FILE.csv")
        load_side(connection, side)
    parameters = {"window": window_ms, "slide": slide_ms, "pane": math.gcd(window_ms, slide_ms)}
    sql = QUERIES[query]
    used = {name: value for name, value in parameters.items() if f"${name}" in sql}
    result = connection.execute(f"SELECT * FROM ({sql}) ORDER BY ALL", used)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row)) for row in result.fetchall()]


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Computes a NEXMark query in SQL.")
    parser.add_argument("--query", required=True, choices=list(QUERIES))
    parser.add_argument("-i", "--input", required=True, help="the events, JSON lines")
    parser.add_argument("-o", "--output", required=True, help="where the results go, JSON lines")
    parser.add_argument("--window", type=duration_ms, default=10_000, help="10s unless given")
    parser.add_argument("--slide", type=duration_ms, default=2_000, help="2s unless given; q5 only")
    parser.add_argument("--side", help="the side input of q13, CSV of key,value")
    options = parser.parse_args(arguments)
    try:
        results = compute(options.query, options.input, options.window, options.slide, options.side)
        with open(options.output, "w", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
    except (duckdb.Error, OSError, ValueError) as error:
        print(f"oracle.py: {options.query} over {options.input}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
