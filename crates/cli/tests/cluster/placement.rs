//! Placement by traffic: instances of a running job follow its traffic, and the next submission has
//! the rates of the last run.

use serde_json::Value;

use crate::arena::Arena;
use crate::survives::{ENDLESS, EXACTLY_ONCE, GuaranteedJob};

/// Returns the value of a metric of the job as a whole, if it is known already.
fn of_job(arena: &Arena, name: &str) -> Option<f64> {
    let output = arena.run(&format!("metrics tally --name {name} --json"));
    let told: Value = serde_json::from_slice(&output.stdout).ok()?;
    told[0]["value"].as_f64()
}

/// Waits until the records a second between hosts are as expected.
fn until_cut(arena: &Arena, what: &str, is_so: impl Fn(f64) -> bool) {
    arena.until(what, || {
        of_job(arena, "ardea_placement_cut_records_per_second").is_some_and(&is_so)
    });
}

pub fn a_shift_of_traffic_is_followed_once_and_the_next_submission_has_the_rates() {
    let options = format!(
        "--set job.containers=2 --set checkpoints.folder=kept {EXACTLY_ONCE} \
         --set cluster.scheduler=hosts --set cluster.packing=traffic \
         --set placement.mode=apply --set placement.window=1s \
         --set placement.cooldown=1s --set placement.move_cost=0"
    );
    let job = GuaranteedJob::variant(Arena::new(), ENDLESS, 1_000, (&options, "shift"));
    let arena = &job.arena;
    job.until_more();
    // The first plan assumes that all instances of `numbers` send to all of `counts`.
    until_cut(arena, "each source is with its counts", |cut| cut == 0.0);
    let changes = || of_job(arena, "ardea_placements_total").unwrap_or(0.0);
    let before = changes();
    arena.write("out/shift", "");
    until_cut(arena, "the traffic has shifted", |cut| cut > 100.0);
    until_cut(arena, "the traffic is followed", |cut| cut == 0.0);
    for _ in 0..3 {
        job.until_more();
    }
    assert_eq!(changes(), before + 1.0);
    job.stop();

    arena.submit_numbers(&options, &format!("tally again {ENDLESS} 1000 shift"));
    let stored = arena.json("metastore dump --below /jobs/tally").to_string();
    assert!(stored.contains("records_per_second"), "{stored}");
    arena.succeed("kill tally --yes");
}
