"""Checks the oracle itself against results computed by hand, and the comparison.

    target/oracle-venv/bin/python3 -m unittest discover -s crates/nexmark/oracle
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import compare  # noqa: E402
import oracle  # noqa: E402


def person(id, name, city, state, date_time):
    return {"kind": "person", "id": id, "name": name, "email_address": "", "credit_card": "", "city": city,
            "state": state, "date_time": date_time, "extra": ""}


def auction(id, seller, category, date_time, expires):
    return {"kind": "auction", "id": id, "item_name": "", "description": "", "initial_bid": 1, "reserve": 5_000,
            "date_time": date_time, "expires": expires, "seller": seller, "category": category, "extra": ""}


def bid(auction, bidder, price, date_time):
    return {"kind": "bid", "auction": auction, "bidder": bidder, "price": price, "channel": "c", "url": "u",
            "date_time": date_time, "extra": "e"}


# Twelve events, not in order of time. Auction 123 has a bid at its opening, one at its expiry and one that is a
# millisecond late; auction 246 has one bid, long before it opens.
EVENTS = [
    bid(123, 2, 100, 1_000),
    auction(123, 1, 10, 1_000, 5_000),
    bid(123, 3, 300, 5_000),
    person(1, "Ann", "Portland", "OR", 1_000),
    bid(123, 2, 900, 5_001),
    auction(246, 2, 10, 9_000, 9_500),
    bid(246, 2, 900, -1),
    person(2, "Bob", "Seattle", "WA", -500),
    auction(10_124, 1, 11, 2_000, 4_000),
    bid(10_124, 3, 900, 3_000),
    bid(10_124, 2, 200, 3_999),
    person(3, "Cy", "Boise", "ID", 12_000),
]

SIDE = 'key,value\n123,a\n124,"b,c"\n125,d\n'


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def events(self, events):
        return self.write("events.jsonl", "".join(json.dumps(event) + "\n" for event in events))


class QueriesOverTwelveEvents(Files):
    def check(self, query, columns, rows, **options):
        results = oracle.compute(query, self.events(EVENTS), **options)
        self.assertEqual([list(result) for result in results], [columns] * len(rows))
        found = [tuple(result.values()) for result in results]
        self.assertEqual(len(found), len(rows), found)
        for left, right in zip(found, sorted(rows)):
            for a, b in zip(left, right):
                self.assertIs(type(a), type(b), (left, right))
                self.assertAlmostEqual(a, b) if isinstance(b, float) else self.assertEqual(a, b, (left, right))

    def test_q0_is_every_bid(self):
        self.check("q0", ["auction", "bidder", "price", "channel", "url", "date_time", "extra"], [
            (123, 2, 100, "c", "u", 1_000, "e"), (123, 3, 300, "c", "u", 5_000, "e"),
            (123, 2, 900, "c", "u", 5_001, "e"), (246, 2, 900, "c", "u", -1, "e"),
            (10_124, 3, 900, "c", "u", 3_000, "e"), (10_124, 2, 200, "c", "u", 3_999, "e"),
        ])

    def test_q1_is_every_bid_in_euros(self):
        self.check("q1", ["auction", "bidder", "price", "date_time"], [
            (123, 2, 90.8, 1_000), (123, 3, 272.4, 5_000), (123, 2, 817.2, 5_001), (246, 2, 817.2, -1),
            (10_124, 3, 817.2, 3_000), (10_124, 2, 181.6, 3_999),
        ])

    def test_q2_is_the_bids_on_multiples_of_123(self):
        self.check("q2", ["auction", "price"], [(123, 100), (123, 300), (123, 900), (246, 900)])

    def test_q3_leaves_out_other_categories_and_other_states(self):
        self.check("q3", ["name", "city", "state", "auction"], [("Ann", "Portland", "OR", 123)])

    def test_q4_counts_no_auction_without_a_winner(self):
        self.check("q4", ["category", "price"], [(10, 300.0), (11, 900.0)])

    def test_q5_has_a_window_for_every_slide_with_a_bid(self):
        self.check("q5", ["window_start", "window_end", "auction", "bids"], [
            (-10_000, 0, 246, 1),
            (-8_000, 2_000, 246, 1), (-8_000, 2_000, 123, 1),
            (-6_000, 4_000, 10_124, 2),
            (-4_000, 6_000, 123, 3),
            (-2_000, 8_000, 123, 3),
            (0, 10_000, 123, 3),
            (2_000, 12_000, 123, 2), (2_000, 12_000, 10_124, 2),
            (4_000, 14_000, 123, 2),
        ])

    def test_q5_tumbles_if_slide_and_window_are_the_same(self):
        self.check("q5", ["window_start", "window_end", "auction", "bids"], [
            (-4_000, 0, 246, 1), (0, 4_000, 10_124, 2), (4_000, 8_000, 123, 2),
        ], window_ms=4_000, slide_ms=4_000)

    def test_q6_is_the_average_by_seller(self):
        self.check("q6", ["seller", "price"], [(1, 600.0)])

    def test_q7_has_all_ties(self):
        self.check("q7", ["window_start", "window_end", "auction", "bidder", "price"], [
            (-10_000, 0, 246, 2, 900), (0, 10_000, 123, 2, 900), (0, 10_000, 10_124, 3, 900),
        ])

    def test_q7_takes_the_window_given(self):
        self.check("q7", ["window_start", "window_end", "auction", "bidder", "price"], [
            (-2_000, 0, 246, 2, 900), (0, 2_000, 123, 2, 100), (2_000, 4_000, 10_124, 3, 900),
            (4_000, 6_000, 123, 2, 900),
        ], window_ms=2_000)

    def test_q8_has_a_person_once_and_only_in_the_window_of_registration(self):
        self.check("q8", ["window_start", "window_end", "id", "name"], [(0, 10_000, 1, "Ann")])

    def test_q13_drops_bids_without_a_side_value(self):
        for side in (SIDE, SIDE.split("\n", 1)[1]):
            self.check("q13", ["auction", "bidder", "price", "date_time", "value"], [
                (123, 2, 100, 1_000, "a"), (123, 3, 300, 5_000, "a"), (123, 2, 900, 5_001, "a"),
                (10_124, 3, 900, 3_000, "b,c"), (10_124, 2, 200, 3_999, "b,c"),
            ], side=self.write("side.csv", side))


class Corners(Files):
    def test_q6_takes_the_last_ten_by_expiry_then_by_id(self):
        events = []
        for id in range(1, 12):
            events += [auction(id, 7, 10, 0, 100), bid(id, 1, id * 10, 50)]
        # The highest id but the first to expire, and one that is the last to expire but has no bid.
        events += [auction(12, 7, 10, 0, 60), bid(12, 1, 9_999, 50), auction(13, 7, 10, 0, 200)]
        self.assertEqual(oracle.compute("q6", self.events(events)), [{"seller": 7, "price": 65.0}])

    def test_a_slide_that_does_not_divide_the_window_is_understood(self):
        results = oracle.compute("q5", self.events([bid(1, 1, 1, 0)]), window_ms=5_000, slide_ms=2_000)
        self.assertEqual([result["window_start"] for result in results], [-4_000, -2_000, 0])

    def test_the_greatest_numbers_stay_exact(self):
        largest = 2**64 - 1
        results = oracle.compute("q7", self.events([bid(largest, 1, largest, 5), bid(1, 1, largest - 1, 5)]))
        self.assertEqual([(result["auction"], result["price"]) for result in results], [(largest, largest)])

    def test_missing_strings_are_empty_and_unknown_fields_are_passed_over(self):
        line = {"kind": "bid", "auction": 1, "bidder": 2, "price": 3, "date_time": 4, "colour": {"red": 1}}
        results = oracle.compute("q0", self.events([line]))
        self.assertEqual(results, [{"auction": 1, "bidder": 2, "price": 3, "channel": "", "url": "",
                                    "date_time": 4, "extra": ""}])

    def test_no_events_give_no_results(self):
        for query in oracle.QUERIES:
            side = self.write("side.csv", SIDE)
            self.assertEqual(oracle.compute(query, self.events([]), side=side), [], query)

    def test_durations(self):
        self.assertEqual([oracle.duration_ms(text) for text in ("10s", "500ms", "1m30s", "2h")],
                         [10_000, 500, 90_000, 7_200_000])
        for text in ("", "10", "s", "0s", "10 parsecs", "-1s"):
            with self.assertRaises(oracle.argparse.ArgumentTypeError):
                oracle.duration_ms(text)

    def test_the_command_writes_a_line_for_each_result(self):
        output = os.path.join(self.folder, "out.jsonl")
        arguments = ["--query", "q5", "-i", self.events(EVENTS), "-o", output, "--window", "4s", "--slide", "4s"]
        self.assertEqual(oracle.main(arguments), 0)
        with open(output, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], '{"window_start": -4000, "window_end": 0, "auction": 246, "bids": 1}')
        self.assertEqual(len(lines), 3)


class Comparison(Files):
    def compare(self, expected, actual):
        lines = lambda values: "".join(json.dumps(value) + "\n" for value in values)  # noqa: E731
        paths = [self.write("expected.jsonl", lines(expected)), self.write("actual.jsonl", lines(actual))]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = compare.main(paths)
        return code, said.getvalue()

    def test_order_of_lines_and_fields_does_not_matter(self):
        self.assertEqual(self.compare([{"a": 1, "b": 2}, {"a": 3, "b": 4}], [{"b": 4, "a": 3}, {"b": 2, "a": 1}]),
                         (0, ""))

    def test_how_often_an_object_occurs_matters(self):
        self.assertEqual(self.compare([{"a": 1}, {"a": 1}], [{"a": 1}])[0], 1)
        self.assertEqual(self.compare([{"a": 1}], [{"a": 1}, {"a": 1}])[0], 1)

    def test_fractions_may_differ_a_little_and_integers_not_at_all(self):
        self.assertEqual(self.compare([{"a": 1, "p": 272.4}], [{"a": 1, "p": 272.40000000000003}])[0], 0)
        self.assertEqual(self.compare([{"a": 1, "p": 300.0}], [{"a": 1, "p": 300}])[0], 0)
        self.assertEqual(self.compare([{"a": 1, "p": 272.4}], [{"a": 1, "p": 272.4001}])[0], 1)
        self.assertEqual(self.compare([{"a": 2**60}], [{"a": 2**60 + 1}])[0], 1)
        self.assertEqual(self.compare([{"a": 1}], [{"a": "1"}])[0], 1)
        self.assertEqual(self.compare([{"a": 1}], [{"a": True}])[0], 1)

    def test_objects_that_differ_in_a_fraction_are_matched_each_once(self):
        expected = [{"a": 1, "p": 1.5}, {"a": 1, "p": 2.5}, {"a": 1, "p": 3.5}]
        code, said = self.compare(expected, [expected[2], expected[0], {"a": 1, "p": 2.6}])
        self.assertEqual(code, 1)
        self.assertEqual(said.splitlines()[:2], ['missing: {"a": 1, "p": 2.5}', 'unexpected: {"a": 1, "p": 2.6}'])

    def test_a_line_that_is_no_object_is_an_error_of_its_own(self):
        good, bad = self.write("good.jsonl", "{}\n"), self.write("bad.jsonl", "{}\n[1]\n")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(compare.main([good, bad]), 2)
        self.assertIn("line 2", said.getvalue())


if __name__ == "__main__":
    unittest.main()
