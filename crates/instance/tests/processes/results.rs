//! Results of steps in processes.

use ardea_connectors::collections::items;
use ardea_core::Timestamp;
use ardea_pipeline::{Pipeline, WatermarkPolicy};

use crate::guest::command;

#[test]
fn results_come_in_the_order_of_the_input() {
    let p = Pipeline::new("double");
    let numbers: Vec<i64> = (100..20_100).collect();
    let out = p
        .read_from(items(numbers.clone()))
        .in_process::<i64>(command("double").batch_bytes(4_096))
        .collect();
    p.run().unwrap();
    let expected: Vec<i64> = numbers.iter().map(|number| 2 * number).collect();
    assert_eq!(out.take(), expected);
}

#[test]
fn a_batch_may_have_more_results_than_the_outbox_has_room() {
    let p = Pipeline::new("repeat");
    let out = p
        .read_from(items(vec![0i64, 5_000, 3]))
        .in_process::<i64>(command("repeat"))
        .collect();
    p.run().unwrap();
    let out = out.take();
    assert_eq!(out.len(), 5_003);
    assert_eq!((out[0], out[4_999], out[5_000]), (5_000, 5_000, 3));
}

#[test]
fn a_process_that_wants_watermarks_emits_results_at_them() {
    let p = Pipeline::new("watermarks");
    let out = p
        .read_from(items((20..4_020i64).collect::<Vec<_>>()))
        .with_timestamps(
            |number: &i64| Timestamp::from_secs(*number),
            WatermarkPolicy::in_order(),
        )
        .in_process::<i64>(command("watermarks"))
        .collect();
    p.run().unwrap();
    let out = out.take();
    assert_eq!((out.len(), out.last()), (4_001, Some(&-1)));
}

#[test]
fn instances_of_a_step_have_processes_of_their_own() {
    let p = Pipeline::new("parallel");
    let out = p
        .read_from(items((100..1_100i64).collect::<Vec<_>>()))
        .rebalance()
        .parallelism(3)
        .in_process::<i64>(command("double"))
        .collect();
    p.run().unwrap();
    let expected: Vec<i64> = (100..1_100).map(|number| 2 * number).collect();
    assert_eq!(out.take_sorted(), expected);
}
