//! The streams that a component emits.

use std::sync::Arc;

/// The stream of a component that says no other name.
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
    /// No stream at all.
    pub fn none() -> Self {
        Outputs::default()
    }

    /// The default stream, with these fields.
    pub fn fields<'a>(fields: impl IntoIterator<Item = &'a str>) -> Self {
        Outputs::none().stream(DEFAULT_STREAM, fields)
    }

    /// A named stream as well.
    pub fn stream<'a>(self, name: &str, fields: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(name, fields, false)
    }

    /// A named stream as well, each tuple of which is for the instance that its sender names.
    pub fn direct_stream<'a>(self, name: &str, fields: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(name, fields, true)
    }

    /// The streams: their names and fields.
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
