//! Typed descriptions of sources and sinks.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::delivery::WithDelivery;
use crate::file_use::WithFiles;
use crate::{Delivery, Demand, FileUse, Isolation, Key, Parallelism, ProcessorSupplier, Routing};

/// A source of records of type `T`: the description of a vertex without inputs.
///
/// `B` is [`Bounded`](crate::Bounded) if the source ends by itself, otherwise
/// [`Unbounded`](crate::Unbounded).
pub struct Source<T, B> {
    name: String,
    supplier: Arc<dyn ProcessorSupplier>,
    parallelism: Parallelism,
    isolation: Isolation,
    demand: Demand,
    is_repeatable: bool,
    kind: PhantomData<fn() -> (T, B)>,
}

/// A sink for records of type `T`: the description of a vertex without outputs.
pub struct Sink<T> {
    name: String,
    supplier: Arc<dyn ProcessorSupplier>,
    parallelism: Parallelism,
    isolation: Isolation,
    demand: Demand,
    routing: Option<Routing>,
    is_repeatable: bool,
    kind: PhantomData<fn(T)>,
}

/// The methods that sources and sinks share.
macro_rules! described {
    ($what:ident<$($of:ident),+> $(, $field:ident: $nothing:expr)*) => {
        impl<$($of),+> $what<$($of),+> {
            /// Creates a description with one instance on a cooperative thread.
            pub fn new(name: impl Into<String>, supplier: Arc<dyn ProcessorSupplier>) -> Self {
                $what {
                    name: name.into(),
                    supplier,
                    parallelism: Parallelism::ONE,
                    isolation: Isolation::Tasklet,
                    demand: Demand::default(),
                    $($field: $nothing,)*
                    kind: PhantomData,
                }
            }

            /// Sets the parallelism: a number, or a [`Parallelism`].
            pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
                self.parallelism = parallelism.into();
                self
            }

            /// Sets the kind of thread that runs the instances; instances that block need a thread
            /// each.
            pub fn isolation(mut self, isolation: Isolation) -> Self {
                self.isolation = isolation;
                self
            }

            /// Sets the resources that each instance requires on a cluster.
            pub fn demand(mut self, demand: Demand) -> Self {
                self.demand = demand;
                self
            }

            /// Returns the resources that each instance requires.
            pub fn wanted_demand(&self) -> Demand {
                self.demand
            }

            /// Sets the name of the vertex.
            pub fn named(mut self, name: impl Into<String>) -> Self {
                self.name = name.into();
                self
            }

            /// Declares the files that the processors will read or write, so that a job that would
            /// overwrite its input is refused. `files` is called with the parallelism when a job
            /// starts; see [`ProcessorSupplier::files`].
            pub fn using_files(
                mut self,
                files: impl Fn(u32) -> Vec<FileUse> + Send + Sync + 'static,
            ) -> Self {
                let supplier = self.supplier;
                self.supplier = Arc::new(WithFiles { supplier, files });
                self
            }

            /// Declares that one instance can be restored from a checkpoint while the others
            /// continue: see [`Vertex::repeatable`](crate::Vertex::repeatable).
            pub fn repeatable(mut self) -> Self {
                self.is_repeatable = true;
                self
            }

            /// Returns true if one instance can be restored while the others continue.
            pub fn is_repeatable(&self) -> bool {
                self.is_repeatable
            }

            /// Returns the parts: name, supplier, parallelism, isolation.
            pub fn into_parts(
                self,
            ) -> (String, Arc<dyn ProcessorSupplier>, Parallelism, Isolation) {
                (self.name, self.supplier, self.parallelism, self.isolation)
            }
        }

        impl<$($of),+> fmt::Debug for $what<$($of),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({}, {:?})", stringify!($what), self.name, self.parallelism)
            }
        }
    };
}

described!(Source<T, B>, is_repeatable: false);
described!(Sink<T>, routing: None, is_repeatable: false);

impl<T> Sink<T> {
    /// Declares the strongest delivery guarantee of this sink; unknown by default. If a job's
    /// guarantee is stronger, the summary of the job names the sink.
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        let supplier = self.supplier;
        self.supplier = Arc::new(WithDelivery { supplier, delivery });
        self
    }

    /// Partitions the input of the sink by key: all records of a key reach one instance, in the
    /// order in which an instance of the previous step sent them. Use it for sinks in which a later
    /// record replaces an earlier one.
    ///
    /// By default records are forwarded directly if both steps have the same parallelism, and
    /// otherwise distributed over all instances.
    pub fn keyed<K: Key>(mut self, key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + 'static,
    {
        self.routing = Some(Routing::keyed(key));
        self
    }

    /// Returns the routing that the sink requires, if any.
    pub fn wanted_routing(&self) -> Option<&Routing> {
        self.routing.as_ref()
    }
}
