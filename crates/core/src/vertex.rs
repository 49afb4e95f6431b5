//! A node of the graph.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::ProcessorSupplier;

/// Which vertex of its graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VertexId(pub(crate) u32);

impl VertexId {
    /// The vertex at this position among its graph's vertices.
    pub const fn of_index(index: usize) -> Self {
        VertexId(index as u32)
    }

    /// Its position among the graph's vertices.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which input, or which output, of a vertex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ordinal(pub u16);

impl Ordinal {
    /// The first, often the only one.
    pub const FIRST: Ordinal = Ordinal(0);
    /// The second.
    pub const SECOND: Ordinal = Ordinal(1);

    /// As an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many instances a vertex has.
///
/// A plain number converts into it, so that `.parallelism(2)` does:
///
/// ```
/// use std::num::NonZeroU32;
/// use ardea_core::Parallelism;
///
/// assert_eq!(Parallelism::from(2), Parallelism::Exactly(NonZeroU32::new(2).unwrap()));
/// assert_eq!(Parallelism::from(0), Parallelism::Zero);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parallelism {
    /// As many as there are cooperative threads.
    Auto,
    /// That many.
    Exactly(NonZeroU32),
    /// No instance: the result of `Parallelism::from(0)`. [`Dag::validate`](crate::Dag::validate) refuses a graph that has it, and
    /// names the vertex.
    Zero,
}

impl Parallelism {
    /// A single instance.
    pub const ONE: Parallelism = Parallelism::Exactly(NonZeroU32::MIN);

    /// The number of instances, given the number of cooperative threads.
    pub fn resolve(self, threads: NonZeroU32) -> u32 {
        match self {
            Parallelism::Auto => threads.get(),
            Parallelism::Exactly(count) => count.get(),
            Parallelism::Zero => 0,
        }
    }
}

impl From<u32> for Parallelism {
    fn from(count: u32) -> Self {
        NonZeroU32::new(count).map_or(Parallelism::Zero, Parallelism::Exactly)
    }
}

impl From<NonZeroU32> for Parallelism {
    fn from(count: NonZeroU32) -> Self {
        Parallelism::Exactly(count)
    }
}

/// Where an instance runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// On a cooperative thread, with others; must not block.
    #[default]
    Tasklet,
    /// On a thread of its own; may block.
    Thread,
    /// In a process of its own, where the job runs on a cluster; embedded, on a thread of its own.
    Process,
}

/// What one instance of a vertex needs of the machine that it runs on, as far as somebody has said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Thousandths of a core.
    pub cpu_millicores: Option<u64>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Disk.
    pub disk_bytes: Option<u64>,
}

/// A node of the graph: a name, and the code of its instances.
#[derive(Clone)]
pub struct Vertex {
    pub(crate) name: Arc<str>,
    pub(crate) supplier: Arc<dyn ProcessorSupplier>,
    pub(crate) parallelism: Parallelism,
    pub(crate) isolation: Isolation,
    demand: Demand,
    most_instances: Option<NonZeroU32>,
    has_fixed_instances: bool,
    has_generated_name: bool,
}

impl Vertex {
    /// A vertex with a name that is unique in its graph.
    pub fn new(name: impl Into<Arc<str>>, supplier: Arc<dyn ProcessorSupplier>) -> Self {
        Vertex {
            name: name.into(),
            supplier,
            parallelism: Parallelism::Auto,
            isolation: Isolation::Tasklet,
            demand: Demand::default(),
            most_instances: None,
            has_fixed_instances: false,
            has_generated_name: false,
        }
    }

    /// Says whether nobody chose its name, or the name of the step that it is a part of, so that who shows a job to people may
    /// leave it out.
    pub fn generated_name(mut self, is_generated: bool) -> Self {
        self.has_generated_name = is_generated;
        self
    }

    /// Sets how many instances run.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Sets where the instances run.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets what each instance needs of its machine.
    pub fn demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }

    /// Sets how many instances its processors can be of at most, so that more are refused before they are started.
    pub fn most_instances(mut self, most: NonZeroU32) -> Self {
        self.most_instances = Some(most);
        self
    }

    /// Says whether the number of its instances stays as it was when the job began. So it is where each of them has a share of one
    /// input that depends on how many they are: those that run would keep theirs, and nobody would read the rest.
    pub fn fixed_instances(mut self, are_fixed: bool) -> Self {
        self.has_fixed_instances = are_fixed;
        self
    }

    /// Whether the number of its instances stays as it was when the job began.
    pub fn has_fixed_instances(&self) -> bool {
        self.has_fixed_instances
    }

    /// Whether nobody chose its name: it was made from the kind of step, as in `map-2`, or from the step's name for the first of
    /// its two stages, as in `counts: partial`. Says nothing of sources and sinks, which bring a name along that somebody may have
    /// chosen.
    pub fn has_generated_name(&self) -> bool {
        self.has_generated_name
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What makes the instances' processors.
    pub fn supplier(&self) -> &Arc<dyn ProcessorSupplier> {
        &self.supplier
    }

    /// How many instances run, as asked for.
    pub fn wanted_parallelism(&self) -> Parallelism {
        self.parallelism
    }

    /// The most instances that it can have, if its processors know of a limit.
    pub fn instance_limit(&self) -> Option<NonZeroU32> {
        self.most_instances
    }

    /// What each instance needs of its machine.
    pub fn wanted_demand(&self) -> Demand {
        self.demand
    }

    /// Where the instances run.
    pub fn wanted_isolation(&self) -> Isolation {
        self.isolation
    }
}

impl fmt::Debug for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Vertex({}, {:?}, {:?})",
            self.name, self.parallelism, self.isolation
        )
    }
}
