//! Streams of log lines and of map changes.

use ardea_core::{Error, ErrorCode, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::endpoint::Endpoint;
use super::request::{SuccessResponse, broken};
use crate::{LogEvent, LogLine, MapEvent};

/// Maximum length of a line in bytes; a response with a longer line is invalid.
const MOST_EVENT_BYTES: usize = 16 << 20;

/// A stream of log lines.
#[derive(Debug)]
pub struct LogLines(Lines);

/// A stream of changes of a map.
#[derive(Debug)]
pub struct MapChanges(Lines);

/// A stream of newline-delimited JSON.
#[derive(Debug)]
struct Lines {
    body: Incoming,
    place: Endpoint,
    /// The received bytes, including lines that were returned already.
    buffer: Vec<u8>,
    /// End of the returned lines in `buffer`, and end of the part that was searched for a line end.
    returned: usize,
    searched: usize,
}

impl LogLines {
    pub(super) fn of(answer: SuccessResponse) -> Self {
        LogLines(Lines::of(answer))
    }

    /// Waits for the next line, without a timeout. Returns `None` at the end of the stream. Cancel
    /// safe.
    ///
    /// # Errors
    /// The error reported by the cluster; [`ErrorCode::Network`] if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<LogLine>> {
        match self.0.next().await? {
            Some(LogEvent::Line(line)) => Ok(Some(line)),
            Some(LogEvent::Fault(fault)) => Err(fault.into()),
            None => Ok(None),
        }
    }
}

impl MapChanges {
    pub(super) fn of(answer: SuccessResponse) -> Self {
        MapChanges(Lines::of(answer))
    }

    /// Waits for the next change, without a timeout. Returns `None` at the end of the stream.
    /// Cancel safe.
    ///
    /// # Errors
    /// The error reported by the cluster; [`ErrorCode::Network`] if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<MapEvent>> {
        match self.0.next().await? {
            Some(MapEvent::Fault(fault)) => Err(fault.into()),
            event => Ok(event),
        }
    }
}

impl Lines {
    fn of(answer: SuccessResponse) -> Self {
        let (body, place) = answer.streamed();
        Lines {
            body,
            place,
            buffer: Vec::new(),
            returned: 0,
            searched: 0,
        }
    }

    async fn next<E: DeserializeOwned>(&mut self) -> Result<Option<E>> {
        loop {
            if let Some(line) = self.line() {
                let event = serde_json::from_slice(line).map_err(|error| self.strange(error))?;
                return Ok(Some(event));
            }
            if self.buffer.len() > MOST_EVENT_BYTES {
                return Err(self.strange("a line is too long"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self
                    .buffer
                    .extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => return Err(broken(&self.place, error)),
                None => return Ok(None),
            }
        }
    }

    /// Returns the next complete line of the received bytes, if there is one.
    fn line(&mut self) -> Option<&[u8]> {
        let end = self.buffer[self.searched..]
            .iter()
            .position(|b| *b == b'\n');
        let Some(length) = end else {
            self.buffer.drain(..self.returned);
            (self.returned, self.searched) = (0, self.buffer.len());
            return None;
        };
        let (start, end) = (self.returned, self.searched + length);
        (self.returned, self.searched) = (end + 1, end + 1);
        Some(&self.buffer[start..end])
    }

    fn strange(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let what = format!(
            "the response of {} is not a stream of log lines or map changes",
            self.place
        );
        Error::new(ErrorCode::BadResponse, what)
            .because(why)
            .hint("check the address, and that both are of the same version")
    }
}
