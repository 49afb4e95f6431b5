//! The Prometheus endpoint on a real socket: valid and invalid clients, and many at a time.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use ardea_core::{ErrorCode, Timestamp};
use ardea_metrics::{Batch, Labels, MetricsSink, Prometheus, Value};

fn serving() -> Prometheus {
    let mut sink = Prometheus::bind("127.0.0.1:0").expect("a free port");
    let now = Timestamp::from_secs(1);
    let mut batch = Batch::new(Labels::of([("job", "a")]), now, now);
    batch.push("made_total", &Labels::none(), Value::Counter(7.0));
    sink.take(&batch).expect("taken");
    sink
}

/// Returns the response to these bytes, until the connection is closed.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a socket");
    // A client that is refused early may find the connection closed.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_reader_gets_the_format_that_it_asks_for() {
    let sink = serving();
    let answer = ask(sink.address(), b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert!(answer.ends_with("made_total{job=\"a\"} 7\n"), "{answer}");
    let answer = ask(
        sink.address(),
        b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\naccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n",
    );
    assert!(
        answer.contains("Content-Type: application/openmetrics-text"),
        "{answer}"
    );
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    let answer = ask(sink.address(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn strangers_are_told_what_is_wrong_and_do_no_harm() {
    let sink = serving();
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n", "400"),
        (b"GET /metrics HTTP/1.1\r\n", "400"),
        (b"", "400"),
    ] {
        let answer = ask(sink.address(), request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{request:?}: {answer}"
        );
    }
    // A head beyond the limit: the response may be lost with the connection.
    ask(sink.address(), &vec![b'x'; 1 << 20]);
    let answer = ask(sink.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.contains("200 OK"), "{answer}");
}

#[test]
fn silent_readers_hold_their_places_only_for_a_while() {
    let sink = serving();
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(sink.address()).expect("it listens"))
        .collect();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !ask(sink.address(), b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK") {
        assert!(std::time::Instant::now() < deadline, "never served again");
    }
    drop(silent);
}

#[test]
fn a_port_in_use_is_refused_and_with_a_plus_the_next_one_is_taken() {
    let sink = serving();
    let address = sink.address().to_string();
    let error = Prometheus::bind(&address).expect_err("in use");
    assert_eq!(error.code(), ErrorCode::Network);
    let next = Prometheus::bind(&format!("{address}+")).expect("one of a hundred");
    assert!(next.address().port() > sink.address().port());
    let error = Prometheus::bind("nowhere").expect_err("no port");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    // A dropped sink releases its port.
    drop(sink);
    Prometheus::bind(&address).expect("free again");
}
