//! Typed descriptions of where records come from and go to.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::delivery::Delivering;
use crate::file_use::UsingFiles;
use crate::{Delivery, Demand, FileUse, Isolation, Key, Parallelism, ProcessorSupplier, Routing};

/// A source of records of type `T`: a vertex without inputs, described but not yet running.
///
/// `B` says whether it ends by itself ([`Bounded`](crate::Bounded)) or not ([`Unbounded`](crate::Unbounded)).
pub struct Source<T, B> {
    name: String,
    supplier: Arc<dyn ProcessorSupplier>,
    parallelism: Parallelism,
    isolation: Isolation,
    demand: Demand,
    kind: PhantomData<fn() -> (T, B)>,
}

/// A sink for records of type `T`: a vertex without outputs, described but not yet running.
pub struct Sink<T> {
    name: String,
    supplier: Arc<dyn ProcessorSupplier>,
    parallelism: Parallelism,
    isolation: Isolation,
    demand: Demand,
    routing: Option<Routing>,
    kind: PhantomData<fn(T)>,
}

/// How a vertex at either end of a pipeline is described.
macro_rules! described {
    ($what:ident<$($of:ident),+> $(, $field:ident: $nothing:expr)?) => {
        impl<$($of),+> $what<$($of),+> {
            /// With one instance, on a cooperative thread.
            pub fn new(name: impl Into<String>, supplier: Arc<dyn ProcessorSupplier>) -> Self {
                $what {
                    name: name.into(),
                    supplier,
                    parallelism: Parallelism::ONE,
                    isolation: Isolation::Tasklet,
                    demand: Demand::default(),
                    $($field: $nothing,)?
                    kind: PhantomData,
                }
            }

            /// Sets how many instances there are: a number, or a [`Parallelism`].
            pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
                self.parallelism = parallelism.into();
                self
            }

            /// Sets where the instances run; one that blocks needs a thread.
            pub fn isolation(mut self, isolation: Isolation) -> Self {
                self.isolation = isolation;
                self
            }

            /// Sets what each instance needs of its machine, where the job runs on a cluster.
            pub fn demand(mut self, demand: Demand) -> Self {
                self.demand = demand;
                self
            }

            /// What each instance needs of its machine.
            pub fn wanted_demand(&self) -> Demand {
                self.demand
            }

            /// Sets the name of the vertex.
            pub fn named(mut self, name: impl Into<String>) -> Self {
                self.name = name.into();
                self
            }

            /// Says which files its processors will read or write, so that a job that would overwrite what it reads is refused.
            /// Asked when a job starts, with the number of instances; see [`ProcessorSupplier::files`].
            pub fn using_files(
                mut self,
                files: impl Fn(u32) -> Vec<FileUse> + Send + Sync + 'static,
            ) -> Self {
                let supplier = self.supplier;
                self.supplier = Arc::new(UsingFiles { supplier, files });
                self
            }

            /// The parts: name, supplier, parallelism, isolation.
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

described!(Source<T, B>);
described!(Sink<T>, routing: None);

impl<T> Sink<T> {
    /// Says what it gives at best, for the summary of a job that promises more. Not said, it is not known.
    pub fn delivering(mut self, delivery: Delivery) -> Self {
        let supplier = self.supplier;
        self.supplier = Arc::new(Delivering { supplier, delivery });
        self
    }

    /// Has all records of a key come over one instance, in the order in which an instance of the step before has sent them, however many instances there are: for sinks where
    /// a later record takes the place of an earlier one. Not said, records go straight on where both steps have as many instances, and to any instance else.
    pub fn keyed<K: Key>(mut self, key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + 'static,
    {
        self.routing = Some(Routing::keyed(key));
        self
    }

    /// How records come to it, if that matters.
    pub fn wanted_routing(&self) -> Option<&Routing> {
        self.routing.as_ref()
    }
}
