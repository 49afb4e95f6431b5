"""Values of Kafka with a schema registry."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import ardea as a
import pytest
from services import Service, require, run

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": ["null", "int"]},
            {"name": "miles", "type": "long"},
            {"name": "fare", "type": "double"},
        ],
    }
)
PROTO = """
syntax = "proto3";
package flights;
message Other { string name = 1; }
message Flight { string carrier = 1; optional int32 delay = 2; int64 miles = 3; double fare = 4; }
"""
SCHEMA = {"carrier": str, "delay": int, "miles": int, "fare": float}
FLIGHTS: List[Dict[str, Any]] = [
    {"carrier": "UA", "delay": 15, "miles": 1 << 40, "fare": 99.5},
    {"carrier": "ÄA", "delay": None, "miles": -3, "fare": 20.0},
]


class Registry:
    """A schema registry."""

    def __init__(self) -> None:
        #: The schemas of the ids from 1 on, with their types.
        self.schemas: List[Tuple[str, str]] = []
        self.subjects: List[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text, kind = registry.schemas[int(self.path.split("?")[0].rpartition("/")[2]) - 1]
                self.answer({"schema": text, "schemaType": kind})

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                schema = (request["schema"], request.get("schemaType", "AVRO"))
                if schema not in registry.schemas:
                    registry.schemas.append(schema)
                registry.subjects.append(self.path.split("/")[2])
                self.answer({"id": registry.schemas.index(schema) + 1})

            def answer(self, document: Dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    yield registry
    registry.stop()


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    require("kafka")
    service = Service("kafka", ports=2)
    yield f"127.0.0.1:{service.ports[0]}"
    service.stop()


def create(broker: str, topic: str) -> None:
    """Creates a topic: its first message is a tombstone."""
    run("kcat", "-b", broker, "-P", "-t", topic, "-K", "|", "-Z", given="x|\n")


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_records_with_a_schema_are_written_and_read(
    name: str, kafka: str, registry: Registry, tmp_path: Path
) -> None:
    topic = f"flights-{name}"
    create(kafka, topic)
    schemas = a.kafka.SchemaRegistry(registry.url)
    values = {
        "avro": lambda: a.kafka.avro(schemas, AVRO),
        "protobuf": lambda: a.kafka.protobuf(schemas, PROTO, message="flights.Flight"),
    }[name]()
    p = a.Pipeline("write")
    flights = p.read(a.items(FLIGHTS, schema=SCHEMA))
    flights.write(a.kafka.write(kafka, topic, key="carrier", format=values))
    p.run(dead_letters=str(tmp_path / "refused.jsonl"))
    assert not (tmp_path / "refused.jsonl").exists() or not (tmp_path / "refused.jsonl").read_text()
    assert registry.subjects == [f"{topic}-value"]

    p = a.Pipeline("read")
    values = {"avro": a.kafka.avro, "protobuf": a.kafka.protobuf}[name](schemas)
    source = a.kafka.read(kafka, topic, schema=SCHEMA, format=values, until_present=True)
    rows = p.read(source).collect()
    p.run(dead_letters=str(tmp_path / "bad.jsonl"))
    assert rows.rows() == FLIGHTS
    # The tombstone has no record.
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 1


def test_a_record_that_does_not_fit_its_schema_is_a_dead_letter(
    kafka: str, registry: Registry, tmp_path: Path
) -> None:
    create(kafka, "narrow")
    values = a.kafka.avro(a.kafka.SchemaRegistry(registry.url), AVRO)
    p = a.Pipeline("narrow")
    rows = [{**FLIGHTS[0], "delay": 1 << 40}, FLIGHTS[1]]
    p.read(a.items(rows, schema=SCHEMA)).write(a.kafka.write(kafka, "narrow", format=values))
    p.run(dead_letters=str(tmp_path / "bad.jsonl"))
    (letter,) = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert "delay" in letter["reason"]


def test_wrong_formats_are_refused() -> None:
    registry = a.kafka.SchemaRegistry("http://localhost:8081")
    with pytest.raises(a.Error, match="needs a schema"):
        a.kafka.write("localhost", "x", format=a.kafka.avro(registry))
    with pytest.raises(a.Error, match="and not both"):
        a.kafka.write("localhost", "x", value="y", format=a.kafka.avro(registry, AVRO))
    with pytest.raises(a.Error, match="no columns of metadata"):
        a.kafka.read("localhost", "x", schema=SCHEMA, format=a.kafka.avro(registry), metadata=["key"])
    with pytest.raises(a.Error, match="a user or a token"):
        a.kafka.SchemaRegistry("http://localhost", user="x", token="y")


def test_an_avro_schema_that_is_no_record_is_refused() -> None:
    require("kafka")
    registry = a.kafka.SchemaRegistry("http://localhost:1")
    p = a.Pipeline("refused")
    sink = a.kafka.write("localhost:1", "x", format=a.kafka.avro(registry, '"string"'))
    p.read(a.items([{"x": 1}])).write(sink)
    with pytest.raises(a.Error, match="is no record"):
        p.run()
