//! Delivery guarantees of sinks.

use std::fmt;
use std::sync::Arc;

use crate::{Dag, FileUse, Guarantee, Instance, Processor, ProcessorSupplier, Result};

/// The strongest delivery guarantee of a sink: how often the external system sees each record after
/// a failure.
///
/// A job's [`Guarantee`] concerns its state. The guarantee towards an external system depends on
/// the sink as well: a sink that writes at once writes replayed records again.
///
/// ```
/// use ardea_core::{Delivery, Guarantee};
///
/// assert!(Delivery::ExactlyOnce.satisfies(Guarantee::ExactlyOnce));
/// assert!(!Delivery::AtLeastOnce.satisfies(Guarantee::ExactlyOnce));
/// assert!(Delivery::AtLeastOnce.satisfies(Guarantee::AtLeastOnce));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Delivery {
    /// No guarantee: the sink is for display or measurements.
    Nothing,
    /// Each record at least once; records may be repeated after a failure.
    AtLeastOnce,
    /// Each record at least once, and writing a record again changes nothing.
    Idempotent,
    /// Each record once: the records of an epoch become visible when it is committed.
    ExactlyOnce,
}

impl Delivery {
    /// Returns true if this guarantee is at least as strong as the job's guarantee `promised`.
    pub const fn satisfies(self, promised: Guarantee) -> bool {
        match promised {
            Guarantee::None => true,
            Guarantee::AtLeastOnce => !matches!(self, Delivery::Nothing),
            Guarantee::ExactlyOnce => matches!(self, Delivery::Idempotent | Delivery::ExactlyOnce),
        }
    }

    /// Returns the name.
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
    /// Returns the sinks whose declared delivery guarantee is weaker than `promised`, with that
    /// guarantee.
    pub fn sinks_below(&self, promised: Guarantee) -> Vec<(Arc<str>, Delivery)> {
        let given = self.vertices().iter().filter_map(|vertex| {
            let delivery = vertex.supplier().delivery()?;
            Some((Arc::clone(vertex.name()), delivery))
        });
        given
            .filter(|(_, delivery)| !delivery.satisfies(promised))
            .collect()
    }
}

/// A supplier that wraps another and declares its delivery guarantee.
pub(crate) struct WithDelivery {
    pub(crate) supplier: Arc<dyn ProcessorSupplier>,
    pub(crate) delivery: Delivery,
}

impl ProcessorSupplier for WithDelivery {
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
        let said = sink().with_delivery(Delivery::Idempotent);
        assert_eq!(of(said), Some(Delivery::Idempotent));
        let said = sink().with_delivery(Delivery::ExactlyOnce);
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
                sink = sink.with_delivery(delivery);
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
