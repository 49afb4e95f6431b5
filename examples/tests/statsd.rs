//! Tests of the metrics sink for StatsD with a socket.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use ardea::core::{ErrorCode, Timestamp};
use ardea_examples::statsd::Statsd;
use ardea_metrics::{Batch, Buckets, Labels, MetricsManager, MetricsSinks, Value};

fn sinks() -> MetricsSinks {
    MetricsSinks::builtin().with("statsd", |setup| Ok(Box::new(Statsd::new(setup)?)))
}

/// A batch with a counter, a gauge and a histogram.
fn batch(process: &Labels, made: f64) -> Arc<Batch> {
    let now = Timestamp::from_secs(1);
    let mut batch = Batch::new(process.clone(), now, now);
    let labels = Labels::of([("shop", "a|b:c")]);
    batch.push("made_total", &labels, Value::Counter(made));
    batch.push("level", &labels, Value::Gauge(-1.5));
    let mut took = Buckets::new(&[1.0]);
    took.observe(0.5);
    batch.push("took", &Labels::none(), Value::Histogram(took));
    Arc::new(batch)
}

fn receive(server: &UdpSocket) -> Vec<String> {
    let mut datagram = [0; 2_048];
    let size = server.recv(&mut datagram).expect("it was sent");
    assert!(size <= 1_432);
    let text = String::from_utf8(datagram[..size].to_vec()).expect("text");
    text.lines().map(String::from).collect()
}

#[test]
fn a_server_gets_growth_levels_and_tags() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a socket");
    let address = server.local_addr().expect("bound");
    let process = Labels::of([("job", "squares")]);
    let manager =
        MetricsManager::start(&format!("statsd:{address}"), &process, &sinks()).expect("made");
    assert_eq!(manager.report()[0].place, format!("udp {address}"));

    manager.send(&batch(&process, 10.0));
    let lines = receive(&server);
    let tags = "#job:squares,shop:a_b_c";
    assert_eq!(lines[0], format!("made_total:10|c|{tags}"));
    assert_eq!(
        lines[1..3],
        [format!("level:0|g|{tags}"), format!("level:-1.5|g|{tags}")]
    );
    assert_eq!(lines[3], "took_bucket:1|c|#job:squares,le:1");
    assert_eq!(lines.len(), 7);

    // The increment; the whole value after a restart.
    manager.send(&batch(&process, 14.0));
    assert_eq!(receive(&server)[0], format!("made_total:4|c|{tags}"));
    manager.send(&batch(&process, 3.0));
    assert_eq!(receive(&server)[0], format!("made_total:3|c|{tags}"));
    assert!(manager.close(Duration::from_secs(60)).is_empty());
}

#[test]
fn a_large_batch_is_sent_in_several_datagrams() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a socket");
    let list = format!("statsd:{}", server.local_addr().expect("bound"));
    let manager = MetricsManager::start(&list, &Labels::none(), &sinks()).expect("made");
    let now = Timestamp::from_secs(1);
    let mut batch = Batch::new(Labels::none(), now, now);
    for n in 0..200 {
        let labels = Labels::of([("n", n.to_string())]);
        batch.push(
            "a_metric_with_a_long_name_total",
            &labels,
            Value::Counter(1.0),
        );
    }
    manager.send(&Arc::new(batch));
    let mut lines = 0;
    while lines < 200 {
        lines += receive(&server).len();
    }
    assert_eq!(lines, 200);
}

#[test]
fn a_sink_without_an_address_is_refused_with_what_to_write() {
    let error = MetricsManager::start("statsd", &Labels::none(), &sinks()).expect_err("no address");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("statsd:HOST:PORT"), "{error}");
}
