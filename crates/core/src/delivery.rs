//! What a sink gives of what a job promises.

use std::fmt;
use std::sync::Arc;

use crate::{FileUse, Guarantee, Instance, Processor, ProcessorSupplier, Result};

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
    use crate::{Sink, supplier};

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
}
