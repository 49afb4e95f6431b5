//! The Yahoo streaming benchmark with Kafka and Redis, on real servers.
#![cfg(all(feature = "kafka", feature = "redis"))]

use std::io::Write;
use std::time::Duration;

use ardea_bench::ysb::{self, YsbParams};
use ardea_core::Guarantee;
use ardea_metastore::conformance::{Server, Skipped};

fn server(script: &str) -> Option<Server> {
    match Server::start(script) {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED the servers of ysb: {why}");
            None
        }
    }
}

#[test]
fn events_from_kafka_are_counted_once_in_redis() {
    let (Some(kafka), Some(redis)) = (server("kafka.sh"), server("redis.sh")) else {
        return;
    };
    for guarantee in [Guarantee::None, Guarantee::ExactlyOnce] {
        let params = YsbParams {
            rate: 20_000,
            campaigns: 10,
            window: Duration::from_millis(500),
            workers: 1,
            duration: Duration::from_secs(3),
            warmup: Duration::from_millis(500),
            guarantee,
            checkpoint_interval: Duration::from_millis(100),
            kafka: Some(kafka.address().to_string()),
            redis: Some(format!("redis://{}", redis.address())),
            ..YsbParams::default()
        };
        let report = ysb::run(&params, &mut |_| {}).expect("it runs");
        assert_eq!(report.figure("lost"), 0, "{report:?}");
        assert_eq!(report.figure("duplicated"), 0, "{report:?}");
        assert_eq!(report.figure("windows"), 6, "{report:?}");
    }
}
