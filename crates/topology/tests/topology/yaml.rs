//! Topologies described by a file.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::parts::{Arrivals, Numbers, emitting, notes, run};
use ardea_core::{Demand, Edge, ErrorCode, Isolation, Parallelism};
use ardea_engine::{Job, Parallelisms};
use ardea_topology::{Outputs, Registry};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NumbersSettings {
    end: u64,
}

fn registry(arrivals: &Arrivals) -> Registry {
    let arrivals = Arc::clone(arrivals);
    Registry::new()
        .with_spout("numbers", |settings| {
            let NumbersSettings { end } = settings.parse()?;
            Ok(Numbers::untracked(end))
        })
        .with_bolt("double", |_| {
            let outputs = Outputs::fields(["number"]).stream("odd", ["number"]);
            Ok(emitting(outputs, |_, tuple, out| {
                out.emit([tuple.int("number")? * 2])?;
                Ok(out.emit_to("odd", [tuple.int("number")? * 2 + 1])?)
            }))
        })
        .with_bolt("notes", move |_| Ok(notes(&arrivals)))
        .with_grouping("by-value", |tuple, _| tuple.int_at(0).unwrap_or(0) as u32)
}

const GOOD: &str = "\
name: doubles
config:
  reliability: at-least-once
  max_spout_pending: 100
  message_timeout: 30s
spouts:
  - name: numbers
    component: numbers
    parallelism: 2
    isolation: thread
    cpu: 0.5
    memory: 512MiB
    settings:
      end: 1000
bolts:
  - name: double
    component: double
    parallelism: 2
    inputs:
      - from: numbers
        grouping: fields
        fields: [word, number]
  - name: notes
    component: notes
    parallelism: 2
    isolation: process
    memory: 1048576
    disk: 10GB
    tick_every: 10ms
    inputs:
      - from: double
        grouping: custom
        function: by-value
      - from: double
        stream: odd
        grouping: global
        latency: 1ms
";

#[test]
fn a_file_wires_components_by_name() {
    let arrivals = Arrivals::default();
    let topology = registry(&arrivals).topology(GOOD).unwrap();
    assert_eq!(topology.name(), "doubles");
    run(&topology);
    let mut numbers: Vec<u64> = arrivals.lock().unwrap().iter().map(|(_, n)| *n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_file_says_what_instances_need_and_makes_a_job() {
    let topology = registry(&Arrivals::default()).topology(GOOD).unwrap();
    let wider = Parallelisms::from([("double".to_string(), 5)]);
    let program = topology.program(&wider).unwrap();
    let vertices = program.dag.vertices();
    let [numbers, double, notes] = vertices else {
        panic!("{vertices:?}");
    };
    assert_eq!(numbers.wanted_isolation(), Isolation::Thread);
    assert_eq!(notes.wanted_isolation(), Isolation::Process);
    assert_eq!(
        double.wanted_parallelism(),
        Parallelism::Exactly(NonZeroU32::new(5).unwrap())
    );
    assert_eq!(
        numbers.wanted_demand(),
        Demand {
            cpu_millicores: Some(500),
            memory_bytes: Some(512 << 20),
            disk_bytes: None
        }
    );
    assert_eq!(double.wanted_demand(), Demand::default());
    let budgets = program.dag.edges().iter().map(Edge::wanted_latency);
    let budgets: Vec<_> = budgets.flatten().collect();
    assert_eq!(budgets, [Duration::from_millis(1)]);
    assert_eq!(
        notes.wanted_demand(),
        Demand {
            cpu_millicores: None,
            memory_bytes: Some(1 << 20),
            disk_bytes: Some(10_000_000_000)
        }
    );
}

/// A part of the valid file, its replacement, and the expected message.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "component: double",
        "component: dubble",
        "line 17: there is no bolt \"dubble\"; did you mean \"double\"? there are double, notes",
    ),
    (
        "grouping: global",
        "grouping: globe",
        "line 36: there is no grouping \"globe\"; did you mean \"global\"?",
    ),
    (
        "function: by-value",
        "function: by-colour",
        "line 33: there is no grouping function \"by-colour\"; there are by-value",
    ),
    (
        "message_timeout: 30s",
        "message_timeout: long",
        "line 5: \"long\" is no duration",
    ),
    (
        "isolation: thread",
        "isolation: planet",
        "line 10: there is no isolation \"planet\"; there are tasklet, thread, process",
    ),
    (
        "reliability: at-least-once",
        "reliability: exactly",
        "line 3: there is no reliability \"exactly\"",
    ),
    (
        "stream: odd",
        "stream: od",
        "\"double\" has no stream \"od\" for the edge \"double\" (stream \"od\") → \"notes\", global (line 34); did you mean \"odd\"?",
    ),
    ("from: numbers", "from: number", "did you mean \"numbers\"?"),
    (
        "fields: [word, number]",
        "",
        "line 21: a grouping by fields names none",
    ),
    (
        "        function: by-value\n",
        "",
        "line 32: a custom grouping names no function",
    ),
    (
        "grouping: global",
        "grouping: global\n        fields: [number]",
        "line 36: a grouping \"global\" has no fields",
    ),
    (
        "end: 1000",
        "begin: 1000",
        "line 7: the settings of \"numbers\" are wrong: unknown field `begin`, expected `end`",
    ),
    (
        "parallelism: 2\n    isolation",
        "paralelism: 2\n    isolation",
        "line 9: unknown field",
    ),
    (
        "max_spout_pending: 100",
        "max_spout_pending: none",
        "line 4: max_spout_pending can't be \"none\", it is a whole number of messages, from 1 on",
    ),
    (
        "max_spout_pending: 100",
        "max_spout_pending: 0",
        "line 4: max_spout_pending can't be 0, it is",
    ),
    (
        "parallelism: 2\n    isolation",
        "parallelism: -1\n    isolation",
        "line 9: parallelism can't be -1, it is a whole number of instances, from 1 on",
    ),
    (
        "parallelism: 2\n    isolation",
        "parallelism: 1.5\n    isolation",
        "line 9: parallelism can't be 1.5, it is",
    ),
    (
        "        grouping: global\n",
        "",
        "missing field `grouping`; it is one of shuffle, local-or-shuffle, fields",
    ),
    (
        "parallelism: 2\n    isolation",
        "parallelism: 0\n    isolation",
        "line 7: \"numbers\" has a parallelism of zero",
    ),
    (
        "name: notes\n",
        "name: double\n",
        "line 23: two components are named \"double\"",
    ),
    ("cpu: 0.5", "cpu: 0", "line 7: \"numbers\" wants 0 cores"),
    (
        "cpu: 0.5",
        "cpu: half",
        "line 11: cpu can't be \"half\", it is",
    ),
    (
        "memory: 512MiB",
        "memory: 512 Mib",
        "line 12: \"512 Mib\" is no size",
    ),
    (
        "disk: 10GB",
        "disk: plenty",
        "line 28: \"plenty\" is no size",
    ),
    (
        "latency: 1ms",
        "latency: soon",
        "line 37: \"soon\" is no duration",
    ),
    (
        "latency: 1ms",
        "latency: 2s",
        "\"notes\", global (line 34) has a latency budget of more than 1s",
    ),
    ("name: doubles", "name: [", "line "),
];

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let registry = registry(&Arrivals::default());
    for (good, bad, told) in FAULTS {
        assert!(GOOD.contains(good), "{good}");
        let error = registry.topology(&GOOD.replacen(good, bad, 1)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(told), "{text}\n{told}");
        assert!(!text.contains('\n'), "{text}");
        assert!(matches!(
            error.code(),
            ErrorCode::InvalidConfig | ErrorCode::InvalidJob
        ));
    }
    let error = registry.topology_from("no/such/file.yaml").unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
}
