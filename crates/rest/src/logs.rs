//! What the processes of a job have written.

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::Fault;

/// How many lines are told when nobody says how many.
pub const DEFAULT_TAIL_LINES: u32 = 100;
/// The most lines that can be asked for.
pub const MOST_TAIL_LINES: u32 = 10_000;
/// A line longer than this is told in pieces, of which all but the last say that it [goes on](LogLine::continues).
pub const MOST_LINE_BYTES: usize = 64 * 1024;

/// Which of the two a process wrote to.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogSource {
    /// As it is written in JSON, and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            LogSource::Stdout => "stdout",
            LogSource::Stderr => "stderr",
        }
    }
}

/// Which lines are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Of this container; of all if not said.
    #[serde(
        default,
        deserialize_with = "crate::number::container",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u32>")]
    pub container: Option<ContainerId>,
    /// Written there; to either if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LogSource>,
    /// So many of the last lines of each file; 100 if not said, 10,000 at most.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 10_000))]
    pub tail: Option<u32>,
    /// Whether what is written from now on follows, until the connection is closed or the job is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// Of this submission, in hexadecimal digits, though the job may be gone; if not said, of the job that is there, else of the last one
    /// of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
    /// Of a job that is gone, only what is kept on the machine of the host that is asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
}

impl LogQuery {
    /// Checks what comes from outside; a query that no one has checked is not bounded.
    ///
    /// # Errors
    ///
    /// [`BadRequest`](ErrorCode::BadRequest) if more than [`MOST_TAIL_LINES`] are wanted.
    pub fn check(&self) -> Result<()> {
        if self.tail.is_none_or(|tail| tail <= MOST_TAIL_LINES) {
            return Ok(());
        }
        let what = format!("tail can be {MOST_TAIL_LINES} at most");
        Err(Error::new(ErrorCode::BadRequest, what).hint("ask for fewer lines"))
    }

    /// How many of the last lines of each file are wanted.
    pub fn tail_lines(&self) -> u32 {
        self.tail.unwrap_or(DEFAULT_TAIL_LINES)
    }
}

/// A line that a process of a job wrote.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// The container.
    #[schemars(with = "u32")]
    pub container: ContainerId,
    /// Where it was written to.
    pub source: LogSource,
    /// The line, without its end; what is no UTF-8 is replaced.
    pub text: String,
    /// Whether this is a piece of a line longer than 64 KiB, which goes on with the next one of the same file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The number of bytes that were written here and are not kept any more. Such a line is none that a process wrote; its text
    /// says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_bytes: Option<u64>,
}

impl LogLine {
    /// Returns the line that stands for so many bytes that are not kept any more.
    pub fn left_out(container: ContainerId, source: LogSource, bytes: u64) -> Self {
        LogLine {
            container,
            source,
            text: format!(
                "[{bytes} bytes of {} are not kept: hosts bound it by cluster.log_size and cluster.log_files]",
                source.as_str()
            ),
            continues: false,
            left_out_bytes: Some(bytes),
        }
    }
}

/// What a line of the answer to a request for logs is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogEvent {
    /// A line that was written.
    Line(LogLine),
    /// There are no more, for this reason; the last one.
    Fault(Fault),
}

/// Lines as they come. Whoever sends them stops when nobody receives any more; an error is the last that is sent.
pub type LogStream = mpsc::Receiver<Result<LogLine>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_as_are_asked_for_are_wanted_and_more_than_the_most_are_refused() {
        let of = |tail| LogQuery {
            tail,
            ..LogQuery::default()
        };
        for (tail, lines) in [
            (None, DEFAULT_TAIL_LINES),
            (Some(0), 0),
            (Some(MOST_TAIL_LINES), MOST_TAIL_LINES),
        ] {
            of(tail).check().unwrap();
            assert_eq!(of(tail).tail_lines(), lines);
        }
        let error = of(Some(MOST_TAIL_LINES + 1)).check().unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRequest);
        assert_eq!(error.message(), "tail can be 10000 at most");
    }
}
