#!/usr/bin/env python3
"""Compares two files of JSON lines as multisets of objects.

    compare.py expected.jsonl actual.jsonl

The order of lines and of fields does not matter. Integers, strings and the rest must be the same; a number with a
fraction in either file may differ by one part in 10^9. Prints the first differences. Exit code: 0 the same, 1 not the
same, 2 a file that cannot be read.
"""

import json
import sys
from collections import defaultdict

TOLERANCE = 1e-9
SHOWN = 10


def read(path):
    """The objects of a file."""
    objects = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
            if not isinstance(value, dict):
                raise ValueError(f"{path}, line {number}: not an object: {line.strip()[:80]}")
            objects.append(value)
    return objects


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fractional_fields(objects):
    """The fields that hold a floating point number somewhere."""
    return {name for value in objects for name, field in value.items() if isinstance(field, float)}


def grouped(objects, fractional):
    """The objects by all that must be the same; each as its (near enough) numbers and itself."""
    groups = defaultdict(list)
    for value in objects:
        near = {name: field for name, field in value.items() if name in fractional and is_number(field)}
        exact = {name: field for name, field in value.items() if name not in near}
        key = json.dumps([sorted(near), exact], sort_keys=True)
        groups[key].append(([near[name] for name in sorted(near)], value))
    for group in groups.values():
        group.sort(key=lambda entry: entry[0])
    return groups


def close(left, right):
    return all(a == b or abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in zip(left, right))


def differences(expected, actual):
    """Pairs of (what is wrong, object)."""
    fractional = fractional_fields(expected) | fractional_fields(actual)
    wanted, given = grouped(expected, fractional), grouped(actual, fractional)
    for key in list(wanted) + [key for key in given if key not in wanted]:
        left, right = wanted.get(key, []), given.get(key, [])
        i = j = 0
        while i < len(left) or j < len(right):
            if i < len(left) and j < len(right) and close(left[i][0], right[j][0]):
                i, j = i + 1, j + 1
            elif j == len(right) or (i < len(left) and left[i][0] <= right[j][0]):
                yield "missing", left[i][1]
                i += 1
            else:
                yield "unexpected", right[j][1]
                j += 1


def main(arguments):
    if len(arguments) != 2:
        print("usage: compare.py EXPECTED.jsonl ACTUAL.jsonl", file=sys.stderr)
        return 2
    try:
        expected, actual = read(arguments[0]), read(arguments[1])
    except (OSError, ValueError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    count = 0
    for what, value in differences(expected, actual):
        count += 1
        if count <= SHOWN:
            print(f"{what}: {json.dumps(value, ensure_ascii=False)}")
    if count > SHOWN:
        print(f"... and {count - SHOWN} more")
    if count:
        print(f"{count} differences between {len(expected)} expected and {len(actual)} actual results")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
