//! Tests of pipelines as jobs of a cluster.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::collections::items;
use ardea_connectors::for_each::for_each;
use ardea_connectors::null;
use ardea_core::{Dag, Demand, ErrorCode, Parallelism, Timestamp};
use ardea_engine::{Job, JobConfig, Node, NodeConfig, Parallelisms};
use ardea_pipeline::{Local, Pipeline, WatermarkPolicy, Window};
use proptest::prelude::*;

use crate::detour::detour;

fn many(names: &[(&str, u32)]) -> Parallelisms {
    names
        .iter()
        .map(|(name, number)| (name.to_string(), *number))
        .collect()
}

fn numbers(dag: &Dag) -> Vec<(String, u32)> {
    let number = |parallelism| match parallelism {
        Parallelism::Exactly(number) => number.get(),
        Parallelism::Auto | Parallelism::Zero => 0,
    };
    let vertices = dag.vertices().iter();
    vertices
        .map(|vertex| {
            (
                vertex.name().to_string(),
                number(vertex.wanted_parallelism()),
            )
        })
        .collect()
}

/// Returns all properties of a graph except the parallelism.
fn shape(dag: &Dag) -> Vec<String> {
    let vertices = dag
        .vertices()
        .iter()
        .map(|vertex| vertex.name().to_string());
    let edges = dag
        .edges()
        .iter()
        .map(|edge| format!("{edge:?} {}", edge.wanted_codec().is_some()));
    vertices.chain(edges).collect()
}

fn counting(results: &Arc<Mutex<Vec<(&'static str, u64)>>>) -> Pipeline {
    let p = Pipeline::new("counting");
    let results = Arc::clone(results);
    p.read_from(items(vec!["to", "be", "or", "not", "to", "be"]))
        .key_by(|word| *word)
        .aggregate("words", count())
        .map(|word| word)
        .write_to(for_each(move |word| results.lock().unwrap().push(word)));
    p
}

fn refusal(p: &Pipeline, numbers: &[(&str, u32)]) -> String {
    let Err(error) = p.program(&many(numbers)) else {
        panic!("it was not refused");
    };
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    error.to_string()
}

#[test]
fn a_chain_has_as_many_instances_as_one_of_its_steps_is_told_and_others_have_one() {
    let p = counting(&Arc::default());
    let dag = p.program(&many(&[("words", 3), ("items", 2)])).unwrap().dag;
    let expected = [
        ("items", 2),
        ("words: partial", 2),
        ("words", 3),
        ("map", 3),
        ("for each", 1),
    ];
    assert_eq!(
        numbers(&dag),
        expected.map(|(name, number)| (name.to_string(), number))
    );
    let alone = p.program(&Parallelisms::new()).unwrap().dag;
    assert!(numbers(&alone).iter().all(|(_, number)| *number == 1));
}

#[test]
fn the_whole_of_a_plan_says_the_same_as_what_it_was_made_from() {
    let p = counting(&Arc::default());
    let dag = p.program(&many(&[("words", 3)])).unwrap().dag;
    let whole = numbers(&dag).into_iter().collect();
    assert_eq!(numbers(&p.program(&whole).unwrap().dag), numbers(&dag));
}

#[test]
fn names_that_are_none_and_numbers_that_contradict_are_refused() {
    let p = counting(&Arc::default());
    let unknown = refusal(&p, &[("word", 2)]);
    assert!(
        unknown.contains("\"word\"") && unknown.contains("words: partial"),
        "{unknown}"
    );
    let apart = refusal(&p, &[("words", 2), ("map", 3)]);
    assert!(
        apart.contains("\"words\"") && apart.contains("\"map\""),
        "{apart}"
    );
    assert!(refusal(&p, &[("words", 0)]).contains("\"words\""));
    let sorted = Pipeline::new("sorted");
    sorted
        .read_from(items(vec![2, 1]))
        .sort_by_key("numbers", |n| *n)
        .write_to(null::sink());
    assert!(refusal(&sorted, &[("numbers", 2)]).contains("\"numbers\""));
}

#[test]
fn results_that_only_the_author_would_find_are_refused() {
    let p = Pipeline::new("collected");
    p.read_from(items(vec![1])).collect();
    assert!(refusal(&p, &[]).contains("write_to"));
}

#[test]
fn edges_of_ordinary_jobs_have_a_codec_wherever_instances_may_be_apart() {
    let p = Pipeline::new("ordinary");
    let table = p.read_from(items(vec![(1u32, "one")]));
    let (windows, late) = p
        .read_from(items(vec![1u32, 2]))
        .with_timestamps(
            |n| Timestamp::from_secs(i64::from(*n)),
            WatermarkPolicy::in_order(),
        )
        .key_by(|n| *n)
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregate_and_late("counts", count());
    windows
        .hash_join(
            "names",
            table,
            |w| w.key,
            |row| row.0,
            |w, row| (row.1, w.value),
        )
        .write_to(null::sink());
    late.write_to(null::sink());
    let dag = p.program(&many(&[("counts", 2)])).unwrap().dag;
    let chained: BTreeSet<&str> = dag
        .edges()
        .iter()
        .filter(|edge| edge.wanted_codec().is_none())
        .map(|edge| edge.wanted_routing().name())
        .collect();
    assert_eq!(chained, BTreeSet::from(["forward"]));
}

#[test]
fn what_stays_in_its_process_has_no_codec() {
    let p = Pipeline::new("local");
    p.read_from(items(vec![1u32, 2]))
        .map(Local)
        .key_by(|n| n.0)
        .distinct("numbers")
        .write_to_local(null::sink());
    let dag = p.program(&Parallelisms::new()).unwrap().dag;
    assert!(dag.edges().iter().all(|edge| edge.wanted_codec().is_none()));
}

#[test]
fn a_step_has_the_resources_that_it_was_given_and_so_has_a_sink() {
    let p = Pipeline::new("resources");
    let each = |memory| Demand {
        memory_bytes: Some(memory),
        ..Demand::default()
    };
    p.read_from(items(vec![1u32]).demand(each(1)))
        .key_by(|n| *n)
        .aggregate("counts", count())
        .resources(each(2))
        .write_to(null::sink().demand(each(3)));
    let dag = p.program(&Parallelisms::new()).unwrap().dag;
    let memory = dag
        .vertices()
        .iter()
        .map(|vertex| vertex.wanted_demand().memory_bytes);
    assert_eq!(
        memory.collect::<Vec<_>>(),
        [Some(1), None, Some(2), Some(3)]
    );
}

#[test]
fn a_job_is_lowered_again_and_again_on_any_thread() {
    let p = counting(&Arc::default());
    let here = shape(&p.program(&Parallelisms::new()).unwrap().dag);
    let there = std::thread::spawn({
        let p = p.clone();
        move || shape(&p.program(&Parallelisms::new()).unwrap().dag)
    });
    assert_eq!(there.join().unwrap(), here);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn numbers_of_instances_change_neither_the_graph_nor_its_results(words in 1u32..5, lines in 1u32..3, sinks in 1u32..3) {
        let results = Arc::default();
        let p = counting(&results);
        let dag = p.program(&many(&[("words", words), ("items", lines), ("for each", sinks)])).unwrap().dag;
        prop_assert_eq!(shape(&dag), shape(&p.program(&Parallelisms::new()).unwrap().dag));
        let node = Node::start(NodeConfig { pin: false, ..NodeConfig::with_threads(2) }).unwrap();
        node.submit(&detour(&dag).0, JobConfig::default()).unwrap().join().unwrap();
        let mut results = std::mem::take(&mut *results.lock().unwrap());
        results.sort();
        prop_assert_eq!(results, [("be", 2), ("not", 1), ("or", 1), ("to", 2)]);
    }
}
