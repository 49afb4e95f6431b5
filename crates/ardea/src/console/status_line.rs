//! A line on standard error that says how far something is: redrawn in place on a terminal; in a pipe printed anew each time, if
//! that is asked for.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::failure::{Notice, print_error, print_notice};

/// On a terminal: five times a second.
const REDRAW: Duration = Duration::from_millis(200);
/// In a pipe.
const REPRINT: Duration = Duration::from_secs(1);
/// Between the parts of the line.
pub const GAP: &str = "  ";

/// How a line is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Showing {
    /// Not at all.
    Hidden,
    /// Redrawn in place.
    Redrawn,
    /// A line each time.
    Printed,
    /// A line each time that is a JSON object.
    PrintedAsJson,
}

impl Showing {
    /// As the command was asked for. On a terminal that results scroll by on as well (`is_shared`) there is none: they would tear it
    /// apart.
    pub fn of(with: &Supervisor, is_shared: bool) -> Self {
        match (with.quiet, can_redraw(&io::stderr())) {
            (true, _) => Showing::Hidden,
            (false, true) if is_shared => Showing::Hidden,
            (false, true) => Showing::Redrawn,
            (false, false) if with.progress && with.json => Showing::PrintedAsJson,
            (false, false) if with.progress => Showing::Printed,
            (false, false) => Showing::Hidden,
        }
    }

    /// Whether it is a new line each time.
    pub fn is_printed(self) -> bool {
        matches!(self, Showing::Printed | Showing::PrintedAsJson)
    }

    fn period(self) -> Duration {
        match self.is_printed() {
            true => REPRINT,
            false => REDRAW,
        }
    }
}

/// The line, and when it is shown next.
pub struct StatusLine {
    showing: Showing,
    start: Instant,
    next: Duration,
    /// Whether a redrawn line stands on the terminal.
    is_shown: bool,
}

impl StatusLine {
    /// Of something that starts now.
    pub fn new(showing: Showing) -> Self {
        // What is soon over shows no line on a terminal; in a pipe the first one says that it has started.
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

    /// How it is shown.
    pub fn showing(&self) -> Showing {
        self.showing
    }

    /// How long that of which it tells has been going on.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// If it is time to show the line again: how long it has been going on.
    pub fn due(&mut self) -> Option<Duration> {
        let now = self.elapsed();
        if now < self.next {
            return None;
        }
        self.next = now + self.showing.period();
        Some(now)
    }

    /// Shows the line of these parts, most important first; on a terminal as many as fit.
    pub fn show(&mut self, parts: &[String]) {
        match self.showing {
            Showing::Hidden => {}
            Showing::Redrawn => {
                let line = fitting(parts, terminal_columns(&io::stderr()));
                print_error(&format!("\r{line}\x1b[K"));
                self.is_shown = true;
            }
            Showing::Printed => print_notice(Notice::Progress, &parts.join(GAP), false),
            Showing::PrintedAsJson => print_notice(Notice::Progress, &parts.join(GAP), true),
        }
    }

    /// Takes the line away, so that something else can be said; says whether there was one.
    pub fn clear(&mut self) -> bool {
        let was_shown = std::mem::take(&mut self.is_shown);
        if was_shown {
            print_error("\r\x1b[K");
        }
        was_shown
    }
}

/// Whether what stands there can be redrawn in place.
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_dumb
}

/// How wide the terminal is that this leads to.
pub fn terminal_columns(stream: &impl AsFd) -> usize {
    rustix::termios::tcgetwinsize(stream)
        .map(|size| usize::from(size.ws_col))
        .ok()
        .filter(|&columns| columns > 0)
        .unwrap_or(80)
}

/// As many parts as fit, whole; of the first as much as fits. Parts are of narrow characters only, so that a character is a column,
/// and one column stays free: a full line would wrap.
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
        let mut line = StatusLine::new(Showing::Printed);
        assert!(line.due().is_some());
        let next = line.next;
        assert!(next >= REPRINT && next < line.elapsed() + REPRINT);
        assert_eq!(StatusLine::new(Showing::Redrawn).next, REDRAW);
    }
}
