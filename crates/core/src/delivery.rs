//! What a sink gives of what a job promises.

use std::fmt;
use std::sync::Arc;

use crate::{Dag, FileUse, Guarantee, Instance, Processor, ProcessorSupplier, Result};

/// What a sink gives, at best, in a job that keeps its state: how often what is behind it sees each record when something fails.
///
/// A job's [`Guarantee`] is about its state. What is seen outside depends on the sink as well: one that writes at once writes
/// again what comes again.
///
/// ```
/// use ardea_core::{Delivery, Guarantee};
///
/// assert!(Delivery::ExactlyOnce.keeps(Guarantee::ExactlyOnce));
/// assert!(!Delivery::AtLeastOnce.keeps(Guarantee::ExactlyOnce));
/// assert!(Delivery::AtLeastOnce.keeps(Guarantee::AtLeastOnce));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Delivery {
    /// Nothing that counts: it is for the eye, or for measurements.
    Nothing,
    /// Each record, some again after a failure.
    AtLeastOnce,
    /// Each record, some again after a failure, and that changes nothing: writing a record twice is as writing it once.
    Idempotent,
    /// Each record once: what belongs to an epoch is seen when that is committed.
    ExactlyOnce,
}

impl Delivery {
    /// Whether what is behind the sink sees what the job promises.
    pub const fn keeps(self, promised: Guarantee) -> bool {
        match promised {
            Guarantee::None => true,
            Guarantee::AtLeastOnce => !matches!(self, Delivery::Nothing),
            Guarantee::ExactlyOnce => matches!(self, Delivery::Idempotent | Delivery::ExactlyOnce),
        }
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Delivery::Nothing => "nothing",
            Delivery::AtLeastOnce => "at-least-once",
            Delivery::Idempotent => "idempotent",
            Delivery::ExactlyOnce => "exactly-once",
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Dag {
    /// The sinks behind which is seen less than the job promises, by name, and what they give; those that don't say are left out. For the
    /// summary of a job.
    pub fn sinks_below(&self, promised: Guarantee) -> Vec<(Arc<str>, Delivery)> {
        let given = self.vertices().iter().filter_map(|vertex| {
            let delivery = vertex.supplier().delivery()?;
            Some((Arc::clone(vertex.name()), delivery))
        });
        given
            .filter(|(_, delivery)| !delivery.keeps(promised))
            .collect()
    }
}

/// Supplies what another supplies, and says what that gives.
pub(crate) struct Delivering {
    pub(crate) supplier: Arc<dyn ProcessorSupplier>,
    pub(crate) delivery: Delivery,
}

impl ProcessorSupplier for Delivering {
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        self.supplier.supply(instance)
    }

    fn files(&self, parallelism: u32) -> Vec<FileUse> {
        self.supplier.files(parallelism)
    }

    fn delivery(&self) -> Option<Delivery> {
        Some(self.delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sink, Vertex, supplier};

    struct Drops;
    impl Processor for Drops {}

    #[test]
    fn a_sink_says_what_it_gives_also_if_it_uses_files() {
        let of = |sink: Sink<u8>| sink.into_parts().1.delivery();
        let sink = || Sink::new("s", supplier(|| Drops));
        assert_eq!(of(sink()), None);
        let said = sink().delivering(Delivery::Idempotent);
        assert_eq!(of(said), Some(Delivery::Idempotent));
        let said = sink().delivering(Delivery::ExactlyOnce);
        assert_eq!(
            of(said.using_files(|_| Vec::new())),
            Some(Delivery::ExactlyOnce)
        );
    }

    #[test]
    fn sinks_that_give_less_than_is_promised_are_known_by_name() {
        let mut dag = Dag::new();
        for (name, delivery) in [
            ("files", Some(Delivery::ExactlyOnce)),
            ("screen", Some(Delivery::Nothing)),
            ("lines", Some(Delivery::AtLeastOnce)),
            ("own", None),
        ] {
            let mut sink = Sink::<u8>::new(name, supplier(|| Drops));
            if let Some(delivery) = delivery {
                sink = sink.delivering(delivery);
            }
            let (name, supplier, ..) = sink.into_parts();
            dag.vertex(Vertex::new(name, supplier));
        }
        let below = |promised| -> Vec<_> {
            let sinks = dag.sinks_below(promised).into_iter();
            sinks.map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(below(Guarantee::ExactlyOnce), ["screen", "lines"]);
        assert_eq!(below(Guarantee::AtLeastOnce), ["screen"]);
        assert!(below(Guarantee::None).is_empty());
    }
}
