//! Topology files with components in processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::guest::BEHAVIOUR;
use crate::parts::{Arrivals, Numbers, notes, run};
use ardea_core::ErrorCode;
use ardea_topology::Registry;

fn registry(arrivals: &Arrivals) -> Registry {
    let arrivals = Arc::clone(arrivals);
    Registry::new()
        .with_spout("numbers", |_| Ok(Numbers::untracked(1_000)))
        .with_bolt("notes", move |_| Ok(notes(&arrivals)))
}

/// Returns a file with this spout and this bolt.
fn file(spout: &str, bolt: &str) -> String {
    format!(
        "name: numbers
spouts:
  - name: numbers
    {spout}
bolts:
  - name: bolt
    {bolt}
    inputs: [{{ from: numbers, grouping: shuffle }}]
  - name: notes
    component: notes
    inputs: [{{ from: bolt, grouping: global }}]
"
    )
}

/// Returns a component that is this program with a behaviour.
fn component(behaviour: &str, fields: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = program.display();
    format!(
        "component: process
    command: [{program:?}, guest::the_process_of_a_component, --exact, --nocapture]
    env: {{ {BEHAVIOUR}: {behaviour} }}
    outputs: [{{ fields: {fields} }}]
    settings: {{ end: 1000 }}"
    )
}

#[test]
fn a_file_runs_a_spout_and_a_bolt_in_processes() {
    let arrivals = Arrivals::default();
    let yaml = file(
        &component("numbers", "[number, remainder]"),
        &component("pass", "[number]"),
    );
    run(&registry(&arrivals).topology(&yaml).unwrap());
    let mut numbers: Vec<u64> = arrivals.lock().unwrap().iter().map(|it| it.1).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
}

/// Writes a program `python3` that describes each class as `described`, and is this program
/// otherwise. Returns the component of a class.
fn python_class(folder: &Path, described: &str) -> String {
    let python = folder.join("python3");
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh
if [ \"$4\" = --describe ]; then {described}; exit; fi
exec '{}' guest::the_process_of_a_component --exact --nocapture
",
        program.display()
    );
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = folder.display();
    format!("component: python:words:Pass\n    env: {{ PATH: {folder}, {BEHAVIOUR}: pass }}")
}

#[test]
fn a_class_in_python_is_asked_for_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let arrivals = Arrivals::default();
    let described = r#"echo '{"kind":"bolt","outputs":[{"fields":["number"]}],"state":false}'"#;
    let class = python_class(folder.path(), described);
    let yaml = file("component: numbers", &class);
    run(&registry(&arrivals).topology(&yaml).unwrap());
    assert_eq!(arrivals.lock().unwrap().len(), 1_000);
}

#[test]
fn what_is_wrong_with_a_process_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&Arrivals::default());
    let good = component("pass", "[number]");
    for (bolt, told) in [
        ("component: process", "line 7: a process has no command"),
        (
            "component: process\n    command: []",
            "line 8: the command of a process is empty",
        ),
        (
            "component: notes\n    command: [a]",
            "line 7: the component \"notes\" has no command, outputs or env",
        ),
        (&good.replace("fields:", "field:"), "unknown field `field`"),
    ] {
        refused(&registry, bolt, told);
    }
    for (described, told) in [
        (
            "echo '{\"kind\":\"spout\"}'",
            "line 7: the class \"words:Pass\" can't be used: it is a spout, not a bolt; move it to the spouts",
        ),
        ("echo '['", "its description can't be read"),
        (
            "echo \"no module named 'words'\" >&2; exit 1",
            "no module named 'words'; check that `python3` imports it",
        ),
    ] {
        let class = python_class(folder.path(), described);
        refused(&registry, &class, told);
    }
}

/// Checks that a topology with this bolt is refused with a message.
fn refused(registry: &Registry, bolt: &str, told: &str) {
    let error = registry
        .topology(&file("component: numbers", bolt))
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains(told), "{text}\n{told}");
    assert_eq!(error.code(), ErrorCode::InvalidConfig, "{text}");
}
