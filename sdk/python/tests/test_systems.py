"""Sources and sinks of other systems, with real servers."""

import json
import socket
import socketserver
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List

import ardea as a
import pytest
from ardea import _ardea
from services import Service, free_port, require, run, wait_for

FLIGHTS = [{"carrier": "UA", "delay": 15}, {"carrier": "AA", "delay": 40}, {"carrier": "UA", "delay": 7}]
SCHEMA = {"carrier": str, "delay": int}


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    require("kafka")
    service = Service("kafka", ports=2)
    yield f"127.0.0.1:{service.ports[0]}"
    service.stop()


@pytest.fixture(scope="module")
def nats() -> Iterator[str]:
    require("nats")
    service = Service("nats", ports=2)
    yield f"nats://127.0.0.1:{service.ports[0]}"
    service.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    require("postgres")
    service = Service("postgres")
    yield f"postgres://postgres@127.0.0.1:{service.ports[0]}/postgres"
    service.stop()


@pytest.fixture(scope="module")
def redis() -> Iterator[int]:
    require("redis")
    service = Service("redis")
    yield service.ports[0]
    service.stop()


@pytest.fixture(scope="module")
def minio() -> Iterator[Service]:
    require("s3")
    service = Service("minio")
    yield service
    service.stop()


def produce(broker: str, topic: str, *values: str) -> None:
    given = "".join(f"{value}\n" for value in values)
    run("kcat", "-b", broker, "-P", "-t", topic, "-K", "|", given=given)


def consumed(broker: str, topic: str) -> List[str]:
    words = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k|%s\n"]
    return run("kcat", "-b", broker, *words, "-X", "isolation.level=read_committed").splitlines()


def test_a_topic_is_read_into_columns_and_written(kafka: str) -> None:
    produce(kafka, "flights", *(f"{row['carrier']}|{json.dumps(row)}" for row in FLIGHTS))
    p = a.Pipeline("late")
    flights = p.read(a.kafka.read(kafka, "flights", schema=SCHEMA, until_present=True))
    flights.filter(a.col("delay") > 10).write(a.kafka.write(kafka, "late", key="carrier"))
    p.run()
    assert consumed(kafka, "late") == [
        'UA|{"carrier":"UA","delay":15}',
        'AA|{"carrier":"AA","delay":40}',
    ]


def test_a_topic_is_written_exactly_once_with_a_guarantee(kafka: str, tmp_path: Path) -> None:
    p = a.Pipeline("once")
    p.read(a.generate.sequence(1000)).write(a.kafka.write(kafka, "once", value="number"))
    p.run(guarantee="exactly-once", checkpoints=str(tmp_path / "checkpoints"))
    assert sorted(int(line.lstrip("|")) for line in consumed(kafka, "once")) == list(range(1000))


def test_metadata_are_columns_and_bad_messages_dead_letters(kafka: str, tmp_path: Path) -> None:
    produce(kafka, "metadata", 'a|{"delay":1}', "b|no json", 'c|{"delay":3}')
    p = a.Pipeline("metadata")
    source = a.kafka.read(
        kafka,
        "metadata",
        schema={"delay": int},
        metadata=("key", "topic", "partition", "offset", "timestamp"),
        until_present=True,
    )
    rows = p.read(source).with_column("name", a.col("key").cast(str)).collect()
    p.run(dead_letters=str(tmp_path / "bad.jsonl"))
    assert [(row["delay"], row["name"], row["offset"]) for row in rows] == [(1, "a", 0), (3, "c", 2)]
    first = rows.rows()[0]
    assert (first["topic"], first["partition"]) == ("metadata", 0)
    assert first["timestamp"].year >= 2020
    letters = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [letter["raw"] for letter in letters] == ["no json"]
    assert letters[0]["origin"] == "metadata[0]@1"


def test_messages_are_texts_in_the_windows_of_their_times(kafka: str) -> None:
    produce(kafka, "words", "|to", "|be", "|to")
    p = a.Pipeline("words")
    words = p.read(a.kafka.read(kafka, a.kafka.matching("wor.s"), format="text", until_present=True))
    counts = (
        words.with_source_time().key_by("value").window(a.tumbling("36500d")).aggregate(n=a.count())
    ).collect()
    p.run()
    assert sorted((row["value"], row["n"]) for row in counts) == [("be", 1), ("to", 2)]


def test_windows_over_the_times_of_a_source_need_them_named(kafka: str) -> None:
    p = a.Pipeline("words")
    words = p.read(a.kafka.read(kafka, "words", format="text", until_present=True))
    words.key_by("value").window(a.tumbling("1s")).aggregate(n=a.count()).discard()
    with pytest.raises(a.Error, match="needs records with event time") as error:
        p.run()
    assert "with_source_time()" in str(error.value)


def test_functions_make_and_take_messages(kafka: str) -> None:
    produce(kafka, "raw", "k|one", "k|two")
    p = a.Pipeline("raw")
    raw = p.read(a.kafka.read(kafka, "raw", format="bytes", metadata=["key"], until_present=True))
    (
        raw.map(lambda row: {"text": row["value"].decode().upper(), "key": row["key"].decode()})
        .columns({"text": str, "key": str})
        .write(a.kafka.write(kafka, "upper", key="key", value="text"))
    )
    p.run()
    assert consumed(kafka, "upper") == ["k|ONE", "k|TWO"]


def test_a_missing_topic_fails_with_its_name(kafka: str) -> None:
    p = a.Pipeline("none")
    p.read(a.kafka.read(kafka, "no-such-topic", format="text", until_present=True)).discard()
    with pytest.raises(a.Error, match="no-such-topic"):
        p.run()


def test_a_stream_of_nats_is_written_and_read(nats: str) -> None:
    create_stream(nats, "ORDERS", "orders.>")
    p = a.Pipeline("write")
    rows = [{"id": n, "subject": f"orders.{n % 2}"} for n in range(4)]
    sink = a.nats.write(nats, a.col("subject"), id=a.col("id"), idempotent=True)
    p.read(a.items(rows)).write(sink)
    p.run()

    found: List[Dict[str, Any]] = []
    p = a.Pipeline("read")
    source = a.nats.read(nats, "ORDERS", schema={"id": int}, metadata=["subject", "sequence"])
    p.read(source).for_each(found.append)
    thread = threading.Thread(target=run_until, args=(p, lambda: len(found) == 4))
    thread.start()
    thread.join()
    assert sorted((row["id"], row["subject"]) for row in found) == [
        (0, "orders.0"), (1, "orders.1"), (2, "orders.0"), (3, "orders.1"),
    ]
    assert sorted(row["sequence"] for row in found) == [1, 2, 3, 4]


class Enough(Exception):
    """The end of a job without an end."""


def run_until(p: a.Pipeline, condition: Any) -> None:
    """Runs a job without an end until a condition is true."""
    p.read(a.generate.at_rate(50)).for_each(lambda _: stop_if(condition))
    with pytest.raises(a.FunctionError) as error:
        p.run()
    assert isinstance(error.value.__cause__, Enough)


def stop_if(condition: Any) -> None:
    if condition():
        raise Enough


def create_stream(url: str, name: str, subjects: str) -> None:
    """Creates a stream by the protocol of NATS."""
    host, _, port = url.partition("//")[2].partition(":")
    request = json.dumps({"name": name, "subjects": [subjects], "storage": "file"})
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        reader = connection.makefile("rb")
        reader.readline()
        connection.sendall(
            b'CONNECT {"verbose":false}\r\nSUB reply 1\r\n'
            + f"PUB $JS.API.STREAM.CREATE.{name} reply {len(request)}\r\n{request}\r\n".encode()
        )
        line = reader.readline()
        while not line.startswith(b"MSG"):
            assert line, "the server closed the connection"
            line = reader.readline()
        assert b'"error"' not in reader.readline()


def sql(postgres: str, *statements: str) -> str:
    """Runs statements with the client of the server."""
    words = [word for statement in statements for word in ("-c", statement)]
    return run("psql", postgres, "-Atq", *words)


def test_a_table_is_read_and_written(postgres: str) -> None:
    sql(
        postgres,
        "create table orders (id int primary key, item text, price numeric, at timestamptz)",
        "insert into orders select n, 'item ' || n, n * 1.5, '2026-01-01T00:00:00Z' "
        "from generate_series(1, 2500) n",
        "create table totals (item text primary key, total double precision, raw bytea)",
    )
    p = a.Pipeline("totals")
    schema = {"id": int, "item": str, "price": float, "at": "timestamp[us]"}
    orders = p.read(a.postgres.read(postgres, "orders", "id", schema=schema))
    rows = orders.filter(a.col("id") > 2498).select("item", total=a.col("price") * 2)
    rows = rows.with_column("raw", lambda row: row["item"].encode(), type=bytes)
    rows.write(a.postgres.write(postgres, "totals", upsert="item"))
    p.run()
    assert sql(postgres, "select * from totals order by item").splitlines() == [
        r"item 2499|7497|\x6974656d2032343939",
        r"item 2500|7500|\x6974656d2032353030",
    ]


def test_a_table_is_written_exactly_once(postgres: str, tmp_path: Path) -> None:
    sql(postgres, "create table numbers (number bigint)")
    p = a.Pipeline("numbers")
    p.read(a.generate.sequence(5000)).write(a.postgres.write(postgres, "numbers", exactly_once=True))
    p.run(guarantee="exactly-once", checkpoints=str(tmp_path / "checkpoints"))
    found = sql(postgres, "select count(*), count(distinct number), sum(number) from numbers")
    assert found.strip() == f"5000|5000|{sum(range(5000))}"


def test_a_query_is_read_and_refused_rows_are_dead_letters(postgres: str, tmp_path: Path) -> None:
    sql(postgres, "create table small (n smallint)")
    p = a.Pipeline("query")
    select = "select n, n * 20000 as large from generate_series(1, 3) n"
    rows = p.read(a.postgres.query(postgres, select, "n", schema={"n": int, "large": int}))
    rows.select(n=a.col("large")).write(a.postgres.write(postgres, "small"))
    p.run(dead_letters=str(tmp_path / "bad.jsonl"))
    assert sql(postgres, "select * from small").split() == ["20000"]
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 2


def test_commands_go_to_redis(redis: int) -> None:
    p = a.Pipeline("counts")
    rows = [{"word": "to", "n": 2}, {"word": "be", "n": 1}, {"word": None, "n": 5}]
    p.read(a.items(rows)).write(
        a.redis.write(
            f"redis://127.0.0.1:{redis}",
            a.redis.hset(a.lit("counts"), "word", "n"),
            a.redis.command("ZADD", a.lit("ranks"), a.col("n") * 10, "word"),
            idempotent=True,
        )
    )
    p.run()
    ask = ("redis-cli", "-p", str(redis))
    assert run(*ask, "hgetall", "counts").split() == ["to", "2", "be", "1"]
    assert run(*ask, "zrange", "ranks", "0", "-1", "withscores").split() == ["be", "10", "to", "20"]


def test_commands_count_once_with_a_guarantee(redis: int, tmp_path: Path) -> None:
    p = a.Pipeline("sums")
    p.read(a.generate.sequence(100)).write(
        a.redis.write(
            f"redis://127.0.0.1:{redis}", a.redis.incr_by(a.lit("sum"), "number"), exactly_once=True
        )
    )
    p.run(guarantee="exactly-once", checkpoints=str(tmp_path / "checkpoints"))
    assert run("redis-cli", "-p", str(redis), "get", "sum").strip() == str(sum(range(100)))


def test_objects_in_a_bucket_are_written_and_read(
    minio: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ardea")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ardea-secret")
    query = f"?endpoint=http://127.0.0.1:{minio.ports[0]}&region=us-east-1"
    path = f"s3://states/flights.jsonl{query}"
    p = a.Pipeline("write")
    p.read(a.items(FLIGHTS)).write(a.files.json(path))
    p.run()
    p = a.Pipeline("read")
    rows = p.read(a.files.json(path, schema=SCHEMA)).collect()
    p.run()
    assert rows.rows() == FLIGHTS


class Received(socketserver.StreamRequestHandler):
    """Retains the lines of a client."""

    lines: List[str] = []

    def handle(self) -> None:
        for line in self.rfile:
            self.lines.append(line.decode())


def test_lines_go_over_tcp() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Received) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        p = a.Pipeline("send")
        p.read(a.items(FLIGHTS)).write(a.tcp.send(f"127.0.0.1:{server.server_address[1]}"))
        p.run()
        wait_for(lambda: len(Received.lines) == 3)
        server.shutdown()
    assert [json.loads(line) for line in Received.lines] == FLIGHTS


def test_lines_come_over_tcp() -> None:
    port, found = free_port(), []  # type: int, List[Any]
    p = a.Pipeline("listen")
    p.read(a.tcp.listen(f"127.0.0.1:{port}", schema=SCHEMA)).for_each(found.append)

    def send() -> None:
        def connected() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    text = "".join(json.dumps(row) + "\n" for row in FLIGHTS)
                    connection.sendall(text.encode())
                    return True
            except ConnectionRefusedError:
                return False

        wait_for(connected)

    threading.Thread(target=send, daemon=True).start()
    run_until(p, lambda: len(found) == 3)
    assert found == FLIGHTS


def test_standard_input_and_output_are_lines(tmp_path: Path) -> None:
    job = """
        import ardea as a
        p = a.Pipeline("filter")
        words = p.read(a.stdin(format="text"))
        words.filter(a.col("value") != "be").write(a.stdout(value="value"))
        p.run()
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(job))
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path, input="to\nbe\n\nor\n", capture_output=True, text=True, check=True,
    )
    assert done.stdout == "to\nor\n"


def test_generated_numbers_have_their_due_times() -> None:
    p = a.Pipeline("numbers")
    numbers = p.read(a.generate.at_rate(1000, limit=20)).with_source_time()
    counts = numbers.key_by(even=a.col("number") % 2).window(a.tumbling("1d")).aggregate(n=a.count())
    rows = counts.collect()
    p.run()
    assert sum(row["n"] for row in rows) == 20


def test_a_build_without_a_system_says_so() -> None:
    known = {"kafka", "nats", "postgres", "redis", "s3"}
    built = set(_ardea.built_with())
    assert built <= known
    for system in known - built - {"s3", "redis"}:
        source: Any = {
            "kafka": lambda: a.kafka.read("localhost:1", "t", format="text"),
            "nats": lambda: a.nats.read("nats://localhost:1", "S", format="text"),
            "postgres": lambda: a.postgres.read("postgres://localhost", "t", "k", schema={"k": int}),
        }[system]()
        p = a.Pipeline("missing")
        p.read(source).discard()
        with pytest.raises(a.Error, match=f"without {system}"):
            p.run()


def test_wrong_options_are_refused_where_they_are_given() -> None:
    with pytest.raises(a.Error, match="types of the messages"):
        a.kafka.read("b", "t")
    with pytest.raises(a.Error, match="the format is 'xml'"):
        a.kafka.read("b", "t", format="xml")
    with pytest.raises(a.Error, match="has no 'subject'"):
        a.kafka.read("b", "t", format="text", metadata=["subject"])
    with pytest.raises(a.Error, match="start is 'now'"):
        a.kafka.read("b", "t", format="text", start="now")
    with pytest.raises(a.Error, match="has no command"):
        a.redis.write("redis://localhost")
    with pytest.raises(a.Error, match="no mechanism"):
        a.kafka.sasl("job", "secret", mechanism="kerberos")
