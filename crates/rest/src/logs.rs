//! The output of a job's processes.

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::ApiError;

/// Default number of last lines requested of each log file.
pub const DEFAULT_TAIL_LINES: u32 = 100;
/// Maximum number of last lines requested of each log file.
pub const MAX_TAIL_LINES: u32 = 10_000;
/// Maximum length of a log line in bytes. A longer line is split, and all pieces but the last are
/// marked as [continued](LogLine::continues).
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// The stream that a process wrote to.
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
    /// Returns the name used in JSON and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            LogSource::Stdout => "stdout",
            LogSource::Stderr => "stderr",
        }
    }
}

/// The selection of log lines.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Only the output of this container; of all containers if not given.
    #[serde(
        default,
        deserialize_with = "crate::query_number::container",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u32>")]
    pub container: Option<ContainerId>,
    /// Only this output stream; both streams if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LogSource>,
    /// Number of last lines of each file; 100 if not given, at most 10,000.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 10_000))]
    pub tail: Option<u32>,
    /// True to continue with later output until the connection is closed or the job has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// Only the output of this submission, in hexadecimal digits, even if it has ended. If not
    /// given, the current job of the name, or else the latest ended one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
    /// True to return only output on the machine of the host that receives the request. Applies to
    /// ended jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
}

impl LogQuery {
    /// Validates a query from a client.
    ///
    /// # Errors
    ///
    /// [`BadRequest`](ErrorCode::BadRequest) if it requests more than [`MAX_TAIL_LINES`].
    pub fn check(&self) -> Result<()> {
        if self.tail.is_none_or(|tail| tail <= MAX_TAIL_LINES) {
            return Ok(());
        }
        let what = format!("tail can be {MAX_TAIL_LINES} at most");
        Err(Error::new(ErrorCode::BadRequest, what).hint("request fewer lines"))
    }

    /// Returns the number of last lines of each file.
    pub fn tail_lines(&self) -> u32 {
        self.tail.unwrap_or(DEFAULT_TAIL_LINES)
    }
}

/// A line of output of a job's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// Number of the container.
    #[schemars(with = "u32")]
    pub container: ContainerId,
    /// Output stream that the line was written to.
    pub source: LogSource,
    /// Text of the line, without the line end. Invalid UTF-8 is replaced.
    pub text: String,
    /// True for a piece of a line longer than 64 KiB that continues with the next line of the same
    /// file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// Number of bytes of output at this position that are no longer retained. A line with this
    /// field is a placeholder for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_bytes: Option<u64>,
}

impl LogLine {
    /// Creates the placeholder line for `bytes` bytes of output that are no longer retained.
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

/// A line of the response to a request for logs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogEvent {
    /// A line of output.
    Line(LogLine),
    /// The error that ends the stream; always the last event.
    Fault(ApiError),
}

/// A stream of log lines. The producer stops when the receiver is dropped; an error is the last
/// item.
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
            (Some(MAX_TAIL_LINES), MAX_TAIL_LINES),
        ] {
            of(tail).check().unwrap();
            assert_eq!(of(tail).tail_lines(), lines);
        }
        let error = of(Some(MAX_TAIL_LINES + 1)).check().unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRequest);
        assert_eq!(error.message(), "tail can be 10000 at most");
    }
}
