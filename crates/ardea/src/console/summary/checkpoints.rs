//! The fault-tolerance part of a job's summary.

use std::sync::Arc;

use ardea_checkpoint::local::{CheckpointStats, JobCounts, JobEnd};
use ardea_core::Delivery;
use serde_json::{Value, json};

use crate::console::format_number::{duration, grouped};

/// Checkpoint statistics, and the sinks whose delivery is weaker than the job's guarantee.
#[derive(Clone, Debug, Default)]
pub struct CheckpointSummary {
    pub figures: CheckpointStats,
    /// The way in which the job ended, if it has.
    pub end: Option<JobEnd>,
    /// The sinks whose delivery is weaker than the job's guarantee, and that delivery.
    pub below: Vec<(Arc<str>, Delivery)>,
    /// Records counted over all attempts.
    pub counts: JobCounts,
    /// The part of `counts` that earlier processes counted.
    pub counts_before: JobCounts,
}

impl CheckpointSummary {
    /// Returns true if the job was stopped with a checkpoint from which the next run continues.
    pub fn was_stopped(&self) -> bool {
        self.end == Some(JobEnd::Stopped)
    }

    /// Returns text: a line on the checkpoints, and a line for each sink that gives less than the
    /// guarantee.
    pub fn to_text(&self) -> String {
        let figures = &self.figures;
        let mut text = format!("  {}", plural(figures.checkpoints, "checkpoint"));
        if figures.checkpoints > 0 {
            text += &format!(", the longest took {}", duration(figures.longest));
        }
        if figures.aborted > 0 {
            text += &format!(", {} aborted", grouped(figures.aborted));
        }
        if figures.recoveries > 0 {
            let times = plural(figures.recoveries.into(), "time");
            text += &format!("; restarted {times}");
        }
        if let Some(epoch) = self.counts.since {
            text += &format!("; the counts begin with epoch {}", epoch.0);
        } else if !self.counts_before.vertices.is_empty() {
            text += "; the counts include earlier runs";
        }
        if self.was_stopped() {
            text += "; run again, it goes on from the last one";
        }
        text.push('\n');
        for (sink, delivery) in &self.below {
            text += &format!("  {sink} {}\n", in_words(*delivery));
        }
        text
    }

    /// Returns the statistics as one JSON object.
    pub fn to_json(&self) -> Value {
        let figures = &self.figures;
        let below = self.below.iter().map(|(sink, delivery)| {
            json!({
                "vertex": &**sink,
                "delivery": delivery.as_str(),
            })
        });
        json!({
            "checkpoints": figures.checkpoints,
            "longest_ms": figures.longest.as_secs_f64() * 1e3,
            "aborted": figures.aborted,
            "written_bytes": figures.bytes,
            "recoveries": figures.recoveries,
            "epoch": figures.last.map(|(epoch, _)| epoch.0),
            "counts_since_epoch": self.counts.since.map(|epoch| epoch.0),
            "began_from_epoch": figures.began_from.map(|epoch| epoch.0),
            "sinks_below_guarantee": below.collect::<Vec<_>>(),
        })
    }
}

fn plural(count: u64, of: &str) -> String {
    match count {
        1 => format!("1 {of}"),
        more => format!("{} {of}s", grouped(more)),
    }
}

/// Describes the effect of a failure on a sink.
fn in_words(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Nothing => "is for display only: the job's guarantee does not cover it",
        Delivery::AtLeastOnce => "may write records twice after a failure",
        Delivery::Idempotent => {
            "may write records again after a failure, without effect on the result"
        }
        Delivery::ExactlyOnce => "shows each record once",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn survived() -> CheckpointSummary {
        CheckpointSummary {
            figures: CheckpointStats {
                checkpoints: 12,
                longest: Duration::from_millis(34),
                recoveries: 1,
                ..CheckpointStats::default()
            },
            end: Some(JobEnd::Stopped),
            below: vec![("stdout".into(), Delivery::AtLeastOnce)],
            ..CheckpointSummary::default()
        }
    }

    #[test]
    fn people_get_a_line_and_one_for_each_sink_that_gives_less_than_is_promised() {
        assert_eq!(
            survived().to_text(),
            "  12 checkpoints, the longest took 34.0 ms; restarted 1 time; run again, it goes on from the last one\n  stdout may write records twice after a failure\n"
        );
    }

    #[test]
    fn programs_get_every_figure() {
        let value = survived().to_json();
        assert_eq!(value["recoveries"], 1);
        let below = json!([{ "vertex": "stdout", "delivery": "at-least-once" }]);
        assert_eq!(value["sinks_below_guarantee"], below);
    }
}
