//! The vertices of the graph.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::ProcessorSupplier;

/// The id of a vertex in its graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VertexId(pub(crate) u32);

impl VertexId {
    /// Returns the id of the vertex at this position among its graph's vertices.
    pub const fn of_index(index: usize) -> Self {
        VertexId(index as u32)
    }

    /// Returns the position among the graph's vertices.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of an input, or of an output, of a vertex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ordinal(pub u16);

impl Ordinal {
    /// The first input or output.
    pub const FIRST: Ordinal = Ordinal(0);
    /// The second input or output.
    pub const SECOND: Ordinal = Ordinal(1);

    /// Returns the ordinal as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of instances of a vertex.
///
/// A number converts into it, so `.parallelism(2)` works:
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
    /// Exactly this number.
    Exactly(NonZeroU32),
    /// No instance: the result of `Parallelism::from(0)`. [`Dag::validate`](crate::Dag::validate)
    /// refuses it with an error that names the vertex.
    Zero,
}

impl Parallelism {
    /// A single instance.
    pub const ONE: Parallelism = Parallelism::Exactly(NonZeroU32::MIN);

    /// Returns the number of instances, given the number of cooperative threads.
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

/// The kind of thread or process that runs an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// On a cooperative thread, with others; must not block.
    #[default]
    Tasklet,
    /// On a dedicated thread; may block.
    Thread,
    /// In a dedicated process if the job runs on a cluster; embedded, on a dedicated thread.
    Process,
}

/// The resources that one instance of a vertex requires; `None` if not specified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// CPU in thousandths of a core.
    pub cpu_millicores: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Disk space in bytes.
    pub disk_bytes: Option<u64>,
}

/// A vertex of the graph: a name, and the code of its instances.
#[derive(Clone)]
pub struct Vertex {
    pub(crate) name: Arc<str>,
    pub(crate) supplier: Arc<dyn ProcessorSupplier>,
    pub(crate) parallelism: Parallelism,
    pub(crate) isolation: Isolation,
    demand: Demand,
    max_instances: Option<NonZeroU32>,
    has_fixed_parallelism: bool,
    has_generated_name: bool,
    nondeterminism: Option<Arc<str>>,
    is_repeatable: bool,
}

impl Vertex {
    /// Creates a vertex; the name must be unique in its graph.
    pub fn new(name: impl Into<Arc<str>>, supplier: Arc<dyn ProcessorSupplier>) -> Self {
        Vertex {
            name: name.into(),
            supplier,
            parallelism: Parallelism::Auto,
            isolation: Isolation::Tasklet,
            demand: Demand::default(),
            max_instances: None,
            has_fixed_parallelism: false,
            has_generated_name: false,
            nondeterminism: None,
            is_repeatable: false,
        }
    }

    /// Sets whether the name, or that of the step that contains this vertex, was generated, so that
    /// displays may omit it.
    pub fn generated_name(mut self, is_generated: bool) -> Self {
        self.has_generated_name = is_generated;
        self
    }

    /// Sets the parallelism.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Replaces the code of the instances.
    pub fn with_supplier(mut self, supplier: Arc<dyn ProcessorSupplier>) -> Self {
        self.supplier = supplier;
        self
    }

    /// Sets the kind of thread or process that runs the instances.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets the resources that each instance requires.
    pub fn demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }

    /// Declares that the output does not follow from the inputs alone, with the reason: `it reads
    /// the wall clock`. Sources need no declaration, since their output is the input of the job.
    pub fn nondeterministic(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.nondeterminism = Some(reason.into());
        self
    }

    /// Returns the reason why the output does not follow from the inputs alone, if declared.
    pub fn nondeterminism(&self) -> Option<&Arc<str>> {
        self.nondeterminism.as_ref()
    }

    /// Declares whether one instance can be restored from a checkpoint while the others continue.
    ///
    /// A repeatable instance that gets the input after the checkpoint again writes the same records
    /// and watermarks in each micro-batch. Neither the clock nor the division into chunks changes
    /// them. A repeatable sink undoes only output of its own instance.
    ///
    /// A repeatable source has one output. It emits the same records in the same order again, from
    /// the position in a checkpoint on, and no watermarks. It never exceeds the room of its outbox.
    /// The runtime repeats the division into micro-batches.
    pub fn repeatable(mut self, is_repeatable: bool) -> Self {
        self.is_repeatable = is_repeatable;
        self
    }

    /// Returns true if one instance can be restored while the others continue.
    pub fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// Sets the maximum number of instances, so that a larger parallelism is refused before the
    /// start.
    pub fn max_instances(mut self, most: NonZeroU32) -> Self {
        self.max_instances = Some(most);
        self
    }

    /// Sets whether the parallelism is fixed when the job starts. Required if each instance has a
    /// share of one input that depends on the parallelism: running instances would keep their share
    /// after a rescale, and the rest would be unread.
    pub fn fixed_parallelism(mut self, are_fixed: bool) -> Self {
        self.has_fixed_parallelism = are_fixed;
        self
    }

    /// Returns true if the parallelism is fixed when the job starts.
    pub fn has_fixed_parallelism(&self) -> bool {
        self.has_fixed_parallelism
    }

    /// Returns true if the name was generated from the kind of step, as in `map-2`, or from the
    /// step's name for the first of its two stages, as in `counts: partial`. Always false for
    /// sources and sinks, which have names of their own that the user may have set.
    pub fn has_generated_name(&self) -> bool {
        self.has_generated_name
    }

    /// Returns the name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the supplier of the instances' processors.
    pub fn supplier(&self) -> &Arc<dyn ProcessorSupplier> {
        &self.supplier
    }

    /// Returns the requested parallelism.
    pub fn wanted_parallelism(&self) -> Parallelism {
        self.parallelism
    }

    /// Returns the maximum number of instances, if limited.
    pub fn instance_limit(&self) -> Option<NonZeroU32> {
        self.max_instances
    }

    /// Returns the resources that each instance requires.
    pub fn wanted_demand(&self) -> Demand {
        self.demand
    }

    /// Returns the kind of thread or process that runs the instances.
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
