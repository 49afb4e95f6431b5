//! Messages passed to a decoder.

use ardea_core::Timestamp;

/// A message of a stream, borrowed by a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Subject.
    pub subject: &'a str,
    /// Payload.
    pub payload: &'a [u8],
    /// Sequence number in the stream.
    pub sequence: u64,
    /// Time at which the server received the message.
    pub published: Timestamp,
    pub(crate) headers: Option<&'a async_nats::HeaderMap>,
}

impl<'a> Message<'a> {
    /// Returns the payload as text.
    ///
    /// # Errors
    /// The reason if the payload is not UTF-8.
    pub fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.payload).map_err(|error| error.to_string())
    }

    /// Returns the value of the header `name`; `None` if it is missing.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers?.get(name).map(|value| value.as_str())
    }
}
