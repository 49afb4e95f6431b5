//! Topologies that measure the latency of each stage: speed of light, a throughput test, and word
//! count. Each tuple has the time at which it was emitted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea::Result;
use ardea::topology::*;

/// The number of tuples and their total latency, by stage.
pub type StageLatencies = Arc<Mutex<BTreeMap<String, (u64, Duration)>>>;

/// The text of all messages.
const SENTENCE: &str = "to be or not to be that is the question";

/// The time since the first call, in nanoseconds.
fn now(begin: Instant) -> i64 {
    i64::try_from(begin.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// A spout that emits one message every interval.
struct Messages {
    begin: Instant,
    left: u64,
    interval: Duration,
}

impl Spout for Messages {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["text", "sent"])
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(Next::Done);
        };
        self.left = left;
        out.emit((SENTENCE, now(self.begin)))?;
        Ok(Next::Wait(self.interval))
    }
}

/// A stage that emits its messages, or their words, with the present time.
struct Stage {
    begin: Instant,
    name: String,
    splits: bool,
    tuples: u64,
    total: Duration,
    latencies: StageLatencies,
}

impl Bolt for Stage {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["text", "sent"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let took = now(self.begin).saturating_sub(tuple.int("sent")?);
        self.tuples += 1;
        self.total += Duration::from_nanos(took.unsigned_abs());
        let text = tuple.str("text")?;
        match self.splits {
            true => {
                for word in text.split(' ') {
                    out.emit((word, now(self.begin)))?;
                }
            }
            false => out.emit((text, now(self.begin)))?,
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Collector<'_>) -> Outcome {
        let mut all = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (tuples, total) = all.entry(self.name.clone()).or_default();
        *tuples += self.tuples;
        *total += self.total;
        Ok(())
    }
}

/// Returns the topology of this name: `sol` has five layers that pass messages on, `throughput` has
/// one, and `words` splits sentences and sends their words on by key.
///
/// # Errors
/// If the topology has another name.
pub fn measured(
    name: &str,
    (messages, interval): (u64, Duration),
    latencies: &StageLatencies,
) -> Result<Topology> {
    let stages: &[&str] = match name {
        "sol" => &["layer-1", "layer-2", "layer-3", "layer-4", "layer-5"],
        "throughput" => &["bolt"],
        "words" => &["split", "sum"],
        _ => {
            let what = format!("there is no topology {name:?}");
            let error = ardea::core::Error::new(ardea::core::ErrorCode::InvalidConfig, what);
            return Err(error.hint("name sol, throughput or words"));
        }
    };
    let begin = Instant::now();
    let mut topology = TopologyBuilder::new(name);
    topology.spout("source", 1, move || Messages {
        begin,
        left: messages,
        interval,
    });
    let mut before = "source";
    for stage in stages {
        let latencies = Arc::clone(latencies);
        let bolt = topology.bolt(stage, 2, move || Stage {
            begin,
            name: stage.to_string(),
            splits: *stage == "split",
            tuples: 0,
            total: Duration::ZERO,
            latencies: Arc::clone(&latencies),
        });
        match *stage {
            "sum" => bolt.fields(before, ["text"]),
            _ => bolt.shuffle(before),
        };
        before = stage;
    }
    topology.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuples(name: &str) -> Vec<(String, u64)> {
        let latencies = StageLatencies::default();
        let topology = measured(name, (20, Duration::ZERO), &latencies).unwrap();
        topology.run().unwrap();
        let latencies = latencies.lock().unwrap();
        let stages = latencies.iter();
        stages
            .map(|(name, (count, _))| (name.clone(), *count))
            .collect()
    }

    #[test]
    fn each_stage_measures_all_its_tuples() {
        assert_eq!(tuples("throughput"), [("bolt".into(), 20)]);
        let words = [("split".into(), 20), ("sum".into(), 200)];
        assert_eq!(tuples("words"), words);
        let layers = tuples("sol");
        assert_eq!(layers.len(), 5);
        assert!(layers.iter().all(|(_, count)| *count == 20));
    }

    #[test]
    fn another_name_is_refused() {
        let refused = measured("none", (1, Duration::ZERO), &StageLatencies::default());
        assert!(refused.is_err());
    }
}
