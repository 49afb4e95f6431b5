//! Tests of servers that cannot support the sink's guarantee.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::redis::{Commands, RedisSink, write};
use ardea_core::{Error, ErrorCode, Instance, ProcessorSupplier};
use ardea_testkit::ExternalHarness;

use super::{ask, own_server, shared_server, url};

type Count = fn(&u64, &mut Commands);

fn count(n: &u64, commands: &mut Commands) {
    commands.incr_by("refused", *n as i64);
}

fn counting(url: &str) -> RedisSink<u64, Count> {
    write(url, count as Count)
}

pub fn supplier<F>(sink: RedisSink<u64, F>) -> Arc<dyn ProcessorSupplier>
where
    F: Fn(&u64, &mut Commands) + Send + Sync + 'static,
{
    sink.build().into_parts().1
}

/// Writes to a sink until it fails.
pub fn refusal<F>(sink: RedisSink<u64, F>) -> Error
where
    F: Fn(&u64, &mut Commands) + Send + Sync + 'static,
{
    let mut life = ExternalHarness::begin(&supplier(sink), "refused", Instance::ONLY, None);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "it is not refused");
        if let Err(error) = life.try_write([1u64]) {
            return error;
        }
    }
}

#[test]
fn a_replica_is_refused_with_its_primary() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    let _: () = ask(&url, &["CONFIG", "SET", "replica-read-only", "no"]);
    let _: () = ask(&url, &["REPLICAOF", "127.0.0.1", "1"]);
    for sink in [counting(&url), counting(&url).exactly_once()] {
        let error = refusal(sink);
        assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
        assert!(
            error.to_string().contains("replica of 127.0.0.1:1"),
            "{error}"
        );
    }
    let _: () = ask(&url, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(ask::<u64>(&url, &["EXISTS", "refused"]), 0);
}

#[test]
fn permissions_that_are_missing_are_told_before_anything_is_written() {
    let Some(url) = shared_server() else { return };
    let user = [
        "ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "-multi",
    ];
    let _: () = ask(&url, &user);
    let weak = url.replacen("redis://", "redis://weak:secret@", 1);
    let error = refusal(counting(&weak).exactly_once());
    assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
    let error = error.to_string();
    assert!(
        error.contains("MULTI") && !error.contains("secret"),
        "{error}"
    );
    let wrong = url.replacen("redis://", "redis://weak:guess@", 1);
    let error = refusal(counting(&wrong));
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
    assert!(!error.to_string().contains("guess"), "{error}");
}
