//! The progress line of a running job.
//!
//! Below live tables it is their last line. Otherwise it is one line on standard error,
//! redrawn in place on a terminal. In a pipe it is printed every second, if requested.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ardea_checkpoint::local::JobCounts;
use ardea_core::{Timestamp, is_invisible};
use ardea_engine::JobHandle;

use crate::connect::live_table::Screen;

use super::Supervisor;
use super::failure::{MessageKind, print_error, print_notice};
use super::format_number;
use super::graph_view::{GraphView, Totals};
use super::rates::Rate;
use super::status_line::{GAP, LineDisplay, StatusLine};

/// The maximum distance between the current time and an event time that counts as live. The line
/// shows the lag of live event times only.
const LIVE: Duration = Duration::from_secs(86_400);

/// The progress of one job.
pub struct Progress<'a> {
    shape: &'a GraphView,
    line: StatusLine,
    /// True if nothing is shown, not even below tables.
    is_quiet: bool,
    is_json: bool,
    /// True if tables are on a terminal, now or at the last update.
    has_tables: bool,
    rate_in: Rate,
    rate_out: Rate,
}

impl<'a> Progress<'a> {
    /// Creates the progress of a job with the graph `shape` that starts now.
    pub fn new(with: &Supervisor, shape: &'a GraphView) -> Self {
        Progress {
            line: StatusLine::new(LineDisplay::of(with, shares_its_terminal(shape))),
            is_quiet: with.quiet,
            is_json: with.json,
            has_tables: false,
            shape,
            rate_in: Rate::default(),
            rate_out: Rate::default(),
        }
    }

    /// Returns the time since the job's start.
    pub fn elapsed(&self) -> Duration {
        self.line.elapsed()
    }

    /// Shows the line if it is due. `counts` returns the counts over all attempts, if the job has
    /// several; it is called only when the line is due.
    pub fn tick(
        &mut self,
        job: &JobHandle,
        counts: Option<&dyn Fn() -> JobCounts>,
        is_draining: bool,
    ) {
        if self.is_quiet {
            return;
        }
        let Some(now) = self.line.due() else {
            return;
        };
        let reports = job.metrics();
        let totals = match counts {
            None => self.shape.totals(&reports),
            Some(counts) => self.shape.totals_over_attempts(&reports, &counts()),
        };
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
        let is_below_tables = || Screen::of_process().set_status(Some(parts.join(GAP)));
        if !self.line.showing().is_printed() && is_below_tables() {
            self.has_tables = true;
            self.clear();
        } else {
            self.line.show(&parts);
        }
    }

    /// Removes the line, before other output.
    pub fn clear(&mut self) {
        self.line.clear();
    }

    /// Prints a message above the line. Does nothing while tables are shown, since the line itself
    /// shows the state.
    pub fn print_above(&mut self, text: &str) {
        if Screen::of_process().has_tables() || self.has_tables {
            return;
        }
        // Ends the line with the ^C that the terminal has printed, unless it has just been cleared.
        if !self.line.clear() && io::stderr().is_terminal() {
            print_error("\n");
        }
        print_notice(MessageKind::Progress, text, self.is_json);
    }
}

/// Returns true if results scroll by on the terminal of the line.
fn shares_its_terminal(shape: &GraphView) -> bool {
    let mut sinks = shape.vertices.iter().filter(|vertex| vertex.is_sink);
    sinks.any(|sink| sink.name.starts_with("stdout")) && io::stdout().is_terminal()
}

/// The values that the line shows.
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
    /// Returns the parts of the line, most important first.
    fn parts(&self) -> Vec<String> {
        let name: String = self
            .name
            .chars()
            .map(|c| if is_invisible(c) { ' ' } else { c })
            .collect();
        let mut parts = vec![format!("{name} {}", format_number::duration(self.elapsed))];
        if self.is_draining {
            parts.push("draining (Ctrl-C again stops at once)".into());
        }
        let flow = |word: &str, rate: f64, count: u64| {
            format!(
                "{word} {}/s ({})",
                format_number::short(rate),
                format_number::short(count as f64)
            )
        };
        parts.push(flow("in", self.rate_in, self.totals.records_in));
        parts.push(flow("out", self.rate_out, self.totals.records_out));
        parts.extend(self.event_time());
        if self.totals.late > 0 {
            parts.push(format!("late {}", format_number::grouped(self.totals.late)));
        }
        if self.dead_letters > 0 {
            parts.push(format!(
                "dead letters {}",
                format_number::grouped(self.dead_letters)
            ));
        }
        parts
    }

    /// Returns the progress of event time: the lag if it is live, the date if it is a replay.
    fn event_time(&self) -> Option<String> {
        let watermark = self.totals.watermark;
        if watermark == Timestamp::MIN || watermark == Timestamp::MAX {
            return None;
        }
        if watermark.since(self.wall) < LIVE && self.wall.since(watermark) < LIVE {
            return Some(format!(
                "behind {}",
                format_number::duration(self.wall.since(watermark))
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
                late_in_part: 0,
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
}
