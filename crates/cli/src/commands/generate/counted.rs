//! Progress of event generation: events are counted on their way to the file.

use std::io::{self, Write};
use std::time::Duration;

use ardea::console::format_number::short;
use ardea::console::{LineDisplay, StatusLine};

/// A writer that passes events on, and shows their number.
pub struct Counted<'a> {
    writer: &'a mut dyn Write,
    line: StatusLine,
    events: u64,
    total: u64,
}

impl<'a> Counted<'a> {
    /// Creates a writer of `total` events to `writer`.
    pub fn new(writer: &'a mut dyn Write, total: u64, showing: LineDisplay) -> Self {
        Counted {
            writer,
            line: StatusLine::new(showing),
            events: 0,
            total,
        }
    }

    /// Removes the progress line.
    pub fn clear(&mut self) {
        self.line.clear();
    }
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        if self.line.showing() != LineDisplay::Hidden {
            let ends = bytes[..written].iter().filter(|byte| **byte == b'\n');
            self.events += ends.count() as u64;
            if let Some(elapsed) = self.line.due() {
                self.line.show(&parts(self.events, self.total, elapsed));
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Returns the parts of the progress line, most important first.
fn parts(events: u64, total: u64, elapsed: Duration) -> [String; 3] {
    let rate = events as f64 / elapsed.as_secs_f64().max(1e-9);
    let percent = (u128::from(events) * 100)
        .checked_div(u128::from(total))
        .unwrap_or(100);
    [
        format!("{} of {} events", short(events as f64), short(total as f64)),
        format!("{}/s", short(rate)),
        format!("{percent} %"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is_and_how_fast_it_goes() {
        let parts = parts(1_250_000, 10_000_000, Duration::from_secs(2));
        assert_eq!(parts, ["1.25 M of 10.0 M events", "625 k/s", "12 %"]);
    }

    #[test]
    fn whole_events_are_counted_whatever_the_pieces() {
        let mut out = Vec::new();
        let mut counted = Counted::new(&mut out, 2, LineDisplay::Redrawn);
        counted.write_all(b"{}\n{").unwrap();
        assert_eq!(counted.events, 1);
        counted.write_all(b"}\n").unwrap();
        assert_eq!(counted.events, 2);
        assert_eq!(out, b"{}\n{}\n");
    }
}
