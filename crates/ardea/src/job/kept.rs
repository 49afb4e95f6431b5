//! The snapshots of a job, as people and programs read them.

use std::fmt;
use std::path::Path;

use ardea_checkpoint::local::{Looked, address_of, look, past_damage};
use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode, Result, shown};
use ardea_rest::{SnapshotVertexView, SnapshotView, SnapshotsView};
use ardea_server::daemon::snapshot_view;
use serde_json::{Value, json};

/// The snapshots of a job, in its folder or on its cluster: `ardea snapshots`.
#[derive(Clone, Debug)]
pub struct KeptJob {
    seen: SnapshotsView,
    is_of_cluster: bool,
}

impl KeptJob {
    /// Looks into a folder; with `check` reads all that is there, and verifies it.
    ///
    /// # Errors
    /// As [`look`].
    pub fn look(folder: &Path, check: bool) -> Result<Self> {
        Ok(KeptJob::looked(folder, &look(folder, check)?, check))
    }

    /// As a cluster tells it.
    pub fn of(view: SnapshotsView) -> Self {
        KeptJob {
            seen: view,
            is_of_cluster: true,
        }
    }

    fn looked(folder: &Path, looked: &Looked, checked: bool) -> Self {
        let seen = SnapshotsView {
            job: looked.job.clone(),
            folder: folder.display().to_string(),
            state: state(looked, folder).to_string(),
            held_by: looked.holder.clone(),
            committed: looked.committed.map(|epoch| epoch.0),
            checked,
            snapshots: looked.snapshots.iter().map(snapshot_view).collect(),
        };
        KeptJob {
            seen,
            is_of_cluster: looked.is_of_cluster,
        }
    }

    /// The first thing that is damaged, the newest snapshot first.
    pub fn damage(&self) -> Option<Error> {
        let snapshots = self.seen.snapshots.iter().rev().enumerate();
        let mut damages = snapshots.filter_map(|(age, it)| Some((age, it.damage.as_ref()?)));
        damages.next().map(|(age, damage)| {
            let code = ErrorCode::named(&damage.code).unwrap_or(ErrorCode::SnapshotDamaged);
            let of_cluster = self.is_of_cluster.then_some(&*self.seen.job);
            let error = Error::new(code, damage.message.clone());
            match age {
                0 => past_damage(error, of_cluster),
                _ => error.hint("a newer snapshot is whole, and the job goes on from the newest; check the disk"),
            }
        })
    }

    /// All of it as one object.
    pub fn to_json(&self) -> Value {
        json!(self.seen)
    }
}

/// What a job is at, in a word, as far as its folder tells.
fn state(looked: &Looked, folder: &Path) -> &'static str {
    match (&looked.holder, looked.end) {
        // Its cluster knows.
        _ if looked.is_of_cluster => "of a cluster",
        (Some(_), _) => "running",
        (None, Some(end)) => end,
        // A bucket has no lock by which it could be told.
        (None, None) if address_of(folder).is_some() => "running or interrupted",
        // Whoever ran it died, or gave up.
        (None, None) => "interrupted",
    }
}

impl fmt::Display for KeptJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = &self.seen;
        let (job, folder) = (shown(&seen.job), shown(&seen.folder));
        write!(f, "{job} in {folder}: {}", seen.state)?;
        if let Some(holder) = &seen.held_by {
            write!(f, " ({})", shown(holder))?;
        }
        writeln!(f)?;
        if seen.snapshots.is_empty() {
            return writeln!(f, "no snapshot yet");
        }
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
        let snapshots = seen.snapshots.iter();
        rows.extend(snapshots.map(|snapshot| snapshot_row(snapshot, seen.checked)));
        write_columns(f, &rows)?;
        let newest = seen.snapshots.last();
        let Some(newest) = newest.filter(|newest| newest.damage.is_none()) else {
            return Ok(());
        };
        writeln!(f, "\nepoch {} by vertex", newest.epoch)?;
        let mut rows = vec![row([
            "vertex", "n", "took", "aligned", "written", "state", "entries", "layers",
        ])];
        rows.extend(newest.vertices.iter().map(vertex_row));
        write_columns(f, &rows)
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).to_vec()
}

fn snapshot_row(snapshot: &SnapshotView, is_checked: bool) -> Vec<String> {
    let epoch = snapshot.epoch.to_string();
    if let Some(damage) = &snapshot.damage {
        return vec![
            epoch,
            format!("damaged: {}: {}", damage.code, damage.message),
        ];
    }
    let sum = |count: fn(&SnapshotVertexView) -> u64| {
        let counts = snapshot.vertices.iter().map(count);
        counts.sum::<u64>().to_string()
    };
    let mut cells = vec![
        epoch,
        snapshot.committed_at.clone().unwrap_or_default(),
        in_millis(snapshot.took_ms.unwrap_or_default()),
        readable_bytes(snapshot.written_bytes),
        readable_bytes(snapshot.state_bytes),
        sum(|vertex| vertex.full.into()),
        sum(|vertex| vertex.increments.into()),
        sum(|vertex| vertex.entries),
    ];
    if is_checked {
        cells.push("whole".into());
    }
    cells
}

fn vertex_row(vertex: &SnapshotVertexView) -> Vec<String> {
    vec![
        shown(&vertex.name).into_owned(),
        vertex.instances.to_string(),
        in_millis(vertex.took_ms),
        in_millis(vertex.aligned_ms.unwrap_or_default()),
        readable_bytes(vertex.written_bytes),
        readable_bytes(vertex.state_bytes),
        vertex.entries.to_string(),
        vertex.layers.to_string(),
    ]
}

fn in_millis(millis: f64) -> String {
    format!("{millis:.1} ms")
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

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_checkpoint::local::LookedSnapshot;
    use ardea_checkpoint::store::{SnapshotId, SnapshotReport, VertexReport};
    use ardea_core::{Epoch, Timestamp};
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn kept() -> KeptJob {
        kept_in("state/words", Some("stopped"))
    }

    fn kept_in(folder: &str, end: Option<&'static str>) -> KeptJob {
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
        let looked = Looked {
            is_of_cluster: false,
            job: "words".into(),
            end,
            holder: None,
            committed: Some(Epoch(7)),
            snapshots: vec![damaged, snapshot],
        };
        KeptJob::looked(Path::new(folder), &looked, true)
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
    fn of_damage_it_is_said_how_the_job_goes_on_where_it_runs() {
        let mut kept = kept();
        let hint = |kept: &KeptJob| kept.damage().unwrap().what_next().unwrap().to_string();
        assert!(hint(&kept).contains("goes on from the newest"));
        kept.seen.snapshots.pop();
        assert!(hint(&kept).contains("recovery.go_back"));
        kept = KeptJob::of(kept.seen);
        assert!(hint(&kept).contains("`ardea recover words` (--from EPOCH"));
    }

    #[test]
    fn nobody_claims_to_know_whether_a_job_in_a_bucket_runs() {
        for (folder, end, state) in [
            ("state/words", None, "interrupted"),
            ("s3://states/words", None, "running or interrupted"),
            ("s3://states/words", Some("completed"), "completed"),
        ] {
            assert_eq!(kept_in(folder, end).to_json()["state"], state, "{folder}");
        }
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
