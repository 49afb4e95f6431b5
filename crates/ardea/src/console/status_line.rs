//! A progress line on standard error: redrawn in place on a terminal, printed repeatedly in a pipe
//! if requested.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::failure::{MessageKind, print_error, print_notice};

/// The interval on a terminal.
const REDRAW: Duration = Duration::from_millis(200);
/// The interval in a pipe.
const REPRINT: Duration = Duration::from_secs(1);
/// The gap between the parts of the line.
pub const GAP: &str = "  ";

/// The way a line is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineDisplay {
    /// Not at all.
    Hidden,
    /// Redrawn in place.
    Redrawn,
    /// Printed as a new line each time.
    Printed,
    /// Printed as a JSON object each time.
    PrintedAsJson,
}

impl LineDisplay {
    /// Chooses the way from the command's options. The line is hidden if results share its terminal
    /// (`is_shared`).
    pub fn of(with: &Supervisor, is_shared: bool) -> Self {
        match (with.quiet, can_redraw(&io::stderr())) {
            (true, _) => LineDisplay::Hidden,
            (false, true) if is_shared => LineDisplay::Hidden,
            (false, true) => LineDisplay::Redrawn,
            (false, false) if with.progress && with.json => LineDisplay::PrintedAsJson,
            (false, false) if with.progress => LineDisplay::Printed,
            (false, false) => LineDisplay::Hidden,
        }
    }

    /// Returns true if each update is printed as a new line.
    pub fn is_printed(self) -> bool {
        matches!(self, LineDisplay::Printed | LineDisplay::PrintedAsJson)
    }

    fn period(self) -> Duration {
        match self.is_printed() {
            true => REPRINT,
            false => REDRAW,
        }
    }
}

/// The line, and the time of its next update.
pub struct StatusLine {
    showing: LineDisplay,
    start: Instant,
    next: Duration,
    /// True if a redrawn line is on the terminal.
    is_shown: bool,
}

impl StatusLine {
    /// Creates the line of an activity that starts now.
    pub fn new(showing: LineDisplay) -> Self {
        // A short activity shows no line on a terminal; in a pipe the first line is printed at
        // once.
        let next = match showing.is_printed() {
            true => Duration::ZERO,
            false => REDRAW,
        };
        StatusLine {
            showing,
            start: Instant::now(),
            next,
            is_shown: false,
        }
    }

    /// Returns the way the line is shown.
    pub fn showing(&self) -> LineDisplay {
        self.showing
    }

    /// Returns the time since the start of the activity.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the elapsed time if the line is due for an update, else `None`.
    pub fn due(&mut self) -> Option<Duration> {
        let now = self.elapsed();
        if now < self.next {
            return None;
        }
        self.next = now + self.showing.period();
        Some(now)
    }

    /// Shows the line of `parts`, most important first; on a terminal as many parts as fit.
    pub fn show(&mut self, parts: &[String]) {
        match self.showing {
            LineDisplay::Hidden => {}
            LineDisplay::Redrawn => {
                let line = fitting(parts, terminal_columns(&io::stderr()));
                print_error(&format!("\r{line}\x1b[K"));
                self.is_shown = true;
            }
            LineDisplay::Printed => print_notice(MessageKind::Progress, &parts.join(GAP), false),
            LineDisplay::PrintedAsJson => {
                print_notice(MessageKind::Progress, &parts.join(GAP), true)
            }
        }
    }

    /// Removes the line, before other output; returns true if there was one.
    pub fn clear(&mut self) -> bool {
        let was_shown = std::mem::take(&mut self.is_shown);
        if was_shown {
            print_error("\r\x1b[K");
        }
        was_shown
    }
}

/// Returns true if the stream is a terminal on which a line can be redrawn in place.
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_dumb
}

/// Returns the width of the stream's terminal, 80 if unknown.
pub fn terminal_columns(stream: &impl AsFd) -> usize {
    rustix::termios::tcgetwinsize(stream)
        .map(|size| usize::from(size.ws_col))
        .ok()
        .filter(|&columns| columns > 0)
        .unwrap_or(80)
}

/// Joins as many whole parts as fit; the first one is truncated. Parts have narrow characters only,
/// one column each. One column stays free, since a full line would wrap.
fn fitting(parts: &[String], columns: usize) -> String {
    let free = columns.saturating_sub(1);
    let mut line: String = parts
        .iter()
        .take(1)
        .flat_map(|part| part.chars())
        .take(free)
        .collect();
    for part in parts.iter().skip(1) {
        if line.chars().count() + GAP.len() + part.chars().count() > free {
            break;
        }
        line.push_str(GAP);
        line.push_str(part);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_gets_whole_parts_and_never_a_full_line() {
        let parts = ["job 1 s", "in 5/s", "late 3"].map(String::from);
        assert_eq!(fitting(&parts, 24), "job 1 s  in 5/s  late 3");
        assert_eq!(fitting(&parts, 23), "job 1 s  in 5/s");
        assert_eq!(fitting(&parts, 5), "job ");
        assert_eq!(fitting(&parts, 0), "");
    }

    #[test]
    fn in_a_pipe_the_first_line_is_due_at_once_and_the_next_one_later() {
        let mut line = StatusLine::new(LineDisplay::Printed);
        assert!(line.due().is_some());
        let next = line.next;
        assert!(next >= REPRINT && next < line.elapsed() + REPRINT);
        assert_eq!(StatusLine::new(LineDisplay::Redrawn).next, REDRAW);
    }
}
