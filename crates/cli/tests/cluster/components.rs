//! Components of topologies in processes of their own, on a cluster.

use std::collections::BTreeSet;

use crate::arena::Arena;
use crate::javascript::{JAVASCRIPT, has_node};
use crate::processes::{Role, kill};

/// The number of numbers; each remainder by ten occurs equally often.
const END: u64 = 400_000;

/// A spout and a bolt in JavaScript, and bolts that count and print.
fn topology() -> String {
    format!(
        "
name: remainders
spouts:
  - {{ name: numbers, component: process, parallelism: 2, command: [node, {JAVASCRIPT}/numbers.js],
      outputs: [{{ fields: [remainder, number] }}], settings: {{ end: {END} }} }}
bolts:
  - {{ name: split, component: process, parallelism: 2, command: [node, {JAVASCRIPT}/split.js],
      outputs: [{{ fields: [word] }}], inputs: [{{ from: numbers, grouping: shuffle }}] }}
  - {{ name: counts, component: count, parallelism: 2, settings: {{ every: 1h }},
      inputs: [{{ from: split, grouping: fields, fields: [word] }}] }}
  - {{ name: out, component: print, inputs: [{{ from: counts, grouping: global }}] }}
"
    )
}

pub fn components_in_processes_count_each_tuple_once_while_they_are_killed() {
    if !has_node() {
        return;
    }
    let arena = Arena::new();
    arena.write("remainders.yaml", &topology());
    arena.succeed(
        "submit remainders.yaml --set job.containers=2 --set checkpoints.folder=kept \
         --set guarantee=exactly-once --set checkpoints.every=100ms",
    );
    let instances = || -> Vec<i32> {
        let processes = arena.processes().into_iter();
        let processes = processes.filter(|process| process.role == Role::OfContainer);
        processes.map(|process| process.pid).collect()
    };
    let epochs = |field: &str| {
        let job = arena.look("remainders");
        job.and_then(|it| it["epochs"][field].as_u64()).unwrap_or(0)
    };
    let restarts = || {
        let name = "ardea_instance_process_restarts_total";
        let of = |vertex| arena.metric("remainders", vertex, name);
        of("numbers") + of("split")
    };
    let has_ended = || {
        let job = arena.look("remainders");
        job.is_some_and(|it| it["ending"] == "finished")
    };
    arena.until("a metric of user code", || {
        arena.metric("remainders", "numbers", "ardea_user_numbers_total") > 0.0
    });
    let mut seen_restarts = 0;
    for _ in 0..3 {
        let before = epochs("committed");
        arena.until("more is committed", || {
            has_ended() || epochs("committed") > before
        });
        let (attempt, restarts_before) = (epochs("life"), restarts());
        let Some(process) = instances().pop().filter(|_| !has_ended()) else {
            break;
        };
        kill(process);
        // A spout restarts the job, and a bolt without state its own process.
        let has_restarted = || epochs("life") > attempt || restarts() > restarts_before;
        arena.until("a restart", || has_ended() || has_restarted());
        seen_restarts += usize::from(has_restarted());
    }
    assert!(seen_restarts > 0, "no killed process was restarted");
    arena.until("the end", has_ended);
    let printed = arena.succeed("logs remainders --source stdout --tail 10000 --json");
    let texts = printed.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["text"].as_str().map(str::to_owned)
    });
    // Results after the last checkpoint are printed again after a failure.
    let texts: BTreeSet<String> = texts.collect();
    let counts: Vec<&String> = texts.iter().collect();
    assert_eq!(texts.len(), 10, "{printed}");
    let each = (END / 10).to_string();
    assert!(counts.iter().all(|text| text.contains(&each)), "{counts:?}");
}
