//! Test environment: servers and streams.

use std::future::Future;
use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ardea_metastore::conformance::{Server, Skipped};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::jetstream::{self, Context};

/// Starts a server. If this fails, prints a message and returns `None`.
pub fn own_server() -> Option<Server> {
    match Server::start("nats.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of NATS: {why}");
            None
        }
    }
}

/// Returns the address of the shared server of all non-disruptive tests. It ends with the process.
pub fn shared_server() -> Option<String> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(own_server).as_ref().map(url)
}

pub fn url(server: &Server) -> String {
    format!("nats://{}", server.address())
}

fn with<R, F: Future<Output = R>>(url: &str, act: impl FnOnce(Context) -> F) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(url).await.unwrap();
        act(jetstream::new(client)).await
    })
}

/// Creates a stream of the subjects below its name. A work queue removes acknowledged messages.
pub fn create(url: &str, name: &str, retention: RetentionPolicy) {
    let config = Config {
        name: name.to_string(),
        subjects: vec![format!("{name}.>")],
        retention,
        ..Config::default()
    };
    with(url, async |context| {
        context.create_stream(config).await.unwrap();
    });
}

/// Creates a stream with a maximum message size in bytes.
pub fn create_for(url: &str, name: &str, bytes: i32) {
    let config = Config {
        name: name.to_string(),
        subjects: vec![format!("{name}.>")],
        max_message_size: bytes,
        ..Config::default()
    };
    with(url, async |context| {
        context.create_stream(config).await.unwrap();
    });
}

/// Creates a stream with a maximum number of messages.
pub fn create_short(url: &str, name: &str, messages: i64) {
    let config = Config {
        name: name.to_string(),
        subjects: vec![format!("{name}.>")],
        max_messages: messages,
        ..Config::default()
    };
    with(url, async |context| {
        context.create_stream(config).await.unwrap();
    });
}

/// Deletes a stream with all consumers.
pub fn delete(url: &str, name: &str) {
    with(url, async |context| {
        context.delete_stream(name).await.unwrap();
    });
}

/// Deletes a consumer of a stream.
pub fn delete_consumer(url: &str, stream: &str, name: &str) {
    with(url, async |context| {
        let stream = context.get_stream(stream).await.unwrap();
        stream.delete_consumer(name).await.unwrap();
    });
}

/// Returns the message number up to which a consumer has received all acknowledgements.
pub fn acknowledged(url: &str, stream: &str, name: &str) -> u64 {
    with(url, async |context| {
        let stream = context.get_stream(stream).await.unwrap();
        let info = stream.consumer_info(name).await.unwrap();
        info.ack_floor.stream_sequence
    })
}

/// Publishes a message with raw header bytes that no client would send.
pub fn publish_raw(url: &str, subject: &str, headers: &[u8], payload: &[u8]) {
    use std::io::{BufRead, BufReader};
    let address = url.trim_start_matches("nats://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut sent = b"CONNECT {\"verbose\":false,\"headers\":true}\r\n".to_vec();
    let (length, all) = (headers.len(), headers.len() + payload.len());
    sent.extend_from_slice(format!("HPUB {subject} {length} {all}\r\n").as_bytes());
    sent.extend_from_slice(headers);
    sent.extend_from_slice(payload);
    sent.extend_from_slice(b"\r\nPING\r\n");
    stream.write_all(&sent).unwrap();
    while !line.starts_with("PONG") {
        line.clear();
        assert!(
            reader.read_line(&mut line).unwrap() > 0,
            "the server hangs up"
        );
    }
}

/// Publishes numbers to a stream.
pub fn fill(url: &str, name: &str, numbers: std::ops::Range<u64>) {
    with(url, async |context| {
        let mut under_way = Vec::new();
        for number in numbers {
            let subject = format!("{name}.number");
            let sent = context.publish(subject, number.to_string().into()).await;
            under_way.push(sent.unwrap());
        }
        for sent in under_way {
            sent.await.unwrap();
        }
    });
}

/// Returns the number of messages in a stream.
pub fn count(url: &str, name: &str) -> u64 {
    with(url, async |context| {
        let stream = context.get_stream(name).await.unwrap();
        stream.get_info().await.unwrap().state.messages
    })
}

/// Returns the payloads of a stream's messages, in order.
pub fn all(url: &str, name: &str) -> Vec<String> {
    with(url, async |context| {
        let stream = context.get_stream(name).await.unwrap();
        let state = stream.get_info().await.unwrap().state;
        let mut all = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            all.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        all
    })
}

/// Waits until a condition holds; panics after a minute.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
