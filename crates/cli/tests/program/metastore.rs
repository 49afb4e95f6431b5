//! `ardea metastore dump` and `remove`, on a metadata store without hosts.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{JobDefinition, JobRef, ProgramRef};
use ardea_coordination::packing::{
    JobDemand, PackingConfig, PackingPolicies, Resources, VertexDemand,
};
use ardea_metastore::layout::{self, JobLayout};
use ardea_metastore::{Expected, FileState, MetadataStore, StateOptions, StatePath};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::ardea::{Finished, ardea, finish};

/// Creates a folder with a cluster's metadata store: a submitted job, and nodes as its leader would
/// write them.
fn remembered() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, directory) = (Runtime::new().unwrap(), folder.path().join("state"));
    runtime.block_on(async {
        let state = FileState::open(&directory, StateOptions::default());
        let state: Arc<dyn MetadataStore> = Arc::new(state.await.unwrap());
        let definition = JobDefinition {
            job: JobRef {
                cluster: "local".into(),
                name: "word-count".into(),
                submission: 42,
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "word-count".into(),
                arguments: vec!["--from".into(), "yesterday".into()],
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: Default::default(),
            version: "0.1.0".into(),
        };
        let vertex = VertexDemand::new("words", 2, Resources::ZERO);
        ardea_server::leader::submit(
            Arc::clone(&state),
            definition,
            JobDemand::new("word-count").vertex(vertex),
            PackingConfig::default(),
            &PackingPolicies::builtin(),
            Duration::from_secs(10),
        )
        .await
        .unwrap();
        let job = JobLayout::of("word-count").unwrap();
        let written: [(StatePath, &[u8]); 4] = [
            (job.container(1).unwrap(), br#"{"endpoint":"10.0.0.7:41"}"#),
            (
                job.scheduler().clone(),
                br#"{"name":"local","address":"here"}"#,
            ),
            (layout::worker("heron").unwrap(), b"no JSON"),
            (job.master(42).unwrap(), &[0xff; 7]),
        ];
        for (path, value) in written {
            state.set(&path, value, Expected::Any).await.unwrap();
        }
    });
    folder
}

fn dump(folder: &TempDir, more: &[&str]) -> Finished {
    state(folder, "dump", more)
}

fn state(folder: &TempDir, verb: &str, more: &[&str]) -> Finished {
    let state = format!("cluster.state=file:{}/state", folder.path().display());
    let words = [&["metastore", verb, "--set", &state], more].concat();
    let mut command = ardea(&words);
    command
        .current_dir(folder.path())
        .env("HOME", folder.path());
    finish(command.spawn().unwrap())
}

/// Returns the node of this path.
fn node<'t>(tree: &'t Value, path: &str) -> &'t Value {
    let below = tree["children"].as_array().unwrap().iter();
    let above = |it: &&Value| {
        let at = it["path"].as_str().unwrap();
        path == at || path.starts_with(&format!("{at}/"))
    };
    match tree["path"] == path {
        true => tree,
        false => node(below.clone().find(above).unwrap(), path),
    }
}

#[test]
fn what_a_cluster_remembers_is_printed_as_a_tree_with_its_values_decoded() {
    let folder = remembered();
    let finished = dump(&folder, &[]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for part in [
        "└─ workers",
        "word-count",
        "├─ definition  v",
        "\"word-count\"",
        "10.0.0.7:41",
        "{\"address\":\"here\",\"name\":\"local\"}",
        "\"no JSON\"",
    ] {
        assert!(finished.out.contains(part), "{part}: {}", finished.out);
    }
    assert!(!finished.out.contains("yesterday"), "{}", finished.out);
    let whole = dump(&folder, &["--whole", "--below", "/jobs"]);
    assert!(whole.out.contains("yesterday"), "{whole:?}");
    assert!(!whole.out.contains("heron"), "{whole:?}");

    let told = dump(&folder, &["--json"]);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    let tree = &told["tree"];
    let definition = &node(tree, "/jobs/word-count/definition")["value"];
    let program = &definition["submitted"]["definition"]["program"];
    assert_eq!(program["arguments"][1], "yesterday", "{told}");
    assert!(definition["record"].is_object(), "{told}");
    let container = node(tree, "/jobs/word-count/containers/0000000001");
    assert_eq!(container["value"]["endpoint"], "10.0.0.7:41");
    assert_eq!(node(tree, "/workers/heron")["value"], "no JSON");
    let lease = node(tree, "/jobs/word-count/master-000000000000002a");
    assert_eq!(
        (&lease["value"], &lease["bytes"]),
        (&Value::Null, &7.into())
    );
}

#[test]
fn a_damaged_node_is_named_and_the_rest_is_shown() {
    let folder = remembered();
    let file = "state/tree/jobs/word-count/definition/.node";
    std::fs::write(folder.path().join(file), "").unwrap();
    let finished = dump(&folder, &[]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let mut lines = finished.out.lines();
    let line = lines.find(|line| line.contains("─ definition"));
    let is_told = line.is_some_and(|line| line.contains("damaged: ARD-505") && line.contains(file));
    assert!(is_told, "{finished:?}");
    assert!(finished.out.contains("10.0.0.7:41"), "{finished:?}");
    let told = dump(
        &folder,
        &["--json", "--below", "/jobs/word-count/definition"],
    );
    let told: Value = serde_json::from_str(&told.out).unwrap();
    let damage = told["tree"]["damage"].as_str().unwrap();
    assert!(damage.contains("ARD-505"), "{told}");
}

/// Writes values directly into the metadata store.
fn write(folder: &TempDir, values: &[(&str, &[u8])]) {
    let directory = folder.path().join("state");
    Runtime::new().unwrap().block_on(async {
        let state = FileState::open(&directory, StateOptions::default());
        let state = state.await.unwrap();
        for (path, value) in values {
            let path = StatePath::parse(path).unwrap();
            state.set(&path, value, Expected::Any).await.unwrap();
        }
    });
}

#[test]
fn what_is_named_as_damaged_in_a_node_that_is_whole_is_just_what_can_be_removed() {
    let folder = remembered();
    let job = "/jobs/word-count";
    let definition = format!("{job}/definition");
    let lease = |submission| format!("{job}/master-{submission:016x}");
    let (no_text, text, later) = (lease(42), lease(43), lease(44));
    write(
        &folder,
        &[
            (&definition, b"junk"),
            (&text, br#"{"version":1}"#),
            (&later, br#"{"version":2}"#),
        ],
    );
    let shown = dump(&folder, &[]).out;
    let told = dump(&folder, &["--json"]).out;
    let told: Value = serde_json::from_str(&told).unwrap();
    let scheduler = format!("{job}/scheduler");
    // Leases first: removing the definition removes all nodes of the job.
    for (path, value, is_damaged) in [
        (&later, "{\"version\":2}", false),
        (&scheduler, "\"here\"", false),
        (&no_text, "  7 bytes  damaged: ARD-505", true),
        (&text, "  13 bytes  damaged: ARD-505", true),
        (&definition, "  4 bytes  damaged: ARD-505", true),
    ] {
        let name = format!("─ {}  v", path.rsplit('/').next().unwrap());
        let line = shown.lines().find(|line| line.contains(&name)).unwrap();
        assert!(line.contains(value), "{line}");
        assert_eq!(line.contains("damaged"), is_damaged, "{line}");
        let node = node(&told["tree"], path);
        assert!(node["version"].is_string(), "{node}");
        let damage = node["damage"].as_str();
        let is_named = damage.is_some_and(|damage| damage.contains("ARD-505"));
        assert_eq!(is_named, is_damaged, "{node}");
        assert_eq!(damage.is_some(), is_damaged, "{node}");
        let removed = state(&folder, "remove", &[path]);
        let code = if is_damaged { 0 } else { 2 };
        assert_eq!(removed.code, Some(code), "{path}: {removed:?}");
    }
}

#[test]
fn what_is_damaged_is_removed_and_what_is_whole_is_not() {
    let folder = remembered();
    let job = "/jobs/word-count";
    let definition = format!("{job}/definition");
    for (path, says) in [(&*definition, "not damaged"), ("/jobs/other", "holds no")] {
        let finished = state(&folder, "remove", &[path]);
        assert_eq!(finished.code, Some(2), "{finished:?}");
        assert!(finished.err.contains(says), "{finished:?}");
    }
    assert!(dump(&folder, &["--below", &definition]).out.contains(" v"));
    for damaged in ["", "/definition"] {
        let file = format!("state/tree{job}{damaged}/.node");
        std::fs::write(folder.path().join(file), "junk").unwrap();
    }
    // A node with children is emptied; a lease that can't be read counts as damaged.
    let lease = format!("{job}/master-000000000000002a");
    for (path, says) in [
        (job, "is mended"),
        (&lease, "is removed"),
        (&definition, "is removed"),
    ] {
        let finished = state(&folder, "remove", &["--json", path]);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let told: Value = serde_json::from_str(&finished.out).unwrap();
        assert_eq!(told["path"], path, "{told}");
        assert!(told["outcome"].as_str().unwrap().contains(says), "{told}");
    }
    // Removing the definition removes all nodes of the job.
    let left = dump(&folder, &[]).out;
    assert!(left.contains("heron"), "{left}");
    assert!(!left.contains("word-count"), "{left}");
}

#[test]
fn where_there_is_no_state_that_is_told_and_none_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let finished = dump(&folder, &[]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.err.contains("has no state"), "{finished:?}");
    assert!(!folder.path().join("state").exists());
    let folder = remembered();
    for (below, says) in [("/jobs/other", "holds no /jobs/other"), ("jobs", "ARD-")] {
        let finished = dump(&folder, &["--below", below]);
        assert_ne!(finished.code, Some(0), "{finished:?}");
        assert!(finished.err.contains(says), "{finished:?}");
        assert_eq!(finished.out, "");
    }
}
