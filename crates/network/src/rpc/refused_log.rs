//! A rate-limited log of connections refused before the end of the handshake.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum interval between two lines of the log.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// A log of connections refused before the end of the handshake: at most one line a minute.
#[derive(Debug, Default)]
pub struct RefusedLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    last: Option<Instant>,
    /// Number of refused connections without a line, since the last line.
    left_out: u64,
}

impl RefusedLog {
    /// Writes to standard error that the connection of `peer` was closed and why, unless a line was
    /// written less than a minute ago.
    pub fn note(&self, peer: &str, why: &str) {
        if let Some(line) = self.line(Instant::now(), peer, why) {
            eprintln!("{line}");
        }
    }

    fn line(&self, now: Instant, peer: &str, why: &str) -> Option<String> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.last.is_some_and(|last| now < last + LINE_EVERY) {
            log.left_out += 1;
            return None;
        }
        log.last = Some(now);
        let more = match std::mem::take(&mut log.left_out) {
            0 => String::new(),
            left_out => format!(", and {left_out} others since the last such line"),
        };
        Some(format!("closed a connection from {peer}: {why}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_counts_the_suppressed_ones() {
        let (log, began) = (RefusedLog::default(), Instant::now());
        let line = |seconds| {
            let now = began + Duration::from_secs(seconds);
            log.line(now, "10.0.0.9:4711", "it sent no handshake request")
        };
        let first = line(0).unwrap();
        assert_eq!(
            first,
            "closed a connection from 10.0.0.9:4711: it sent no handshake request"
        );
        assert_eq!([line(1), line(59)], [None, None]);
        let next = line(60).unwrap();
        assert!(
            next.ends_with(", and 2 others since the last such line"),
            "{next}"
        );
        assert_eq!(line(61), None);
    }
}
