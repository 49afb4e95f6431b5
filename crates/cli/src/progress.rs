//! The line that says how a running job is doing.
//!
//! Where live tables are shown it is their last line. Otherwise it is one line on standard error, redrawn in place on a terminal;
//! in a pipe there is none unless asked for, and then a line a second.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ardea_connect::live_table::Screen;
use ardea_core::Timestamp;
use ardea_engine::JobHandle;

use crate::context::Context;
use crate::failure::print_error;
use crate::figures;
use crate::rates::Rate;
use crate::shape::{Shape, Totals};

/// On a terminal: five times a second.
pub const REDRAW: Duration = Duration::from_millis(200);
/// In a pipe.
pub const REPRINT: Duration = Duration::from_secs(1);
/// An event time further from now than this is not live: how far it is behind would say nothing.
const LIVE: Duration = Duration::from_secs(86_400);

/// Between the parts of the line.
const GAP: &str = "  ";

/// Where the line goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Nowhere, not even below tables.
    Silent,
    /// Below tables on a terminal, if there are any.
    TablesOnly,
    /// Redrawn in place on standard error.
    Redrawn,
    /// A line each time.
    Printed,
}

/// Shows how one job is doing.
pub struct Progress<'a> {
    shape: &'a Shape,
    mode: Mode,
    start: Instant,
    next: Duration,
    rate_in: Rate,
    rate_out: Rate,
    /// Whether a redrawn line stands on the terminal.
    is_shown: bool,
}

impl<'a> Progress<'a> {
    /// For a job of this shape that starts now.
    pub fn new(context: &Context, shape: &'a Shape) -> Self {
        let mode = mode(context, shape);
        // A short job shows no line on a terminal; in a pipe the first one says that it has started.
        let next = if mode == Mode::Printed {
            Duration::ZERO
        } else {
            REDRAW
        };
        Progress {
            mode,
            shape,
            start: Instant::now(),
            next,
            rate_in: Rate::default(),
            rate_out: Rate::default(),
            is_shown: false,
        }
    }

    /// How long the job has been running.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Shows the line if it is time to.
    pub fn tick(&mut self, job: &JobHandle, is_draining: bool) {
        let now = self.elapsed();
        if self.mode == Mode::Silent || now < self.next {
            return;
        }
        self.next = now
            + if self.mode == Mode::Printed {
                REPRINT
            } else {
                REDRAW
            };
        let totals = self.shape.totals(&job.metrics());
        let parts = Reading {
            name: job.name(),
            elapsed: now,
            is_draining,
            totals,
            rate_in: self.rate_in.sample(now, totals.records_in),
            rate_out: self.rate_out.sample(now, totals.records_out),
            dead_letters: job.dead_letters().count() + job.dead_letters().dropped(),
            wall: Timestamp::from_micros(jiff::Timestamp::now().as_microsecond()),
        }
        .parts();
        self.show(&parts);
    }

    fn show(&mut self, parts: &[String]) {
        let whole = parts.join(GAP);
        if self.mode == Mode::Printed {
            print_error(&format!("{whole}\n"));
        } else if Screen::of_process().set_status(Some(whole)) {
            self.clear();
        } else if self.mode == Mode::Redrawn {
            let line = fitting(parts, terminal_columns());
            print_error(&format!("\r{line}\x1b[K"));
            self.is_shown = true;
        }
    }

    /// Takes the line away, so that something else can be said.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            print_error("\r\x1b[K");
        }
    }

    /// Says something above the line. Where tables are shown they would be torn apart; there the line itself says it.
    pub fn say(&mut self, text: &str) {
        if Screen::of_process().has_tables() {
            return;
        }
        // Behind the ^C that the terminal has printed, unless that has just been cleared away with the line.
        let is_behind = !self.is_shown && io::stderr().is_terminal();
        self.clear();
        print_error(&format!("{}{text}\n", if is_behind { "\n" } else { "" }));
    }
}

/// Whether a line on standard error can be redrawn in place.
pub fn can_redraw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

fn mode(context: &Context, shape: &Shape) -> Mode {
    let is_terminal = can_redraw();
    // Results that scroll by on the same terminal would tear the line apart.
    let is_shared = shape
        .vertices
        .iter()
        .any(|v| v.is_sink && v.name.starts_with("stdout"))
        && io::stdout().is_terminal();
    match (context.quiet, is_terminal) {
        (true, _) => Mode::Silent,
        (false, true) if is_shared => Mode::TablesOnly,
        (false, true) => Mode::Redrawn,
        (false, false) if context.progress => Mode::Printed,
        (false, false) => Mode::TablesOnly,
    }
}

fn terminal_columns() -> usize {
    rustix::termios::tcgetwinsize(io::stderr())
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

/// All that the line tells.
struct Reading<'a> {
    name: &'a str,
    elapsed: Duration,
    is_draining: bool,
    totals: Totals,
    rate_in: f64,
    rate_out: f64,
    dead_letters: u64,
    wall: Timestamp,
}

impl Reading<'_> {
    /// What there is to say, most important first.
    fn parts(&self) -> Vec<String> {
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let mut parts = vec![format!("{name} {}", figures::duration(self.elapsed))];
        if self.is_draining {
            parts.push("draining (Ctrl-C again stops at once)".into());
        }
        let flow = |word: &str, rate: f64, count: u64| {
            format!(
                "{word} {}/s ({})",
                figures::short(rate),
                figures::short(count as f64)
            )
        };
        parts.push(flow("in", self.rate_in, self.totals.records_in));
        parts.push(flow("out", self.rate_out, self.totals.records_out));
        parts.extend(self.event_time());
        if self.totals.late > 0 {
            parts.push(format!("late {}", figures::grouped(self.totals.late)));
        }
        if self.dead_letters > 0 {
            parts.push(format!(
                "dead letters {}",
                figures::grouped(self.dead_letters)
            ));
        }
        parts
    }

    /// How far event time has come: behind the clock if it is live, by date if it is a replay.
    fn event_time(&self) -> Option<String> {
        let watermark = self.totals.watermark;
        if watermark == Timestamp::MIN || watermark == Timestamp::MAX {
            return None;
        }
        if watermark.since(self.wall) < LIVE && self.wall.since(watermark) < LIVE {
            return Some(format!(
                "behind {}",
                figures::duration(self.wall.since(watermark))
            ));
        }
        let time = jiff::Timestamp::from_microsecond(watermark.as_micros()).ok()?;
        Some(format!("at {}", time.strftime("%Y-%m-%d %H:%M")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(reading: &Reading<'_>) -> String {
        reading.parts().join(GAP)
    }

    fn reading(watermark: Timestamp) -> Reading<'static> {
        Reading {
            name: "flights",
            elapsed: Duration::from_secs(12),
            is_draining: false,
            totals: Totals {
                records_in: 336_776,
                records_out: 1_200,
                late: 0,
                watermark,
            },
            rate_in: 1.25e6,
            rate_out: 80.0,
            dead_letters: 0,
            wall: Timestamp::from_secs(1_700_000_000),
        }
    }

    #[test]
    fn a_replay_shows_the_date_and_a_live_job_how_far_it_is_behind() {
        assert_eq!(
            line(&reading(Timestamp::from_secs(1_364_908_200))),
            "flights 12.0 s  in 1.25 M/s (337 k)  out 80/s (1.20 k)  at 2013-04-02 13:10"
        );
        let live = line(&reading(Timestamp::from_millis(1_699_999_999_988)));
        assert!(live.ends_with("behind 12.0 ms"), "{live}");
    }

    #[test]
    fn before_the_first_watermark_and_after_the_last_there_is_no_event_time() {
        for watermark in [Timestamp::MIN, Timestamp::MAX] {
            assert!(line(&reading(watermark)).ends_with("(1.20 k)"));
        }
    }

    #[test]
    fn what_is_wrong_is_shown_and_what_is_not_is_left_out() {
        let mut reading = reading(Timestamp::MIN);
        reading.totals.late = 1_234;
        reading.dead_letters = 3;
        reading.is_draining = true;
        let line = line(&reading);
        assert!(
            line.ends_with("late 1,234  dead letters 3") && line.contains("  draining ("),
            "{line}"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_whole_parts_and_never_a_full_line() {
        let parts = ["job 1 s", "in 5/s", "late 3"].map(String::from);
        assert_eq!(fitting(&parts, 24), "job 1 s  in 5/s  late 3");
        assert_eq!(fitting(&parts, 23), "job 1 s  in 5/s");
        assert_eq!(fitting(&parts, 5), "job ");
        assert_eq!(fitting(&parts, 0), "");
    }
}
