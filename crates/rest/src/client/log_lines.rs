//! Lines of a log, and changes of a map, as they come.

use ardea_core::{Error, ErrorCode, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::place::Place;
use super::request::{Answered, broken};
use crate::{LogEvent, LogLine, MapEvent};

/// A longer line is no cluster's.
const MOST_EVENT_BYTES: usize = 16 << 20;

/// The lines that were asked for, one after the other.
#[derive(Debug)]
pub struct LogLines(Lines);

/// What happens to a map, one after the other.
#[derive(Debug)]
pub struct MapChanges(Lines);

/// Lines of JSON.
#[derive(Debug)]
struct Lines {
    body: Incoming,
    place: Place,
    /// What has come of lines that were not told yet.
    come: Vec<u8>,
    /// How much of that has been told, and looked through.
    told: usize,
    seen: usize,
}

impl LogLines {
    pub(super) fn of(answer: Answered) -> Self {
        LogLines(Lines::of(answer))
    }

    /// The next line; none when there are no more. Waits for it as long as it takes. Dropping the future loses no line.
    ///
    /// # Errors
    /// What the cluster says; [`ErrorCode::Network`] if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<LogLine>> {
        match self.0.next().await? {
            Some(LogEvent::Line(line)) => Ok(Some(line)),
            Some(LogEvent::Fault(fault)) => Err(fault.into()),
            None => Ok(None),
        }
    }
}

impl MapChanges {
    pub(super) fn of(answer: Answered) -> Self {
        MapChanges(Lines::of(answer))
    }

    /// What has happened next; none when no more is told. Waits for it as long as it takes. Dropping the future loses nothing.
    ///
    /// # Errors
    /// What the cluster says; [`ErrorCode::Network`] if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<MapEvent>> {
        match self.0.next().await? {
            Some(MapEvent::Fault(fault)) => Err(fault.into()),
            event => Ok(event),
        }
    }
}

impl Lines {
    fn of(answer: Answered) -> Self {
        let (body, place) = answer.streamed();
        Lines {
            body,
            place,
            come: Vec::new(),
            told: 0,
            seen: 0,
        }
    }

    async fn next<E: DeserializeOwned>(&mut self) -> Result<Option<E>> {
        loop {
            if let Some(line) = self.line() {
                let event = serde_json::from_slice(line).map_err(|error| self.strange(error))?;
                return Ok(Some(event));
            }
            if self.come.len() > MOST_EVENT_BYTES {
                return Err(self.strange("a line without end"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self
                    .come
                    .extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => return Err(broken(&self.place, error)),
                None => return Ok(None),
            }
        }
    }

    /// The next whole line of what has come.
    fn line(&mut self) -> Option<&[u8]> {
        let end = self.come[self.seen..].iter().position(|b| *b == b'\n');
        let Some(length) = end else {
            self.come.drain(..self.told);
            (self.told, self.seen) = (0, self.come.len());
            return None;
        };
        let (start, end) = (self.told, self.seen + length);
        (self.told, self.seen) = (end + 1, end + 1);
        Some(&self.come[start..end])
    }

    fn strange(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let what = format!("what {} sends are no lines of a log or a map", self.place);
        Error::new(ErrorCode::BadAnswer, what)
            .because(why)
            .hint("check the address, and that both are of the same version")
    }
}
