//! The snapshots in a job's folder, as people and programs read them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::settings::readable_bytes;
use ardea_core::{Error, Result, shown};
use ardea_recovery::{Looked, LookedSnapshot, look};
use ardea_snapshot::{SnapshotReport, VertexReport};
use serde_json::{Value, json};

/// What a job has left in its folder: `ardea snapshots`.
#[derive(Clone, Debug)]
pub struct KeptJob {
    folder: PathBuf,
    looked: Looked,
    is_checked: bool,
}

impl KeptJob {
    /// Looks into a folder; with `check` reads all that is there, and verifies it.
    ///
    /// # Errors
    /// As [`look`].
    pub fn look(folder: &Path, check: bool) -> Result<Self> {
        Ok(KeptJob {
            folder: folder.to_path_buf(),
            looked: look(folder, check)?,
            is_checked: check,
        })
    }

    /// The first thing that is damaged, the newest snapshot first.
    pub fn damage(&self) -> Option<Error> {
        let snapshots = self.looked.snapshots.iter().rev();
        snapshots
            .filter_map(|snapshot| snapshot.report.as_ref().err())
            .next()
            .cloned()
    }

    /// All of it as one object.
    pub fn to_json(&self) -> Value {
        let snapshots = self.looked.snapshots.iter().map(snapshot_as_json);
        json!({
            "job": self.looked.job,
            "folder": self.folder.display().to_string(),
            "state": self.state(),
            "held_by": self.looked.holder,
            "committed": self.looked.committed.map(|epoch| epoch.0),
            "checked": self.is_checked,
            "snapshots": snapshots.collect::<Vec<_>>(),
        })
    }

    /// What the job is at, in a word.
    fn state(&self) -> &'static str {
        match (&self.looked.holder, self.looked.end) {
            (Some(_), _) => "running",
            (None, Some(end)) => end,
            // Whoever ran it died, or gave up.
            (None, None) => "interrupted",
        }
    }
}

impl fmt::Display for KeptJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, folder) = (&self.looked.job, self.folder.display().to_string());
        write!(f, "{} in {}: {}", shown(job), shown(&folder), self.state())?;
        if let Some(holder) = &self.looked.holder {
            write!(f, " ({})", shown(holder))?;
        }
        writeln!(f)?;
        if self.looked.snapshots.is_empty() {
            return writeln!(f, "no snapshot yet");
        }
        let snapshots = self.looked.snapshots.iter();
        let mut rows = vec![row([
            "epoch",
            "committed",
            "took",
            "written",
            "state",
            "full",
            "increments",
            "entries",
        ])];
        rows.extend(snapshots.map(|snapshot| snapshot_row(snapshot, self.is_checked)));
        write_columns(f, &rows)?;
        let newest = self.looked.snapshots.last();
        let newest = newest.and_then(|newest| Some((newest, newest.report.as_ref().ok()?)));
        let Some((newest, report)) = newest else {
            return Ok(());
        };
        writeln!(f, "\nepoch {} by vertex", newest.epoch.0)?;
        let mut rows = vec![row([
            "vertex", "n", "took", "aligned", "written", "state", "entries", "layers",
        ])];
        rows.extend(
            report
                .vertices
                .iter()
                .map(|vertex| vertex_row(vertex, newest)),
        );
        write_columns(f, &rows)
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).to_vec()
}

fn snapshot_row(snapshot: &LookedSnapshot, is_checked: bool) -> Vec<String> {
    let epoch = snapshot.epoch.0.to_string();
    let report = match &snapshot.report {
        Ok(report) => report,
        Err(error) => return vec![epoch, format!("damaged: {}", error.without_hint())],
    };
    let sum = |count: fn(&VertexReport) -> u64| {
        let counts = report.vertices.iter().map(count);
        counts.sum::<u64>().to_string()
    };
    let mut cells = vec![
        epoch,
        report.at.to_string(),
        in_millis(snapshot.took.unwrap_or_else(|| report.took())),
        readable_bytes(report.bytes()),
        readable_bytes(report.state_bytes()),
        sum(|vertex| vertex.full.into()),
        sum(|vertex| vertex.increments.into()),
        sum(|vertex| vertex.entries),
    ];
    if is_checked {
        cells.push("whole".into());
    }
    cells
}

fn vertex_row(vertex: &VertexReport, snapshot: &LookedSnapshot) -> Vec<String> {
    let aligned = snapshot.aligned.get(&vertex.vertex).copied();
    vec![
        shown(&vertex.vertex).into_owned(),
        vertex.instances.to_string(),
        in_millis(vertex.took),
        in_millis(aligned.unwrap_or_default()),
        readable_bytes(vertex.bytes),
        readable_bytes(vertex.state_bytes),
        vertex.entries.to_string(),
        vertex.layers.to_string(),
    ]
}

fn in_millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Rows in columns, as wide as they have to be.
fn write_columns(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let whole = rows.iter().filter(|row| row.len() > 2);
        let cells = whole.filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(f, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}

fn snapshot_as_json(snapshot: &LookedSnapshot) -> Value {
    let report = match &snapshot.report {
        Ok(report) => report,
        Err(error) => {
            return json!({
                "epoch": snapshot.epoch.0,
                "damage": { "code": error.code().as_str(), "message": error.message() },
            });
        }
    };
    json!({
        "epoch": snapshot.epoch.0,
        "generation": report.id.generation,
        "based_on": report.base.map(|base| base.epoch.0),
        "committed_at": report.at.to_string(),
        "took_ms": snapshot.took.map(millis),
        "written_bytes": report.bytes(),
        "state_bytes": report.state_bytes(),
        "vertices": vertices_as_json(report, snapshot),
    })
}

fn vertices_as_json(report: &SnapshotReport, snapshot: &LookedSnapshot) -> Vec<Value> {
    let vertices = report.vertices.iter().map(|vertex| {
        json!({
            "name": vertex.vertex,
            "instances": vertex.instances,
            "full": vertex.full,
            "increments": vertex.increments,
            "unchanged": vertex.unchanged,
            "entries": vertex.entries,
            "written_bytes": vertex.bytes,
            "state_bytes": vertex.state_bytes,
            "layers": vertex.layers,
            "took_ms": millis(vertex.took),
            "aligned_ms": snapshot.aligned.get(&vertex.vertex).copied().map(millis),
        })
    });
    vertices.collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Epoch, ErrorCode, Timestamp};
    use ardea_snapshot::SnapshotId;
    use std::collections::BTreeMap;

    fn kept() -> KeptJob {
        let vertex = VertexReport {
            vertex: "counts".into(),
            instances: 2,
            full: 1,
            increments: 1,
            unchanged: 0,
            entries: 34,
            blocks: 2,
            bytes: 2_048,
            unpacked_bytes: 4_096,
            took: Duration::from_millis(3),
            layers: 2,
            state_bytes: 4_096,
        };
        let report = SnapshotReport {
            id: SnapshotId::new(1, Epoch(7)),
            base: Some(SnapshotId::new(1, Epoch(6))),
            at: Timestamp::from_secs(1_000),
            vertices: vec![vertex],
        };
        let snapshot = LookedSnapshot {
            epoch: Epoch(7),
            report: Ok(report),
            took: Some(Duration::from_millis(12)),
            aligned: BTreeMap::from([("counts".to_string(), Duration::from_millis(1))]),
        };
        let damaged = LookedSnapshot {
            epoch: Epoch(6),
            report: Err(Error::new(ErrorCode::SnapshotDamaged, "block x is damaged")),
            took: None,
            aligned: BTreeMap::new(),
        };
        KeptJob {
            folder: "state/words".into(),
            looked: Looked {
                job: "words".into(),
                end: Some("stopped"),
                holder: None,
                committed: Some(Epoch(7)),
                snapshots: vec![damaged, snapshot],
            },
            is_checked: true,
        }
    }

    #[test]
    fn people_see_a_line_a_snapshot_and_the_vertices_of_the_newest() {
        let text = kept().to_string();
        assert!(
            text.starts_with("words in state/words: stopped\n"),
            "{text}"
        );
        assert!(
            text.contains("6      damaged: ARD-645: block x is damaged"),
            "{text}"
        );
        assert!(text.contains("12.0 ms") && text.contains("whole"), "{text}");
        assert!(
            text.contains("epoch 7 by vertex\n") && text.contains("counts"),
            "{text}"
        );
    }

    #[test]
    fn programs_get_every_figure_and_what_is_damaged() {
        let kept = kept();
        let value = kept.to_json();
        assert_eq!(value["state"], "stopped");
        assert_eq!(value["snapshots"][0]["damage"]["code"], "ARD-645");
        let newest = &value["snapshots"][1];
        assert_eq!(newest["vertices"][0]["aligned_ms"], 1.0);
        assert_eq!(
            (&newest["based_on"], &newest["took_ms"]),
            (&json!(6), &json!(12.0))
        );
        assert_eq!(kept.damage().unwrap().code(), ErrorCode::SnapshotDamaged);
    }
}
