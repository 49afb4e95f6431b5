//! The sink for OpenTelemetry collectors, with a receiver on a real socket.
#![cfg(feature = "otlp")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use ardea_core::{ErrorCode, Timestamp};
use ardea_metrics::{Batch, Labels, MetricsManager, MetricsSink, MetricsSinks, Otlp, Value};

/// A receiver of one request, which it answers with this status line.
struct Collector {
    address: SocketAddr,
    received: JoinHandle<(String, Vec<u8>)>,
}

fn collector(status: &'static str) -> Collector {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let received = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut bytes = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                let length = head.split("content-length: ").nth(1).expect("a length");
                let length = length.split("\r\n").next().expect("a line");
                let length: usize = length.parse().expect("a number");
                if bytes.len() >= end + 4 + length {
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).expect("written");
                    return (head, bytes.split_off(end + 4));
                }
            }
            let read = stream.read(&mut piece).expect("bytes");
            assert!(read > 0, "the request broke off");
            bytes.extend_from_slice(&piece[..read]);
        }
    });
    Collector { address, received }
}

fn batch() -> Batch {
    let now = Timestamp::from_secs(1);
    let mut batch = Batch::new(Labels::of([("job", "a")]), now, now);
    batch.push("carts_open", &Labels::none(), Value::Gauge(7.0));
    batch
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

#[test]
fn a_collector_receives_each_batch_as_a_request_in_protocol_buffers() {
    let collector = collector("200 OK");
    let mut sink = Otlp::new(&format!("http://{}", collector.address)).unwrap();
    sink.take(&batch()).unwrap();
    let (head, body) = collector.received.join().unwrap();
    assert!(head.starts_with("post /v1/metrics http/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    for text in ["carts_open", "service.name", "job"] {
        assert!(has(&body, text), "{text} is missing");
    }
}

#[test]
fn a_collector_that_refuses_or_is_away_is_an_error_with_its_address() {
    let refusing = collector("503 Service Unavailable");
    let mut sink = Otlp::new(&format!("http://{}", refusing.address)).unwrap();
    let error = sink.take(&batch()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Network);
    assert!(error.to_string().contains("status 503"), "{error}");
    let strange = collector("what");
    let mut sink = Otlp::new(&format!("http://{}", strange.address)).unwrap();
    assert!(
        sink.take(&batch())
            .unwrap_err()
            .to_string()
            .contains("not HTTP")
    );
    // Its port is free again.
    refusing.received.join().unwrap();
    let gone = format!("http://{}", refusing.address);
    let error = Otlp::new(&gone).unwrap().take(&batch()).unwrap_err();
    assert!(error.to_string().contains(&gone), "{error}");
}

#[test]
fn the_sink_is_selected_by_its_name_and_a_wrong_url_is_refused() {
    let sinks = MetricsSinks::builtin();
    assert!(sinks.check("otlp:http://127.0.0.1:4318/v1/metrics").is_ok());
    for wrong in ["otlp", "otlp:127.0.0.1:4318", "otlp:https://a"] {
        let error = sinks.check(wrong).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong}");
    }
    assert!(sinks.check_otlp("").is_ok());
    assert!(sinks.check_otlp("collector").is_err());
    let collector = collector("200 OK");
    let list = format!("otlp:http://{}", collector.address);
    let manager = MetricsManager::start(&list, &Labels::none(), &sinks).unwrap();
    manager.send(&std::sync::Arc::new(batch()));
    let (_, body) = collector.received.join().unwrap();
    assert!(has(&body, "carts_open"));
}
