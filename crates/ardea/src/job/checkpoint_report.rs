//! The list of a job's checkpoints, as text and JSON.

use std::fmt;
use std::path::Path;

use ardea_checkpoint::local::{Inspection, address_of, look, with_recovery_hint};
use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode, Result, escape_invisible};
use ardea_rest::{CheckpointVertexView, CheckpointView, CheckpointsView};
use ardea_server::daemon::checkpoint_view;
use serde_json::{Value, json};

/// The checkpoints of a job, in its folder or on its cluster: `ardea checkpoints`.
#[derive(Clone, Debug)]
pub struct CheckpointListing {
    seen: CheckpointsView,
    is_of_cluster: bool,
}

impl CheckpointListing {
    /// Reads the checkpoints in a folder; with `check`, reads and verifies all their data.
    ///
    /// # Errors
    /// As [`look`].
    pub fn look(folder: &Path, check: bool) -> Result<Self> {
        Ok(CheckpointListing::from_inspection(
            folder,
            &look(folder, check)?,
            check,
        ))
    }

    /// Creates a listing from a cluster's response.
    pub fn of(view: CheckpointsView) -> Self {
        CheckpointListing {
            seen: view,
            is_of_cluster: true,
        }
    }

    fn from_inspection(folder: &Path, looked: &Inspection, checked: bool) -> Self {
        let seen = CheckpointsView {
            job: looked.job.clone(),
            folder: folder.display().to_string(),
            state: state(looked, folder).to_string(),
            held_by: looked.holder.clone(),
            committed: looked.committed.map(|epoch| epoch.0),
            checked,
            checkpoints: looked.checkpoints.iter().map(checkpoint_view).collect(),
        };
        CheckpointListing {
            seen,
            is_of_cluster: looked.is_of_cluster,
        }
    }

    /// Returns the first damage found, newest checkpoint first.
    pub fn damage(&self) -> Option<Error> {
        let checkpoints = self.seen.checkpoints.iter().rev().enumerate();
        let mut damages = checkpoints.filter_map(|(age, it)| Some((age, it.damage.as_ref()?)));
        damages.next().map(|(age, damage)| {
            let code = ErrorCode::from_name(&damage.code).unwrap_or(ErrorCode::CheckpointDamaged);
            let of_cluster = self.is_of_cluster.then_some(&*self.seen.job);
            let error = Error::new(code, damage.message.clone());
            match age {
                0 => with_recovery_hint(error, of_cluster),
                _ => error.hint("a newer checkpoint is whole, and the job goes on from the newest; check the disk"),
            }
        })
    }

    /// Returns the listing as one JSON object.
    pub fn to_json(&self) -> Value {
        json!(self.seen)
    }
}

/// Returns the state of a job in a word, as far as its folder shows it.
fn state(looked: &Inspection, folder: &Path) -> &'static str {
    match (&looked.holder, looked.end) {
        // Only the cluster knows the state.
        _ if looked.is_of_cluster => "of a cluster",
        (Some(_), _) => "running",
        (None, Some(end)) => end,
        // A bucket has no lock that would show whether the job runs.
        (None, None) if address_of(folder).is_some() => "running or interrupted",
        // The process that ran it died or gave up.
        (None, None) => "interrupted",
    }
}

impl fmt::Display for CheckpointListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = &self.seen;
        let (job, folder) = (escape_invisible(&seen.job), escape_invisible(&seen.folder));
        write!(f, "{job} in {folder}: {}", seen.state)?;
        if let Some(holder) = &seen.held_by {
            write!(f, " ({})", escape_invisible(holder))?;
        }
        writeln!(f)?;
        if seen.checkpoints.is_empty() {
            return writeln!(f, "no checkpoint yet");
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
        let checkpoints = seen.checkpoints.iter();
        rows.extend(checkpoints.map(|checkpoint| checkpoint_row(checkpoint, seen.checked)));
        write_columns(f, &rows)?;
        let newest = seen.checkpoints.last();
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

fn checkpoint_row(checkpoint: &CheckpointView, is_checked: bool) -> Vec<String> {
    let epoch = checkpoint.epoch.to_string();
    if let Some(damage) = &checkpoint.damage {
        return vec![
            epoch,
            format!("damaged: {}: {}", damage.code, damage.message),
        ];
    }
    let sum = |count: fn(&CheckpointVertexView) -> u64| {
        let counts = checkpoint.vertices.iter().map(count);
        counts.sum::<u64>().to_string()
    };
    let mut cells = vec![
        epoch,
        checkpoint.committed_at.clone().unwrap_or_default(),
        in_millis(checkpoint.took_ms.unwrap_or_default()),
        readable_bytes(checkpoint.written_bytes),
        readable_bytes(checkpoint.state_bytes),
        sum(|vertex| vertex.full.into()),
        sum(|vertex| vertex.increments.into()),
        sum(|vertex| vertex.entries),
    ];
    if is_checked {
        cells.push("whole".into());
    }
    cells
}

fn vertex_row(vertex: &CheckpointVertexView) -> Vec<String> {
    vec![
        escape_invisible(&vertex.name).into_owned(),
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

/// Writes rows in columns of the necessary width.
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
    use ardea_checkpoint::local::CheckpointInspection;
    use ardea_checkpoint::store::{CheckpointId, CheckpointReport, VertexReport};
    use ardea_core::{Epoch, Timestamp};
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn kept() -> CheckpointListing {
        kept_in("state/words", Some("stopped"))
    }

    fn kept_in(folder: &str, end: Option<&'static str>) -> CheckpointListing {
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
        let report = CheckpointReport {
            id: CheckpointId::new(1, Epoch(7)),
            base: Some(CheckpointId::new(1, Epoch(6))),
            at: Timestamp::from_secs(1_000),
            vertices: vec![vertex],
        };
        let checkpoint = CheckpointInspection {
            epoch: Epoch(7),
            report: Ok(report),
            took: Some(Duration::from_millis(12)),
            aligned: BTreeMap::from([("counts".to_string(), Duration::from_millis(1))]),
        };
        let damaged = CheckpointInspection {
            epoch: Epoch(6),
            report: Err(Error::new(
                ErrorCode::CheckpointDamaged,
                "block x is damaged",
            )),
            took: None,
            aligned: BTreeMap::new(),
        };
        let looked = Inspection {
            is_of_cluster: false,
            job: "words".into(),
            end,
            holder: None,
            committed: Some(Epoch(7)),
            checkpoints: vec![damaged, checkpoint],
        };
        CheckpointListing::from_inspection(Path::new(folder), &looked, true)
    }

    #[test]
    fn people_see_a_line_a_checkpoint_and_the_vertices_of_the_newest() {
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
        let hint =
            |kept: &CheckpointListing| kept.damage().unwrap().hint_text().unwrap().to_string();
        assert!(hint(&kept).contains("goes on from the newest"));
        kept.seen.checkpoints.pop();
        assert!(hint(&kept).contains("recovery.go_back"));
        kept = CheckpointListing::of(kept.seen);
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
        assert_eq!(value["checkpoints"][0]["damage"]["code"], "ARD-645");
        let newest = &value["checkpoints"][1];
        assert_eq!(newest["vertices"][0]["aligned_ms"], 1.0);
        assert_eq!(
            (&newest["based_on"], &newest["took_ms"]),
            (&json!(6), &json!(12.0))
        );
        assert_eq!(kept.damage().unwrap().code(), ErrorCode::CheckpointDamaged);
    }
}
