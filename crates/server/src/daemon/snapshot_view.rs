//! Snapshots in the words of the REST interface.

use std::time::Duration;

use ardea_checkpoint::local::LookedSnapshot;
use ardea_checkpoint::store::{SnapshotReport, VertexReport};
use ardea_rest::{DamageView, SnapshotVertexView, SnapshotView};

/// Returns a snapshot as the REST interface shows it.
pub fn snapshot_view(snapshot: &LookedSnapshot) -> SnapshotView {
    let report = match &snapshot.report {
        Ok(report) => report,
        Err(error) => {
            return SnapshotView {
                epoch: snapshot.epoch.0,
                damage: Some(DamageView {
                    code: error.code().as_str().to_string(),
                    message: error.message().to_string(),
                }),
                ..SnapshotView::default()
            };
        }
    };
    SnapshotView {
        epoch: snapshot.epoch.0,
        damage: None,
        generation: Some(report.id.generation),
        based_on: report.base.map(|base| base.epoch.0),
        committed_at: Some(report.at.to_string()),
        took_ms: Some(millis(snapshot.took.unwrap_or_else(|| report.took()))),
        written_bytes: report.bytes(),
        state_bytes: report.state_bytes(),
        vertices: vertices(report, snapshot),
    }
}

fn vertices(report: &SnapshotReport, snapshot: &LookedSnapshot) -> Vec<SnapshotVertexView> {
    let vertices = report.vertices.iter().map(|vertex: &VertexReport| {
        let aligned = snapshot.aligned.get(&vertex.vertex).copied();
        SnapshotVertexView {
            name: vertex.vertex.clone(),
            instances: vertex.instances,
            full: vertex.full,
            increments: vertex.increments,
            unchanged: vertex.unchanged,
            entries: vertex.entries,
            written_bytes: vertex.bytes,
            state_bytes: vertex.state_bytes,
            layers: u64::try_from(vertex.layers).unwrap_or(u64::MAX),
            took_ms: millis(vertex.took),
            aligned_ms: aligned.map(millis),
        }
    });
    vertices.collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
