//! The description of spouts and bolts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Demand, Instance, Isolation, Processor, Result};
use ardea_instance::GuestInstance;

use crate::compile::{BoltWiring, SpoutWiring};
use crate::grouping::Grouping;
use crate::guest::{GuestWiring, ProgramProcess};
use crate::outputs::Outputs;
use crate::process::ComponentTraits;

/// The description of a spout or bolt.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) name: Arc<str>,
    pub(crate) parallelism: u32,
    pub(crate) isolation: Isolation,
    pub(crate) wants: ResourceRequirements,
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<Subscription>,
    pub(crate) tick: Option<Duration>,
    /// The line of the description in a topology file; `None` without a file.
    pub(crate) line: Option<u64>,
    /// The processes of this program that run the instances on a cluster, if the component is
    /// isolated by them.
    pub(crate) own_process: Option<ProgramProcess>,
}

impl Component {
    pub(crate) fn is_spout(&self) -> bool {
        matches!(self.kind, Kind::Spout(_))
    }
}

/// The resources that each instance of a component needs, as written.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ResourceRequirements {
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
}

impl ResourceRequirements {
    /// The minimum and maximum number of cores.
    pub(crate) const CORES: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

    /// Converts the requirements to the demand of a vertex. The cores must be within `CORES`.
    pub(crate) fn demand(&self) -> Demand {
        Demand {
            cpu_millicores: self.cpu_cores.map(|cores| (cores * 1000.0).round() as u64),
            memory_bytes: self.memory_bytes,
            disk_bytes: self.disk_bytes,
        }
    }
}

/// A subscription of a bolt to a stream.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) component: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) grouping: Grouping,
    /// The latency budget of the edge, if it has its own.
    pub(crate) latency: Option<Duration>,
    /// The line of the description in a topology file; `None` without a file.
    pub(crate) line: Option<u64>,
}

/// The kind of a component, with the factory of its instances.
#[derive(Clone)]
pub(crate) enum Kind {
    Spout(Arc<dyn ComponentFactory<SpoutWiring>>),
    Bolt(Arc<dyn ComponentFactory<BoltWiring>>),
}

impl Kind {
    /// Returns the streams that an instance declares.
    pub(crate) fn outputs(&self) -> Result<Outputs> {
        match self {
            Kind::Spout(make) => make.outputs(),
            Kind::Bolt(make) => make.outputs(),
        }
    }

    /// Returns true if each instance is a process in any case.
    pub(crate) fn is_process(&self) -> bool {
        match self {
            Kind::Spout(make) => make.is_process(),
            Kind::Bolt(make) => make.is_process(),
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

/// A factory of a component's instances, which erases their type.
pub(crate) trait ComponentFactory<W>: Send + Sync {
    /// Returns the streams that an instance declares.
    fn outputs(&self) -> Result<Outputs>;

    /// Returns true if the component's parallelism can't be changed while the topology runs.
    fn has_fixed_instances(&self) -> bool {
        false
    }

    /// Returns the processor of a new instance.
    fn processor(&self, wiring: &Arc<W>, instance: Instance) -> Result<Box<dyn Processor>>;

    /// Returns true if each instance is a process in any case.
    fn is_process(&self) -> bool {
        false
    }

    /// Returns the properties that the host of an instance in a process of its own needs.
    fn traits(&self) -> Result<ComponentTraits>;

    /// Returns a new instance that is served to its host.
    fn guest(&self, wiring: GuestWiring) -> Result<Box<dyn GuestInstance>>;
}
