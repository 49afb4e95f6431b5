//! A message as a function sees it that makes a record of it.

use ardea_core::Timestamp;

/// A message of a stream, lent for as long as a record is made of it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// On which subject it came.
    pub subject: &'a str,
    /// What it says.
    pub payload: &'a [u8],
    /// Which one of the stream it is.
    pub sequence: u64,
    /// When the server got it.
    pub published: Timestamp,
    pub(crate) headers: Option<&'a async_nats::HeaderMap>,
}

impl<'a> Message<'a> {
    /// The payload as text.
    ///
    /// # Errors
    /// If it is no UTF-8.
    pub fn text(&self) -> Result<&'a str, String> {
        std::str::from_utf8(self.payload).map_err(|error| error.to_string())
    }

    /// The value of a header, if the message has it.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers?.get(name).map(|value| value.as_str())
    }
}
