//! What is known of a spout or bolt before it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Demand, Instance, Isolation, Processor, Result};

use crate::compile::{BoltWiring, SpoutWiring};
use crate::grouping::Grouping;
use crate::outputs::Outputs;

/// A spout or bolt as it was described.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) name: Arc<str>,
    pub(crate) parallelism: u32,
    pub(crate) isolation: Isolation,
    pub(crate) wants: Wants,
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<Subscription>,
    pub(crate) tick: Option<Duration>,
    /// Where it stands in the file that describes it, if one does.
    pub(crate) line: Option<u64>,
}

impl Component {
    pub(crate) fn is_spout(&self) -> bool {
        matches!(self.kind, Kind::Spout(_))
    }
}

/// What each instance of a component wants of its machine, as it was written.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
}

impl Wants {
    /// The fewest cores that can be asked for, and the most.
    pub(crate) const CORES: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

    /// As the graph says it; the cores are within the limits.
    pub(crate) fn demand(&self) -> Demand {
        Demand {
            cpu_millicores: self.cpu_cores.map(|cores| (cores * 1000.0).round() as u64),
            memory_bytes: self.memory_bytes,
            disk_bytes: self.disk_bytes,
        }
    }
}

/// That a bolt reads a stream.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) component: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) grouping: Grouping,
    /// Where it stands in the file that describes it, if one does.
    pub(crate) line: Option<u64>,
}

/// What a component is, and what makes its instances.
#[derive(Clone)]
pub(crate) enum Kind {
    Spout(Arc<dyn Make<SpoutWiring>>),
    Bolt(Arc<dyn Make<BoltWiring>>),
}

impl Kind {
    /// The streams that an instance says it emits.
    pub(crate) fn outputs(&self) -> Result<Outputs> {
        match self {
            Kind::Spout(make) => make.outputs(),
            Kind::Bolt(make) => make.outputs(),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Spout(_) => "spout",
            Kind::Bolt(_) => "bolt",
        })
    }
}

/// Makes the instances of a component; erases what type they are.
pub(crate) trait Make<W>: Send + Sync {
    /// The streams that an instance says it emits.
    fn outputs(&self) -> Result<Outputs>;

    /// Whether it stays at as many instances as it had when the topology began.
    fn has_fixed_instances(&self) -> bool {
        false
    }

    /// The processor around a new instance.
    fn processor(&self, wiring: &Arc<W>, instance: Instance) -> Result<Box<dyn Processor>>;
}
