//! The stages of a micro-batch, and the exchanges between them.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// The largest number of partition ranges of all stages together.
pub(super) const MAX_RANGES: u32 = 1 << 20;

/// The number of a stage in its [`StageGraph`], from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageId(pub u16);

impl StageId {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The structure of an exchange: the producer ranges for which a consumer range waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StageExchange {
    /// Each consumer waits for all producers.
    Shuffle,
    /// Consumer *i* waits for producer *i*.
    Forward,
    /// Consumer *i* waits for the producers *arity · i* to *arity · i + arity − 1*: one level of a
    /// tree reduction.
    Tree {
        /// The number of producers of a consumer.
        arity: u16,
    },
    /// Each consumer waits for the only producer.
    Broadcast,
}

impl StageExchange {
    /// Returns the producers for which the consumer `range` waits: the first, and their number.
    pub fn producers_of(self, range: u32, producers: u32) -> (u32, u32) {
        match self {
            StageExchange::Shuffle => (0, producers),
            StageExchange::Forward => (range, 1),
            StageExchange::Tree { arity } => {
                let first = range.saturating_mul(u32::from(arity));
                (first, producers.saturating_sub(first).min(u32::from(arity)))
            }
            StageExchange::Broadcast => (0, 1),
        }
    }

    /// Returns the only consumer of the producer `range`, if its output is not for several.
    pub fn only_consumer_of(self, range: u32) -> Option<u32> {
        match self {
            StageExchange::Shuffle | StageExchange::Broadcast => None,
            StageExchange::Forward => Some(range),
            StageExchange::Tree { arity } => range.checked_div(u32::from(arity)),
        }
    }

    /// Returns true if `producers` ranges can feed `consumers` ranges.
    fn fits(self, producers: u32, consumers: u32) -> bool {
        match self {
            StageExchange::Shuffle => true,
            StageExchange::Forward => producers == consumers,
            StageExchange::Tree { arity } => {
                arity >= 2 && producers.div_ceil(u32::from(arity)) == consumers
            }
            StageExchange::Broadcast => producers == 1,
        }
    }
}

/// An input of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StageInput {
    /// The producing stage, which has a lower number.
    pub from: StageId,
    /// The structure of the exchange.
    pub exchange: StageExchange,
}

/// A stage of micro-batches. Its work in one of them is one task for each partition range.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchStage {
    /// The number of partition ranges.
    pub ranges: u32,
    /// The inputs; a stage without inputs is a source.
    pub inputs: Vec<StageInput>,
    /// True if a task is a pure function of its inputs and its state. The loss of a task of another
    /// stage rolls the job back.
    pub is_deterministic: bool,
}

impl BatchStage {
    /// Creates a deterministic source.
    pub fn source(ranges: u32) -> Self {
        BatchStage {
            ranges,
            inputs: Vec::new(),
            is_deterministic: true,
        }
    }

    /// Creates a deterministic stage with one input.
    pub fn after(from: StageId, exchange: StageExchange, ranges: u32) -> Self {
        BatchStage {
            ranges,
            inputs: vec![StageInput { from, exchange }],
            is_deterministic: true,
        }
    }
}

/// The stages of a micro-batch in topological order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Vec<BatchStage>", try_from = "Vec<BatchStage>")]
pub struct StageGraph(Vec<BatchStage>);

impl StageGraph {
    /// Creates the graph of these stages.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no stage, a stage has no range, all stages together
    /// have too many, an input is not of an earlier stage or occurs twice, or numbers of ranges do
    /// not fit an exchange.
    pub fn new(stages: Vec<BatchStage>) -> Result<Self> {
        if stages.is_empty() || stages.len() > usize::from(u16::MAX) {
            return Err(invalid(format!("it has {} stages", stages.len())));
        }
        let total: u64 = stages.iter().map(|stage| u64::from(stage.ranges)).sum();
        if total > u64::from(MAX_RANGES) {
            let why = format!("{total} partition ranges are more than {MAX_RANGES}");
            return Err(invalid(why));
        }
        for (number, stage) in stages.iter().enumerate() {
            if stage.ranges == 0 {
                return Err(invalid(format!("stage {number} has no partition range")));
            }
            for (position, input) in stage.inputs.iter().enumerate() {
                let from = input.from.0;
                if input.from.index() >= number {
                    return Err(invalid(format!("stage {number} reads from stage {from}")));
                }
                let before = &stage.inputs[..position];
                if before.iter().any(|other| other.from == input.from) {
                    let why = format!("stage {number} reads twice from stage {from}");
                    return Err(invalid(why));
                }
                let producers = stages[input.from.index()].ranges;
                if !input.exchange.fits(producers, stage.ranges) {
                    return Err(invalid(format!(
                        "{:?} from the {producers} ranges of stage {from} does not fit the {} of stage {number}",
                        input.exchange, stage.ranges
                    )));
                }
            }
        }
        Ok(StageGraph(stages))
    }

    /// Returns the stages in topological order.
    pub fn stages(&self) -> &[BatchStage] {
        &self.0
    }

    /// Returns the stages with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (StageId, &BatchStage)> {
        (0..).map(StageId).zip(&self.0)
    }

    /// Returns the stage; `None` if the graph has no such stage.
    pub fn stage(&self, id: StageId) -> Option<&BatchStage> {
        self.0.get(id.index())
    }

    /// Returns the last stage.
    pub fn last(&self) -> StageId {
        StageId(u16::try_from(self.0.len().saturating_sub(1)).unwrap_or(u16::MAX))
    }

    /// Returns the consumers of a stage, with their exchanges.
    pub fn consumers(&self, of: StageId) -> impl Iterator<Item = (StageId, StageExchange)> {
        self.numbered().flat_map(move |(id, stage)| {
            let inputs = stage.inputs.iter().filter(move |input| input.from == of);
            inputs.map(move |input| (id, input.exchange))
        })
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorCode::InvalidJob, "invalid stages of micro-batches").because(why)
}

impl From<StageGraph> for Vec<BatchStage> {
    fn from(graph: StageGraph) -> Self {
        graph.0
    }
}

impl TryFrom<Vec<BatchStage>> for StageGraph {
    type Error = Error;

    fn try_from(stages: Vec<BatchStage>) -> Result<Self> {
        StageGraph::new(stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(stages: Vec<BatchStage>) -> bool {
        let refused = StageGraph::new(stages);
        refused.is_err_and(|error| error.code() == ErrorCode::InvalidJob)
    }

    #[test]
    fn a_graph_with_a_wrong_structure_is_refused() {
        let after = BatchStage::after;
        assert!(is_refused(Vec::new()));
        assert!(is_refused(vec![BatchStage::source(0)]));
        assert!(is_refused(vec![BatchStage::source(MAX_RANGES / 2 + 1); 2]));
        assert!(is_refused(vec![after(
            StageId(0),
            StageExchange::Shuffle,
            1
        )]));
        let two =
            |exchange, ranges| vec![BatchStage::source(4), after(StageId(0), exchange, ranges)];
        assert!(is_refused(two(StageExchange::Forward, 3)));
        assert!(is_refused(two(StageExchange::Tree { arity: 2 }, 3)));
        assert!(is_refused(two(StageExchange::Tree { arity: 0 }, 4)));
        assert!(is_refused(two(StageExchange::Broadcast, 4)));
        assert!(StageGraph::new(two(StageExchange::Tree { arity: 2 }, 2)).is_ok());
        let mut twice = two(StageExchange::Shuffle, 2);
        let input = twice[1].inputs[0];
        twice[1].inputs.push(input);
        assert!(is_refused(twice));
    }

    #[test]
    fn a_range_of_a_tree_waits_for_its_own_producers_only() {
        let tree = StageExchange::Tree { arity: 2 };
        assert_eq!(tree.producers_of(3, 16), (6, 2));
        assert_eq!(tree.producers_of(2, 5), (4, 1));
        assert_eq!(tree.only_consumer_of(7), Some(3));
        assert_eq!(StageExchange::Shuffle.producers_of(3, 16), (0, 16));
        assert_eq!(StageExchange::Broadcast.producers_of(3, 1), (0, 1));
    }
}
