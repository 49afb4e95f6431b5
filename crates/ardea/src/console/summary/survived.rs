//! What surviving took, as a part of a job's summary.

use std::sync::Arc;

use ardea_checkpoint::local::{Figures, JobCounts, SurvivalEnd};
use ardea_core::Delivery;
use serde_json::{Value, json};

use crate::console::figures::{duration, grouped};

/// What surviving took, and what of the promise is not seen outside.
#[derive(Clone, Debug, Default)]
pub struct SurvivedSummary {
    pub figures: Figures,
    /// How the job has ended, if it has.
    pub end: Option<SurvivalEnd>,
    /// The sinks behind which less is seen than the job promises, and what they give.
    pub below: Vec<(Arc<str>, Delivery)>,
    /// Records counted over all attempts.
    pub counts: JobCounts,
    /// The part of them that earlier processes have counted.
    pub counts_before: JobCounts,
}

impl SurvivedSummary {
    /// Whether it was stopped so that it goes on when it is run again.
    pub fn was_stopped(&self) -> bool {
        self.end == Some(SurvivalEnd::Stopped)
    }

    /// For people: a line, and one for each sink that gives less than is promised.
    pub fn to_text(&self) -> String {
        let figures = &self.figures;
        let mut text = format!("  {}", plural(figures.snapshots, "snapshot"));
        if figures.snapshots > 0 {
            text += &format!(", the longest took {}", duration(figures.longest));
        }
        if figures.given_up > 0 {
            text += &format!(", {} given up", grouped(figures.given_up));
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

    /// For programs: one object.
    pub fn to_json(&self) -> Value {
        let figures = &self.figures;
        let below = self.below.iter().map(|(sink, delivery)| {
            json!({
                "vertex": &**sink,
                "delivery": delivery.as_str(),
            })
        });
        json!({
            "snapshots": figures.snapshots,
            "longest_ms": figures.longest.as_secs_f64() * 1e3,
            "given_up": figures.given_up,
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

/// What a sink does after a failure.
fn in_words(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Nothing => "is for looking: what it shows is not part of what the job promises",
        Delivery::AtLeastOnce => "writes again, after a failure, what comes again",
        Delivery::Idempotent => "writes some records again after a failure, which changes nothing",
        Delivery::ExactlyOnce => "shows each record once",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn survived() -> SurvivedSummary {
        SurvivedSummary {
            figures: Figures {
                snapshots: 12,
                longest: Duration::from_millis(34),
                recoveries: 1,
                ..Figures::default()
            },
            end: Some(SurvivalEnd::Stopped),
            below: vec![("stdout".into(), Delivery::AtLeastOnce)],
            ..SurvivedSummary::default()
        }
    }

    #[test]
    fn people_get_a_line_and_one_for_each_sink_that_gives_less_than_is_promised() {
        assert_eq!(
            survived().to_text(),
            "  12 snapshots, the longest took 34.0 ms; restarted 1 time; run again, it goes on from the last one\n  stdout writes again, after a failure, what comes again\n"
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
