//! Counts of a running job: connections and messages.

use std::fs;
use std::path::Path;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes::connections;

/// The number of times that `pass` emits each number.
const COPIES: u64 = 25;

/// Returns the number of connections between each two workers of `numbers`.
fn between_workers(arena: &Arena) -> Vec<usize> {
    let workers = arena.workers("numbers");
    let ends: Vec<_> = workers.iter().map(|(_, pid)| connections(*pid)).collect();
    let pairs = (0..ends.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let joins = |(a, b): (usize, usize)| {
        let is_theirs = |(here, there): &&(u16, u16)| ends[b].contains(&(*there, *here));
        ends[a].iter().filter(is_theirs).count()
    };
    pairs.map(joins).collect()
}

/// Waits until there is one connection between each two workers: a replacement coexists with the
/// old connection briefly.
fn until_one_between_workers(arena: &Arena) {
    arena.until_none(|| {
        let between = between_workers(arena);
        (between != [1, 1, 1]).then(|| format!("connections between workers: {between:?}"))
    });
}

pub fn two_containers_have_one_connection_however_many_instances_they_have() {
    let arena = Arena::with_hosts(2);
    let over_tcp = |_: &Path| "--set worker.transport=tcp".to_string();
    let job = NumbersJob::begun_as(arena, "rate=1000 spouts=2 bolts=3", over_tcp);
    let arena = &job.arena;
    job.until_more();
    until_one_between_workers(arena);
    arena.succeed("rescale numbers pass=12 record=12");
    job.until_more();
    until_one_between_workers(arena);
    job.end();
}

pub fn each_message_is_acked_once_however_many_tuples_in_other_containers_came_of_it() {
    let arena = Arena::with_hosts(2);
    let shape = format!("rate=1000 spouts=2 bolts=4 copies={COPIES}");
    let job = NumbersJob::begun_as(arena, &shape, |_: &Path| String::new());
    let arena = &job.arena;
    job.until_more();
    arena.succeed("pause numbers");
    arena.until_phase("numbers", "paused");
    let told = |name| arena.metric("numbers", "numbers", name) as u64;
    // Metrics are up to a second old.
    let mut before = 0;
    arena.until("all acked, and each copy seen once", || {
        let emitted = told("ardea_messages_emitted_total");
        let is_quiet = std::mem::replace(&mut before, emitted) == emitted;
        let is_acked = emitted > 0 && told("ardea_messages_acked_total") == emitted;
        is_quiet && is_acked && job.ledger().records() == emitted * COPIES
    });
    assert_eq!(told("ardea_messages_pending"), 0);
    assert_eq!(told("ardea_messages_failed_total"), 0);
    let recorded = fs::read_dir(&job.data).unwrap().flatten();
    let recorded = recorded.filter(|it| it.file_name().to_string_lossy().starts_with("seen-"));
    assert_eq!(recorded.count(), 4, "all of `record` have had some");
    arena.succeed("resume numbers");
    job.end();
    // No process died, so each copy of each number has been recorded exactly once.
    let (numbers, _) = job.ledger().nothing_is_lost();
    assert_eq!(job.ledger().records(), numbers * COPIES);
}
