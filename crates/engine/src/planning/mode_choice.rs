//! The choice of a job's execution mode.

use std::fmt;
use std::time::Duration;

use ardea_core::{Dag, Error, ErrorCode, Guarantee, Result};

use crate::{ExecutionMode, MicroBatchConfig, NodeConfig};

/// The execution mode of a job, with the reasons.
///
/// ```
/// use ardea_core::{Dag, Processor, Vertex, supplier};
/// use ardea_engine::{ExecutionMode, ModeChoice, NodeConfig};
///
/// struct Nothing;
/// impl Processor for Nothing {}
///
/// let mut dag = Dag::new();
/// dag.vertex(Vertex::new("dice", supplier(|| Nothing)).nondeterministic("it throws dice"));
/// let config = NodeConfig { mode: ExecutionMode::Auto, ..NodeConfig::default() };
/// let choice = ModeChoice::of(&dag, &config)?;
/// assert!(choice.to_string().contains("\"dice\" is not deterministic: it throws dice"));
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChoice {
    /// The configured mode.
    pub wanted: ExecutionMode,
    /// The micro-batches of the job; `None` if its records flow at once.
    pub batches: Option<MicroBatchConfig>,
    /// The reasons against micro-batches, each a sentence without a full stop. If micro-batches are
    /// configured, they are used in spite of these reasons.
    pub objections: Vec<String>,
}

impl ModeChoice {
    /// Chooses the mode of a job in one process.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if micro-batches have no length, or are to be recorded in a job
    /// without micro-batches.
    pub fn of(dag: &Dag, config: &NodeConfig) -> Result<Self> {
        let wanted = config.mode;
        let is_recorded = config.micro_batch.record.is_some();
        if is_recorded && wanted == ExecutionMode::Continuous {
            return Err(not_recorded("it has mode=continuous"));
        }
        let mut choice = ModeChoice {
            wanted,
            batches: None,
            objections: Vec::new(),
        };
        if wanted == ExecutionMode::Continuous {
            return Ok(choice);
        }
        config.micro_batch.check()?;
        choice.objections = nondeterministic_steps(dag);
        if wanted == ExecutionMode::Auto {
            let budget = latency_budget(dag, config.latency);
            let epoch = config.micro_batch.epoch;
            if epoch > budget {
                choice.objections.push(format!(
                    "a micro-batch takes {epoch:?}, and the latency budget is {budget:?}"
                ));
            }
        }
        let is_micro_batch = wanted == ExecutionMode::MicroBatch || choice.objections.is_empty();
        if is_recorded && !is_micro_batch {
            let reasons = choice.objections.join("; ");
            return Err(not_recorded(&format!(
                "mode=auto takes continuous: {reasons}"
            )));
        }
        choice.batches = is_micro_batch.then(|| config.micro_batch.clone());
        Ok(choice)
    }

    /// Returns the word for the chosen mode in settings.
    pub fn name(&self) -> &'static str {
        match self.batches {
            Some(_) => ExecutionMode::MicroBatch.name(),
            None => ExecutionMode::Continuous.name(),
        }
    }

    /// Chooses the mode of a job that is spread over several processes. Without a guarantee these
    /// do not return to a common state after the loss of one, so its micro-batch would never end.
    ///
    /// # Errors
    /// As [`of`](Self::of); [`ErrorCode::InvalidJob`] if micro-batches are configured without a
    /// guarantee, or are to be recorded.
    pub fn of_part(dag: &Dag, config: &NodeConfig, guarantee: Guarantee) -> Result<Self> {
        if config.micro_batch.record.is_some() {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "micro_batch.record is set, and micro-batches are recorded in one process only",
            )
            .hint("run the job without a cluster, or set micro_batch.record=off"));
        }
        let mut choice = ModeChoice::of(dag, config)?;
        if guarantee.keeps_state() {
            return Ok(choice);
        }
        if config.mode == ExecutionMode::MicroBatch {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "mode=micro-batch on a cluster requires a guarantee: a lost worker would hold the micro-batches of the others",
            )
            .hint("set guarantee=exactly-once or at-least-once, or mode=continuous"));
        }
        if choice.batches.take().is_some() {
            let why = "a job on a cluster without a guarantee goes on after the loss of a worker";
            choice.objections.push(why.into());
        }
        Ok(choice)
    }
}

/// Returns the error for a job without micro-batches that is to be recorded.
fn not_recorded(reason: &str) -> Error {
    let what = format!("micro_batch.record is set, and the job has no micro-batches: {reason}");
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("set mode=micro-batch, or micro_batch.record=off")
}

/// Returns an objection for each step that declares that it is not deterministic.
fn nondeterministic_steps(dag: &Dag) -> Vec<String> {
    let reasons = dag.vertices().iter().filter_map(|vertex| {
        let reason = vertex.nondeterminism()?;
        Some(format!(
            "{:?} is not deterministic: {reason}",
            vertex.name()
        ))
    });
    reasons.collect()
}

/// Returns the least latency budget of the job and its edges.
fn latency_budget(dag: &Dag, of_job: Duration) -> Duration {
    let own = dag.edges().iter().filter_map(|edge| edge.wanted_latency());
    own.fold(of_job, Duration::min)
}

impl fmt::Display for ModeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.batches {
            Some(batches) => {
                write!(f, "{}, {:?}", self.name(), batches.epoch)?;
                if let Some(records) = batches.records {
                    write!(f, " or {records} records of a source")?;
                }
                if let Some(folder) = &batches.record {
                    write!(f, ", recorded to {}", folder.display())?;
                }
            }
            None => f.write_str(self.name())?,
        }
        for objection in &self.objections {
            write!(f, "\n  {objection}")?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ardea_core::{Edge, Processor, Vertex, supplier};

    use super::*;

    struct Nothing;
    impl Processor for Nothing {}

    fn dag(own_latency: Option<Duration>, reason: Option<&str>) -> Dag {
        let mut dag = Dag::new();
        let from = dag.vertex(Vertex::new("from", supplier(|| Nothing)));
        let mut to = Vertex::new("to", supplier(|| Nothing));
        if let Some(reason) = reason {
            to = to.nondeterministic(reason);
        }
        let to = dag.vertex(to);
        dag.edge(Edge::between(from, to).latency(own_latency));
        dag
    }

    fn config(mode: ExecutionMode, latency: Duration) -> NodeConfig {
        NodeConfig {
            mode,
            latency,
            ..NodeConfig::default()
        }
    }

    #[test]
    fn auto_takes_micro_batches_if_no_step_and_no_budget_objects() {
        let [short, long] = [500, 20_000].map(Duration::from_micros);
        for (own, reason, latency, is_batch, objections) in [
            (None, None, long, true, 0),
            (None, None, short, false, 1),
            (Some(short), None, long, false, 1),
            (None, Some("it throws dice"), long, false, 1),
            (None, Some("it throws dice"), short, false, 2),
        ] {
            let config = config(ExecutionMode::Auto, latency);
            let choice = ModeChoice::of(&dag(own, reason), &config).unwrap();
            assert_eq!(choice.batches.is_some(), is_batch, "{choice}");
            assert_eq!(choice.objections.len(), objections, "{choice}");
        }
    }

    #[test]
    fn a_configured_mode_is_taken_and_the_steps_that_object_are_named() {
        let dag = dag(None, Some("it throws dice"));
        let choice = |mode| ModeChoice::of(&dag, &config(mode, Duration::ZERO)).unwrap();
        assert_eq!(choice(ExecutionMode::Continuous).to_string(), "continuous");
        let batches = choice(ExecutionMode::MicroBatch);
        assert!(batches.batches.is_some());
        assert_eq!(
            batches.to_string(),
            "micro-batch, 5ms\n  \"to\" is not deterministic: it throws dice"
        );
    }

    #[test]
    fn a_cluster_requires_a_guarantee_for_micro_batches() {
        let dag = dag(None, None);
        let choose = |mode, guarantee| {
            let config = config(mode, Duration::from_secs(1));
            ModeChoice::of_part(&dag, &config, guarantee)
        };
        let error = choose(ExecutionMode::MicroBatch, Guarantee::None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        let auto = choose(ExecutionMode::Auto, Guarantee::None).unwrap();
        assert!(
            auto.batches.is_none() && auto.objections.len() == 1,
            "{auto}"
        );
        let mut recorded = config(ExecutionMode::MicroBatch, Duration::ZERO);
        recorded.micro_batch.record = Some("recording".into());
        let error = ModeChoice::of_part(&dag, &recorded, Guarantee::ExactlyOnce).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        for mode in [ExecutionMode::Auto, ExecutionMode::MicroBatch] {
            let choice = choose(mode, Guarantee::AtLeastOnce).unwrap();
            assert!(choice.batches.is_some() && choice.objections.is_empty());
        }
    }

    #[test]
    fn micro_batches_without_length_are_refused() {
        let mut config = config(ExecutionMode::MicroBatch, Duration::ZERO);
        config.micro_batch.epoch = Duration::ZERO;
        let error = ModeChoice::of(&dag(None, None), &config).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }

    #[test]
    fn a_recording_without_micro_batches_is_refused() {
        for (mode, is_refused) in [
            (ExecutionMode::Continuous, true),
            (ExecutionMode::Auto, true),
            (ExecutionMode::MicroBatch, false),
        ] {
            let mut config = config(mode, Duration::ZERO);
            config.micro_batch.record = Some("recording".into());
            let choice = ModeChoice::of(&dag(None, None), &config);
            assert_eq!(choice.is_err(), is_refused, "{choice:?}");
        }
    }
}
