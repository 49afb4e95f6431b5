//! Topologies with a guarantee: killed programs continue from their checkpoint.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::ardea::{ardea, eventually, finish, run, succeed};
use crate::javascript::{JAVASCRIPT, has_node};

/// The number of times that a job is killed.
const KILLS: usize = 3;

/// Writes a topology whose bolt `count` prints all counts at its end, with these spouts and bolts
/// before it.
fn counting(folder: &Path, spouts: &str, bolts: &str, input: &str) -> String {
    let yaml = format!(
        "
name: counting
spouts: [{spouts}]
bolts:
{bolts}
  - name: count
    component: count
    parallelism: 2
    settings: {{ every: 1h }}
    inputs: [{{ from: {input}, grouping: fields, fields: [word] }}]
  - {{ name: out, component: print, inputs: [{{ from: count, grouping: global }}] }}
"
    );
    let path = folder.join("counting.yaml");
    fs::write(&path, yaml).unwrap();
    path.display().to_string()
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns the names of the checkpoints in a folder.
fn manifests(folder: &Path) -> Vec<OsString> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".manifest"))
        .collect()
}

/// Runs a topology, killing it after a checkpoint of each life, and then to its end. Returns its
/// output.
fn run_with_kills(file: &str, state: &Path) -> String {
    let setting = format!("checkpoints.folder={}", state.display());
    let args = [
        "-q",
        "run",
        file,
        "--set",
        "guarantee=exactly-once",
        "--set",
        "checkpoints.every=20ms",
        "--set",
        "checkpoints.pause=0s",
        "--set",
        &setting,
    ];
    for _ in 0..KILLS {
        let before = manifests(state);
        let mut child = ardea(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("a checkpoint of this life", || {
            let has_ended = child.try_wait().unwrap().is_some();
            has_ended || manifests(state).iter().any(|name| !before.contains(name))
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let finished = finish(ardea(&args).spawn().unwrap());
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished.out
}

#[test]
fn a_topology_that_is_killed_counts_each_tuple_of_a_spout_once() {
    let folder = tempfile::tempdir().unwrap();
    let spout = "{ name: words, component: words, parallelism: 2, settings: { total: 40000, rate: 40000, vocabulary: 50 } }";
    let file = counting(folder.path(), spout, "", "words");
    let expected = succeed(&["-q", "run", &file]);
    let counted = run_with_kills(&file, &folder.path().join("state"));
    assert_eq!(sorted_lines(&counted), sorted_lines(&expected));
}

#[test]
fn a_topology_that_is_killed_reads_each_line_of_its_files_once() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    fs::create_dir(&input).unwrap();
    for part in 0..3 {
        let mut text = String::new();
        for line in 0..60_000 {
            writeln!(text, "w{} w{}", line % 7, (line + part) % 11).unwrap();
        }
        fs::write(input.join(format!("part-{part}.txt")), text).unwrap();
    }
    let spout = format!(
        "{{ name: lines, component: lines, parallelism: 2, settings: {{ file: {} }} }}",
        input.display()
    );
    let split =
        "  - { name: split, component: split, inputs: [{ from: lines, grouping: shuffle }] }";
    let file = counting(folder.path(), &spout, split, "split");
    let expected = succeed(&["-q", "run", &file]);
    let counted = run_with_kills(&file, &folder.path().join("state"));
    assert_eq!(sorted_lines(&counted), sorted_lines(&expected));
}

#[test]
fn a_killed_topology_with_components_in_processes_counts_each_tuple_once() {
    if !has_node() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let spout = format!(
        "{{ name: numbers, component: process, parallelism: 2, command: [node, {JAVASCRIPT}/numbers.js], \
         outputs: [{{ fields: [remainder, number] }}], settings: {{ end: 60000 }} }}"
    );
    let split = format!(
        "  - {{ name: split, component: process, command: [node, {JAVASCRIPT}/split.js], \
         outputs: [{{ fields: [word] }}], inputs: [{{ from: numbers, grouping: shuffle }}] }}"
    );
    let file = counting(folder.path(), &spout, &split, "split");
    let expected = succeed(&["-q", "run", &file]);
    let counted = run_with_kills(&file, &folder.path().join("state"));
    assert_eq!(sorted_lines(&counted), sorted_lines(&expected));
}

#[test]
fn acks_and_a_guarantee_are_refused_together() {
    let folder = tempfile::tempdir().unwrap();
    let spout = "{ name: words, component: words, settings: { total: 10 } }";
    let file = counting(folder.path(), spout, "", "words");
    let yaml = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        format!("config: {{ reliability: at-least-once }}\n{yaml}"),
    )
    .unwrap();
    let finished = run(&["run", &file, "--set", "guarantee=exactly-once"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.err.contains("ARD-101"), "{finished:?}");
    assert!(finished.err.contains("reliability"), "{finished:?}");
}
