//! The breakdown bench, on real servers.
#![cfg(all(feature = "kafka", feature = "redis"))]

use std::io::Write;

use ardea_bench::breakdown::{self, BreakdownParams};
use ardea_metastore::conformance::{Server, Skipped};

fn server(script: &str) -> Option<Server> {
    match Server::start(script) {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED the breakdown: {why}");
            None
        }
    }
}

#[test]
fn the_parts_add_up_to_the_cpu_time_of_the_process() {
    let (Some(kafka), Some(redis)) = (server("kafka.sh"), server("redis.sh")) else {
        return;
    };
    for columns in [false, true] {
        let params = BreakdownParams {
            kafka: kafka.address().to_string(),
            redis: format!("redis://{}", redis.address()),
            records: 200_000,
            threads: 1,
            columns,
            folder: None,
        };
        check(&params);
    }
}

fn check(params: &BreakdownParams) {
    let report = breakdown::run(params, &mut |_| {}).expect("it runs");
    let figure = |name: &str| report.figure(name).as_f64().expect(name);
    let parts = [
        "fetch",
        "deserialise",
        "user",
        "engine",
        "sink",
        "meter",
        "unaccounted",
    ];
    let sum: f64 = parts
        .iter()
        .map(|part| figure(&format!("{part}_share")))
        .sum();
    assert!((sum - 1.0).abs() < 0.01, "{sum}: {:?}", report.figures);
    for part in ["fetch", "deserialise", "user", "engine", "sink"] {
        if part == "user" && params.columns {
            continue;
        }
        assert!(
            figure(&format!("{part}_ns")) > 0.0,
            "{part}: {:?}",
            report.figures
        );
    }
    // Two seconds of event time with a thousand keys each.
    assert_eq!(figure("results"), 2000.0);
}
