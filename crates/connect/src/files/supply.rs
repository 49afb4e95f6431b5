//! Suppliers that say which files their processors use.

use std::sync::Arc;

use ardea_core::{FileUse, Instance, Processor, ProcessorSupplier, Result};

struct Supply<F> {
    files: Vec<FileUse>,
    make: F,
}

impl<F> ProcessorSupplier for Supply<F>
where
    F: Fn(Instance) -> Result<Box<dyn Processor>> + Send + Sync,
{
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        (self.make)(instance)
    }

    fn files(&self) -> Vec<FileUse> {
        self.files.clone()
    }
}

/// Supplies what `make` makes, which will use these files.
pub(super) fn using(
    files: Vec<FileUse>,
    make: impl Fn(Instance) -> Result<Box<dyn Processor>> + Send + Sync + 'static,
) -> Arc<dyn ProcessorSupplier> {
    Arc::new(Supply { files, make })
}
