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

/// Kills processes of components after commits, up to three times, and waits for the end of the
/// job. `vertices` are those with processes.
fn kill_until_the_end(arena: &Arena, job: &str, vertices: [&str; 2]) {
    let instances = || -> Vec<i32> {
        let processes = arena.processes().into_iter();
        let processes = processes.filter(|process| process.role == Role::OfContainer);
        processes.map(|process| process.pid).collect()
    };
    let epochs = |field: &str| {
        let job = arena.look(job);
        job.and_then(|it| it["epochs"][field].as_u64()).unwrap_or(0)
    };
    let restarts = || -> f64 {
        let name = "ardea_instance_process_restarts_total";
        let vertices = vertices.iter();
        vertices.map(|it| arena.metric(job, it, name)).sum()
    };
    let has_ended = || {
        let job = arena.look(job);
        job.is_some_and(|it| it["ending"] == "finished")
    };
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
}

/// Returns the lines that a job has printed. Results after the last checkpoint are printed again
/// after a failure.
fn printed(arena: &Arena, job: &str) -> BTreeSet<String> {
    let command = format!("logs {job} --source stdout --tail 10000 --json");
    let printed = arena.succeed(&command);
    let texts = printed.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["text"].as_str().map(str::to_owned)
    });
    texts.collect()
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
    arena.until("a metric of user code", || {
        arena.metric("remainders", "numbers", "ardea_user_numbers_total") > 0.0
    });
    kill_until_the_end(&arena, "remainders", ["numbers", "split"]);
    let counts = printed(&arena, "remainders");
    assert_eq!(counts.len(), 10, "{counts:?}");
    let each = (END / 10).to_string();
    assert!(counts.iter().all(|text| text.contains(&each)), "{counts:?}");
}

/// Words that are counted, with this isolation and at this rate.
fn words(isolation: &str, rate: u64) -> String {
    format!(
        "
name: words
spouts:
  - {{ name: words, component: words, parallelism: 2, isolation: {isolation},
      settings: {{ total: 60000, vocabulary: 10, rate: {rate} }} }}
bolts:
  - {{ name: counts, component: count, parallelism: 2, isolation: {isolation}, settings: {{ every: 1h }},
      inputs: [{{ from: words, grouping: fields, fields: [word] }}] }}
  - {{ name: out, component: print, inputs: [{{ from: counts, grouping: global }}] }}
"
    )
}

/// Returns the counts of the job in one process.
fn expected(arena: &Arena) -> BTreeSet<String> {
    arena.write("expected.yaml", &words("tasklet", 1_000_000));
    let expected = arena.succeed("-q run expected.yaml");
    let expected: BTreeSet<String> = expected.lines().map(str::to_owned).collect();
    assert_eq!(expected.len(), 10, "{expected:?}");
    expected
}

/// Submits the job with a process for each instance of both components.
fn submit_isolated(arena: &Arena) {
    arena.write("words.yaml", &words("process", 2_000));
    arena.succeed(
        "submit words.yaml --set job.containers=2 --set checkpoints.folder=kept \
         --set guarantee=exactly-once --set checkpoints.every=100ms",
    );
    arena.until("the processes of both components are shown", || {
        shown_processes(arena) == 4
    });
}

/// Returns the number of instances whose process is shown.
fn shown_processes(arena: &Arena) -> usize {
    let described = arena.look("words").unwrap_or_default();
    let containers = described["containers"].as_array().into_iter().flatten();
    let shown = containers.filter_map(|it| it["instance_processes"].as_object());
    shown.map(serde_json::Map::len).sum()
}

pub fn isolated_components_count_each_tuple_once_while_they_are_killed() {
    let arena = Arena::new();
    let expected = expected(&arena);
    submit_isolated(&arena);
    kill_until_the_end(&arena, "words", ["words", "counts"]);
    assert_eq!(printed(&arena, "words"), expected);
}

pub fn an_isolated_bolt_with_state_counts_each_tuple_once_while_it_is_rescaled_and_paused() {
    let arena = Arena::new();
    let expected = expected(&arena);
    submit_isolated(&arena);
    let committed = || {
        let job = arena.look("words");
        job.and_then(|it| it["epochs"]["committed"].as_u64())
            .unwrap_or(0)
    };
    for instances in [3, 1] {
        let before = committed();
        arena.until("more is committed", || committed() > before);
        arena.succeed(&format!("rescale words counts={instances}"));
        arena.until("each instance has a process", || {
            shown_processes(&arena) == 2 + instances
        });
        arena.succeed("pause words");
        arena.until_phase("words", "paused");
        arena.succeed("resume words");
    }
    arena.until("the end", || {
        let job = arena.look("words");
        job.is_some_and(|it| it["ending"] == "finished")
    });
    assert_eq!(printed(&arena, "words"), expected);
}
