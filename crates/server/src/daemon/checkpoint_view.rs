//! Conversion of checkpoints for the REST interface.

use std::time::Duration;

use ardea_checkpoint::local::CheckpointInspection;
use ardea_checkpoint::store::{CheckpointReport, VertexReport};
use ardea_rest::{CheckpointVertexView, CheckpointView, DamageView};

/// Converts a checkpoint for the REST interface.
pub fn checkpoint_view(checkpoint: &CheckpointInspection) -> CheckpointView {
    let report = match &checkpoint.report {
        Ok(report) => report,
        Err(error) => {
            return CheckpointView {
                epoch: checkpoint.epoch.0,
                damage: Some(DamageView {
                    code: error.code().as_str().to_string(),
                    message: error.message().to_string(),
                }),
                ..CheckpointView::default()
            };
        }
    };
    CheckpointView {
        epoch: checkpoint.epoch.0,
        damage: None,
        generation: Some(report.id.generation),
        based_on: report.base.map(|base| base.epoch.0),
        committed_at: Some(report.at.to_string()),
        took_ms: Some(millis(checkpoint.took.unwrap_or_else(|| report.took()))),
        written_bytes: report.bytes(),
        state_bytes: report.state_bytes(),
        vertices: vertices(report, checkpoint),
    }
}

fn vertices(
    report: &CheckpointReport,
    checkpoint: &CheckpointInspection,
) -> Vec<CheckpointVertexView> {
    let vertices = report.vertices.iter().map(|vertex: &VertexReport| {
        let aligned = checkpoint.aligned.get(&vertex.vertex).copied();
        CheckpointVertexView {
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
