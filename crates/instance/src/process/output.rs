//! The output of user code, as log lines.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use ardea_core::Timestamp;

/// The maximum length of a line in bytes; the rest is cut off.
const MAX_LINE_BYTES: usize = 8 << 10;
/// The number of lines per second above which lines are omitted.
const LINES_PER_SECOND: u32 = 1_000;
/// The number of lines kept for errors.
const LAST_LINES: usize = 5;

/// The stream of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A LOG frame, or a remark of the host about the process.
    Log,
}

/// A line of output of an instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputLine {
    /// The step.
    pub vertex: String,
    /// The index of the instance.
    pub instance: u32,
    /// The time at which the host read the line.
    pub time: Timestamp,
    /// The stream.
    pub stream: OutputStream,
    /// The text, without the line break.
    pub text: String,
}

impl fmt::Display for OutputLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = match self.stream {
            OutputStream::Stdout => " stdout",
            OutputStream::Stderr => " stderr",
            OutputStream::Log => "",
        };
        write!(
            f,
            "ardea: {} {}[{}]{stream}: {}",
            self.time,
            self.vertex,
            self.instance,
            self.text.escape_debug()
        )
    }
}

/// A destination of output lines. Called on the thread of the process.
pub type OutputSink = dyn Fn(&OutputLine) + Send + Sync;

/// Writes a line to the standard error of the host.
pub fn log_to_stderr(line: &OutputLine) {
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// The bytes of a stream, divided into lines.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    line: Vec<u8>,
    is_cut: bool,
}

impl LineSplitter {
    /// Appends bytes, and passes each complete line to `take`.
    pub(super) fn push(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(String)) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = MAX_LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            self.is_cut |= part.len() > room;
            bytes = &bytes[end.map_or(bytes.len(), |end| end + 1)..];
            if end.is_some() {
                self.end(take);
            }
        }
    }

    /// Passes an incomplete line to `take`.
    pub(super) fn finish(&mut self, take: &mut dyn FnMut(String)) {
        if !self.line.is_empty() {
            self.end(take);
        }
    }

    fn end(&mut self, take: &mut dyn FnMut(String)) {
        let mut text = String::from_utf8_lossy(&self.line).into_owned();
        if text.ends_with('\r') {
            text.pop();
        }
        if std::mem::take(&mut self.is_cut) {
            text.push('…');
        }
        self.line.clear();
        take(text);
    }
}

/// A limit of the number of lines, and the last lines of standard error.
#[derive(Debug)]
pub(super) struct OutputLimiter {
    second: Instant,
    lines: u32,
    omitted: u64,
    last: VecDeque<String>,
}

impl OutputLimiter {
    pub(super) fn new(now: Instant) -> Self {
        OutputLimiter {
            second: now,
            lines: 0,
            omitted: 0,
            last: VecDeque::new(),
        }
    }

    /// Returns true if a line may be logged.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.lines = 0;
        }
        self.lines += 1;
        let is_admitted = self.lines <= LINES_PER_SECOND;
        self.omitted += u64::from(!is_admitted);
        is_admitted
    }

    /// Returns the number of lines omitted since the last call, if a new second has begun.
    pub(super) fn take_omitted(&mut self, now: Instant) -> u64 {
        if now.saturating_duration_since(self.second) < Duration::from_secs(1) {
            return 0;
        }
        std::mem::take(&mut self.omitted)
    }

    /// Retains a line of standard error for errors.
    pub(super) fn retain(&mut self, text: &str) {
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(text.to_owned());
    }

    /// Returns the last lines of standard error.
    pub(super) fn last_lines(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_divided_and_long_ones_cut() {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        let mut take = |line: String| lines.push(line);
        splitter.push(b"one\r\ntw", &mut take);
        splitter.push(b"o\n", &mut take);
        for _ in 0..100 {
            splitter.push(&[b'x'; 1_000], &mut take);
        }
        splitter.push(b"\nend", &mut take);
        splitter.finish(&mut take);
        assert_eq!(lines[..2], ["one", "two"]);
        assert_eq!(lines[2].chars().count(), MAX_LINE_BYTES + 1);
        assert_eq!(lines[3], "end");
    }

    #[test]
    fn lines_above_the_limit_are_omitted_and_counted() {
        let start = Instant::now();
        let mut limiter = OutputLimiter::new(start);
        let admitted = (0..5_000).filter(|_| limiter.admits(start)).count();
        assert_eq!(admitted, LINES_PER_SECOND as usize);
        assert_eq!(limiter.take_omitted(start), 0);
        assert_eq!(limiter.take_omitted(start + Duration::from_secs(1)), 4_000);
    }
}
