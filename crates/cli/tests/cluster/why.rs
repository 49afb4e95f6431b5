//! `ardea why` on real jobs, each with a fault that it has to name.

use std::num::NonZeroU32;
use std::time::Duration;

use ardea::core::{Error, ErrorCode, Parallelism, Timestamp, WatermarkPolicy};
use ardea::prelude::*;
use ardea_connectors::for_each::for_each;
use serde_json::Value;

use crate::arena::Arena;

/// The first argument of the jobs below.
const JOB: &str = "faulty";

/// Returns true if this process should be one of the jobs below.
pub fn is_asked_for() -> bool {
    std::env::args().any(|word| word == JOB)
}

/// Builds the job `faulty FAULT`, whose name is the fault: `skew`, in which most records have one
/// key and a step is slow, or `idle`, in which half of the instances get no records.
pub fn build(arguments: &[String]) -> ardea::Result<Pipeline> {
    let two = Parallelism::Exactly(NonZeroU32::MIN.saturating_add(1));
    match arguments.get(1).map(String::as_str) {
        Some("skew") => {
            let p = Pipeline::new("skew");
            let source = generate::at_rate(2_000, |number| number);
            p.read_from(source.build())
                .key_by(|number: &u64| {
                    if number.is_multiple_of(16) {
                        *number
                    } else {
                        0
                    }
                })
                .rolling("counts", count())
                .parallelism(two)
                .map(|counted| {
                    // Each record takes its time, as one that is looked up elsewhere.
                    std::thread::park_timeout(Duration::from_millis(2));
                    counted
                })
                .named("slow")
                .write_to(for_each(|_| ()));
            Ok(p)
        }
        Some("idle") => {
            let p = Pipeline::new("idle");
            let source = generate::at_rate(2_000, |number| number).parallelism(two);
            let policy = WatermarkPolicy::in_order().idle_timeout(None);
            p.read_from(source.build())
                .filter(|number| number % 2 == 0)
                .with_timestamps(|number| Timestamp::from_secs(*number as i64), policy)
                .window_all(Window::tumbling(Duration::from_secs(10)))
                .aggregate("windows", count())
                .write_to(for_each(|_| ()));
            Ok(p)
        }
        _ => Err(Error::new(ErrorCode::InvalidConfig, "faulty skew|idle")),
    }
}

/// Waits until a job has a cause of this kind; returns it.
pub fn until_cause(arena: &Arena, job: &str, kind: &str) -> Value {
    let mut found = Value::Null;
    arena.until_none(|| {
        let output = arena.run(&format!("why {job} --json"));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let causes = told["causes"].as_array().cloned().unwrap_or_default();
        match causes.into_iter().find(|it| it["kind"] == kind) {
            Some(cause) => {
                found = cause;
                None
            }
            None => Some(format!("no {kind}: {told}")),
        }
    });
    found
}

pub fn a_skewed_key_and_an_idle_partition_are_named_with_their_figures() {
    let arena = Arena::with_hosts(2);
    for job in ["skew", "idle"] {
        let options = format!("--name {job} --set job.containers=2 --set queue_chunks=2");
        arena.submit_numbers(&options, &format!("{JOB} {job}"));
    }
    let skew = until_cause(&arena, "skew", "skewed_key");
    let subject = skew["subject"].as_str().unwrap_or_default();
    assert!(
        subject.starts_with("slow#") || subject.starts_with("counts#"),
        "{skew}"
    );
    assert!(
        skew["figures"].as_array().is_some_and(|it| it.len() >= 4),
        "{skew}"
    );
    let idle = until_cause(&arena, "idle", "idle_partition");
    assert!(
        idle["subject"].as_str().is_some_and(|it| it.contains('#')),
        "{idle}"
    );
    let text = arena.succeed("why idle");
    assert!(
        text.contains("idle partition") && text.contains("remedy: "),
        "{text}"
    );
    for job in ["skew", "idle"] {
        arena.succeed(&format!("kill {job} --yes"));
    }
    assert!(arena.fail("why skew").contains("ARD-604"));
}
