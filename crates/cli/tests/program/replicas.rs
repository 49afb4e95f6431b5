//! `ardea replicas`: the replicas that write a file together.

use std::fs;

use serde_json::Value;

use crate::ardea::{run, succeed};

#[test]
fn copies_are_shown_with_how_far_behind_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results").display().to_string();
    let folder = dir.path().join("results.replicas");
    fs::create_dir(&folder).unwrap();
    for (number, until) in [(1, 2_000_000), (2, 1_500_000)] {
        let told = format!(
            r#"{{"job":"views","host":"ada","process":7,"until":{until},"first":3,"met":4,"at":9000000}}"#
        );
        fs::write(folder.join(format!("{number}.copy")), told).unwrap();
    }
    let table = succeed(&["replicas", &file]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    for part in [
        "views",
        "7 on ada",
        "gone",
        "1970-01-01T00:00:01.500Z",
        "500 ms",
    ] {
        assert!(lines[2].contains(part), "{part}: {table}");
    }
    let copies: Value = serde_json::from_str(&succeed(&["replicas", &file, "--json"])).unwrap();
    assert_eq!(copies[0]["behind_ms"], 0.0);
    assert_eq!(
        (&copies[1]["behind_ms"], &copies[1]["state"]),
        (&500.0.into(), &"gone".into())
    );
}

#[test]
fn a_file_that_nobody_writes_so_is_refused() {
    let refused = run(&["replicas", "no-such-file"]);
    assert!(refused.err.contains("ARD-301"), "{}", refused.err);
}
