//! Tests with invalid, oversized, incomplete and endless requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::ErrorCode;
use ardea_rest::testing::FakeCluster;
use ardea_rest::{Server, ServerConfig};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Answer, loopback, serve, serve_word_count};

/// Returns true if the response is an error in JSON.
fn is_a_fault(answer: &Answer) -> bool {
    let fault: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    fault["code"].is_string() && fault["message"].is_string()
}

#[tokio::test]
async fn what_is_misspelt_is_told_as_every_other_error() {
    let served = serve_word_count().await;
    for (method, path, body, status) in [
        ("GET", "/page", "", 404),
        ("GET", "/v1/job", "", 404),
        ("GET", "/v1/jobs/", "", 404),
        ("PATCH", "/v1/jobs", "", 405),
        ("POST", "/v1/jobs/word-count", "", 405),
        ("POST", "/v1/jobs", "", 400),
        ("POST", "/v1/jobs", "{", 400),
        ("POST", "/v1/jobs", "[]", 400),
        ("POST", "/v1/jobs", "{\"definition\": 1}", 400),
        (
            "PUT",
            "/v1/jobs/word-count/parallelism",
            "{\"paralelism\": {}}",
            400,
        ),
        (
            "PUT",
            "/v1/jobs/word-count/parallelism",
            "{\"parallelism\": {}}",
            400,
        ),
        (
            "PUT",
            "/v1/jobs/word-count/parallelism",
            "{\"parallelism\": {\"words\": -1}}",
            400,
        ),
        (
            "PUT",
            "/v1/jobs/word-count/parallelism",
            "{\"parallelism\": {\"words\": 0}}",
            400,
        ),
        ("POST", "/v1/jobs/word-count/containers/x/restart", "", 400),
        (
            "POST",
            "/v1/jobs/word-count/containers/99999999999/restart",
            "",
            400,
        ),
        ("GET", "/v1/jobs/word-count/logs?tail=many", "", 400),
        ("GET", "/v1/jobs/word-count/logs?tial=3", "", 400),
        ("GET", "/v1/jobs/word-count/metrics/range", "", 400),
        ("GET", "/v1/jobs/%ff/top", "", 400),
        ("GET", "/v1/jobs/nothing/top", "", 404),
    ] {
        let answer = served.ask(method, path, "", body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
        assert!(is_a_fault(&answer), "{method} {path} {body}: {answer:?}");
    }
    assert!(served.cluster.commands().is_empty());
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_in_words_of_the_interface_and_with_a_hint() {
    let served = serve_word_count().await;
    let job = "/v1/jobs/word-count";
    for (method, path, says) in [
        ("GET", "logs?tail=20000", "tail can be 10000 at most"),
        ("GET", "logs?tail=many", "is no whole number"),
        (
            "GET",
            "logs?tail=99999999999",
            "\"99999999999\" is no whole number from 0 to 4294967295",
        ),
        (
            "GET",
            "metrics?instance=",
            "\"\" is no whole number from 0 to 4294967295",
        ),
        (
            "GET",
            "metrics/range?name=x&from_ms=-1",
            "\"-1\" is no whole number from 0 to 18446744073709551615",
        ),
        ("GET", "logs?container=x", "\"x\" is no whole number"),
        (
            "POST",
            "containers/99999999999/restart",
            "\"99999999999\" is no whole number from 0 to 4294967295",
        ),
        ("GET", "logs?tial=3", "unknown field `tial`"),
        ("GET", "metrics?instance=x", "is no whole number"),
        ("GET", "metrics/range", "missing field `name`"),
        (
            "GET",
            "metrics/range?name=x&from_ms=2&to_ms=1",
            "from_ms, 2, is later than to_ms, 1",
        ),
        (
            "POST",
            "containers/x/restart",
            "\"x\" is not a container number",
        ),
    ] {
        let answer = served.ask(method, &format!("{job}/{path}"), "", "").await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        let fault: Value = serde_json::from_str(&answer.body).unwrap();
        let message = fault["message"].as_str().unwrap();
        assert!(message.contains(says), "{path}: {message}");
        let of_libraries = [
            "deserialize",
            "Cannot parse",
            "cannot parse",
            "invalid digit",
            "target type",
            "`u32`",
        ];
        assert!(
            !of_libraries.iter().any(|it| message.contains(it)),
            "{message}"
        );
        assert!(fault["hint"].is_string(), "{path}: {fault}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_rest_goes_on() {
    let mut config = loopback();
    config.limits.body_bytes = 1000;
    let served = serve(config).await;
    let body = format!("\"{}\"", "x".repeat(2000));
    let answer = served.ask("POST", "/v1/jobs", "", &body).await;
    assert_eq!(answer.status, 413);
    assert!(is_a_fault(&answer));
    let promised =
        b"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999\r\n\r\n";
    // The client closes the connection before the announced body is complete.
    assert_eq!(served.raw(promised).await.unwrap().status, 400);
    let head = format!("x-much: {}\r\n", "x".repeat(200_000));
    assert_eq!(served.ask("GET", "/v1/jobs", &head, "").await.status, 431);
    let long = format!("/v1/jobs/{}", "x".repeat(30_000));
    let answer = served.ask("GET", &long, "", "").await;
    assert_eq!(answer.status, 404);
    assert!(served.client(None).list().await.unwrap().is_empty());
}

#[tokio::test]
async fn whoever_is_silent_keeps_nobody_out_and_is_aborted() {
    let mut config = loopback();
    config.limits.client_timeout = Duration::from_millis(50);
    let served = serve(config).await;
    let mut streams = Vec::new();
    for begin in [
        "",
        "GET /v1/jobs HTT",
        "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{",
    ] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    assert!(served.client(None).list().await.unwrap().is_empty());
    for mut stream in streams {
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(crate::fixture::TIMEOUT, read)
            .await
            .unwrap();
    }
}

#[test]
fn no_bytes_bring_the_server_down() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let served = runtime.block_on(serve_word_count());
    let words = prop_oneof![
        Just(b"GET ".to_vec()),
        Just(b"POST ".to_vec()),
        Just(b"/v1/jobs".to_vec()),
        Just(b"/word-count".to_vec()),
        Just(b"/logs?tail=".to_vec()),
        Just(b" HTTP/1.1\r\n".to_vec()),
        Just(b"host: 127.0.0.1\r\n".to_vec()),
        Just(b"transfer-encoding: chunked\r\n".to_vec()),
        Just(b"content-length: 3\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"{\"definition\":".to_vec()),
        Just(b"ffffffffffffffffff\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let requests = prop::collection::vec(words, 0..12);
    let mut runner = TestRunner::new(Config::with_cases(300));
    let outcome = runner.run(&requests, |parts| {
        runtime.block_on(served.raw(&parts.concat()));
        Ok(())
    });
    outcome.unwrap();
    let jobs = runtime.block_on(served.client(None).list()).unwrap();
    assert_eq!(jobs.len(), 1);
}

#[tokio::test]
async fn idle_connections_give_way_to_whoever_asks() {
    let mut config = loopback();
    config.limits.connections = 3;
    let served = serve(config).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        // One client sends nothing, the others an incomplete request.
        if !idle.is_empty() {
            stream.write_all(b"GET /v1/cl").await.unwrap();
        }
        idle.push(stream);
    }
    for _ in 0..5 {
        served.client(None).about().await.unwrap();
    }
}

/// Creates a request whose body stops after its first byte.
fn stalled(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{{")
}

#[tokio::test]
async fn a_body_that_does_not_come_is_aborted_whatever_it_asks_for() {
    let mut config = loopback();
    config.limits.client_timeout = Duration::from_millis(50);
    let served = serve(config).await;
    for action in ["savepoint", "checkpoints/check", "upgrade", "recover"] {
        let request = stalled(&format!("/v1/jobs/word-count/{action}"));
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let read = tokio::time::timeout(crate::fixture::TIMEOUT, read).await;
        read.expect("it hangs up").unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{action}: {answer}");
        assert!(answer.contains("cluster.api_timeout"), "{action}: {answer}");
    }
    assert!(served.cluster.commands().is_empty());
}

#[tokio::test]
async fn slow_bodies_of_long_actions_give_way_to_others() {
    let mut config = loopback();
    config.limits.connections = 4;
    let served = serve(config).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = stalled("/v1/jobs/word-count/savepoint");
        // The connection may have been closed for the next one already.
        let _ = stream.write_all(request.as_bytes()).await;
        slow.push(stream);
        served.client(None).about().await.unwrap();
    }
}

/// Sends the pieces in a loop, on one connection after the other, and reads the responses.
async fn send_forever(address: SocketAddr, pieces: Vec<Vec<u8>>) {
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            continue;
        };
        let (mut at, mut answer) = (0, [0; 4096]);
        while stream.write_all(&pieces[at % pieces.len()]).await.is_ok() {
            at += 1;
            let hung_up = match pieces.len() {
                1 => !matches!(stream.read(&mut answer).await, Ok(1..)),
                _ => matches!(stream.try_read(&mut answer), Ok(0)),
            };
            if hung_up {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn clients_that_ask_for_ever_or_byte_by_byte_on_all_connections_keep_nobody_out() {
    let request = b"GET /v1/cluster HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".to_vec();
    let slow_head = b"GET /v1/cluster HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ";
    let slow_body = stalled("/v1/jobs").into_bytes();
    let bytes = |text: &[u8]| text.iter().map(|byte| vec![*byte]).collect();
    for pieces in [vec![request], bytes(slow_head), bytes(&slow_body)] {
        let mut config = loopback();
        config.limits.connections = 4;
        let served = serve(config).await;
        let mut greedy = tokio::task::JoinSet::new();
        for _ in 0..8 {
            greedy.spawn(send_forever(served.address, pieces.clone()));
        }
        for _ in 0..5 {
            served.client(None).about().await.unwrap();
        }
    }
}

#[tokio::test]
async fn followed_lines_take_some_of_the_connections_and_leave_others_to_savepoints() {
    let mut config = loopback();
    config.limits.connections = 6;
    let served = serve(config).await;
    served.cluster.keep_changes_open();
    let follow = "GET /v1/maps/berths/changes HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let mut followers = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(follow.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        let read = stream.read_exact(&mut status);
        let read = tokio::time::timeout(crate::fixture::TIMEOUT, read).await;
        read.expect("it answers").unwrap();
        statuses.push(String::from_utf8_lossy(&status[9..]).into_owned());
        followers.push(stream);
    }
    assert_eq!(statuses, ["200", "200", "503"]);
    served.client(None).about().await.unwrap();
    let savepoint = "/v1/jobs/word-count/savepoint";
    let answer = served
        .ask("POST", savepoint, "", r#"{"to": "/kept"}"#)
        .await;
    assert_ne!(answer.status, 503, "{answer:?}");
    // A follower that disconnects makes room for the next one.
    drop(followers);
    let deadline = std::time::Instant::now() + crate::fixture::TIMEOUT;
    loop {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(follow.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        if &status[9..] == b"200" {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no room");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_not_taken_in_ends_its_connection() {
    let mut config = loopback();
    config.limits.client_timeout = Duration::from_millis(100);
    config.limits.connections = 2;
    let served = serve(config).await;
    let stream = TcpStream::connect(served.address).await.unwrap();
    // Sends many requests without reading a response.
    let (_unread, mut asking) = stream.into_split();
    let request = "GET /v1/openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(64);
    let asked = async { while asking.write_all(request.as_bytes()).await.is_ok() {} };
    let ended = tokio::time::timeout(crate::fixture::TIMEOUT, asked).await;
    ended.expect("the server hangs up");
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_unless_any_other_will_do() {
    let first = serve(loopback()).await;
    let config = ServerConfig::at(first.address);
    let cluster = FakeCluster::new();
    let refused = Server::bind(Arc::new(cluster.clone()), config.clone()).await;
    let error = refused.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Network);
    let config = config.or_any_port(true);
    let second = Server::bind(Arc::new(cluster), config).await.unwrap();
    let address = second.address().unwrap();
    assert_eq!(address.ip(), first.address.ip());
    assert_ne!(address.port(), first.address.port());
}
