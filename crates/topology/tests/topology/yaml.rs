//! Topologies that a file describes.

use std::sync::Arc;

use crate::parts::{Arrivals, Numbers, emitting, notes, run};
use ardea_core::ErrorCode;
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
    tick_every: 10ms
    inputs:
      - from: double
        grouping: custom
        function: by-value
      - from: double
        stream: odd
        grouping: global
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
fn what_is_wrong_is_told_with_its_line() {
    let registry = registry(&Arrivals::default());
    for (good, bad, told) in [
        (
            "component: double",
            "component: dubble",
            "line 15: there is no bolt \"dubble\"; did you mean \"double\"? there are double, notes",
        ),
        (
            "grouping: global",
            "grouping: globe",
            "line 31: there is no grouping \"globe\"; did you mean \"global\"?",
        ),
        (
            "function: by-value",
            "function: by-colour",
            "line 28: there is no grouping function \"by-colour\"; there are by-value",
        ),
        (
            "message_timeout: 30s",
            "message_timeout: long",
            "line 5: \"long\" is no duration",
        ),
        (
            "isolation: thread",
            "isolation: planet",
            "line 10: there is no isolation \"planet\"; there are tasklet, thread",
        ),
        (
            "reliability: at-least-once",
            "reliability: exactly",
            "line 3: there is no reliability \"exactly\"",
        ),
        (
            "stream: odd",
            "stream: od",
            "\"double\" has no stream \"od\" for the edge \"double\" (stream \"od\") → \"notes\", global (line 29); did you mean \"odd\"?",
        ),
        ("from: numbers", "from: number", "did you mean \"numbers\"?"),
        (
            "fields: [word, number]",
            "",
            "line 19: a grouping by fields names none",
        ),
        (
            "        function: by-value\n",
            "",
            "line 27: a custom grouping names no function",
        ),
        (
            "grouping: global",
            "grouping: global\n        fields: [number]",
            "line 31: a grouping \"global\" has no fields",
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
            "line 4: ",
        ),
        (
            "parallelism: 2\n    isolation",
            "parallelism: 0\n    isolation",
            "line 7: \"numbers\" has a parallelism of zero",
        ),
        (
            "name: notes\n",
            "name: double\n",
            "line 21: two components are named \"double\"",
        ),
        ("name: doubles", "name: [", "line "),
    ] {
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
