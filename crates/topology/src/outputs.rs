//! The streams that a component emits.

use std::sync::Arc;

/// The name of a component's stream that is declared without one.
pub const DEFAULT_STREAM: &str = "default";

/// The streams that a component emits, with the names of their fields.
///
/// ```
/// use ardea_topology::Outputs;
///
/// let outputs = Outputs::fields(["word", "count"]).stream("rejected", ["line", "reason"]);
/// assert_eq!(outputs.streams().count(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    pub(crate) streams: Vec<OutputStream>,
}

/// One declared stream.
#[derive(Clone, Debug)]
pub(crate) struct OutputStream {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Arc<[Arc<str>]>,
    pub(crate) is_direct: bool,
}

impl Outputs {
    /// Creates an empty set of streams.
    pub fn none() -> Self {
        Outputs::default()
    }

    /// Creates the default stream, with these fields.
    pub fn fields<'a>(fields: impl IntoIterator<Item = &'a str>) -> Self {
        Outputs::none().stream(DEFAULT_STREAM, fields)
    }

    /// Adds a named stream.
    pub fn stream<'a>(self, name: &str, fields: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(name, fields, false)
    }

    /// Adds a named direct stream: the sender names the target instance of each tuple.
    pub fn direct_stream<'a>(self, name: &str, fields: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(name, fields, true)
    }

    /// Returns the names and fields of the streams.
    pub fn streams(&self) -> impl Iterator<Item = (&str, &[Arc<str>])> {
        self.streams
            .iter()
            .map(|stream| (&*stream.name, &*stream.fields))
    }

    fn with<'a>(
        mut self,
        name: &str,
        fields: impl IntoIterator<Item = &'a str>,
        is_direct: bool,
    ) -> Self {
        self.streams.push(OutputStream {
            name: name.into(),
            fields: fields.into_iter().map(Arc::from).collect(),
            is_direct,
        });
        self
    }
}
