//! Sinks of columns.

use ardea_core::{Result, Sink};
use arrow_schema::SchemaRef;

use crate::stream::{ColumnRecord, failing};

/// A sink of [`ColumnBatch`](crate::ColumnBatch)es, which is bound to the columns of its stream.
pub struct ColumnSink {
    name: String,
    bind: BindSink,
}

/// Returns the sink for a stream with these columns.
type BindSink = Box<dyn FnOnce(&SchemaRef) -> Result<Sink<ColumnRecord>>>;

impl ColumnSink {
    /// Creates a sink. `bind` returns it for the columns of the stream.
    pub fn new(
        name: impl Into<String>,
        bind: impl FnOnce(&SchemaRef) -> Result<Sink<ColumnRecord>> + 'static,
    ) -> Self {
        ColumnSink {
            name: name.into(),
            bind: Box::new(bind),
        }
    }

    /// Returns the sink for a stream with these columns. If it does not fit, it fails the job when
    /// it starts.
    pub(crate) fn bound(self, schema: Result<SchemaRef>) -> Sink<ColumnRecord> {
        let sink = schema.and_then(|schema| (self.bind)(&schema));
        sink.unwrap_or_else(|error| Sink::new(self.name, failing(&error)))
    }
}
