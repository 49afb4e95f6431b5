//! `ardea nexmark generate`: writes events as JSON lines.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use ardea_nexmark::{GeneratorConfig, write_jsonl};
use serde_json::json;

use crate::args::GenerateArgs;
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::figures::{grouped, short};
use crate::output_file::write_whole;
use crate::progress::{REDRAW, REPRINT, can_redraw};
use crate::stdout;

/// Writes the events that the arguments describe.
pub fn run(args: &GenerateArgs, context: &Context) -> Result<(), Failure> {
    let config = GeneratorConfig {
        seed: args.seed,
        events: args.events,
        events_per_second: args.rate,
        out_of_order: args.out_of_order,
        ..GeneratorConfig::default()
    };
    let is_stdout = args.output == Path::new("-");
    let written = write_whole(&args.output, &context.interrupts, |writer| {
        let mut counted = Counted::new(writer, args.events, Showing::of(context, is_stdout));
        let outcome = write_jsonl(config, &mut counted);
        counted.clear();
        Ok(outcome?)
    })?;
    if context.json && !is_stdout {
        return stdout::print_json(
            &json!({ "events": written, "output": args.output.display().to_string() }),
        );
    }
    if !context.quiet && !is_stdout {
        print_error(&format!(
            "{} events written to {}\n",
            grouped(written),
            args.output.display()
        ));
    }
    Ok(())
}

/// How progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Showing {
    Not,
    Redrawn,
    Printed,
}

impl Showing {
    /// On a terminal, unless the events go to it; in a pipe if asked for.
    fn of(context: &Context, is_stdout: bool) -> Self {
        match (context.quiet, can_redraw()) {
            (true, _) => Showing::Not,
            (false, true) if !is_stdout => Showing::Redrawn,
            (false, false) if context.progress => Showing::Printed,
            (false, _) => Showing::Not,
        }
    }

    fn period(self) -> Duration {
        if self == Showing::Printed {
            REPRINT
        } else {
            REDRAW
        }
    }
}

/// Passes events on, and shows how many there have been.
struct Counted<'a> {
    writer: &'a mut dyn Write,
    showing: Showing,
    events: u64,
    total: u64,
    start: Instant,
    next: Duration,
    is_shown: bool,
}

impl<'a> Counted<'a> {
    fn new(writer: &'a mut dyn Write, total: u64, showing: Showing) -> Self {
        Counted {
            writer,
            showing,
            events: 0,
            total,
            start: Instant::now(),
            next: showing.period(),
            is_shown: false,
        }
    }

    fn show(&mut self) {
        let elapsed = self.start.elapsed();
        if elapsed < self.next {
            return;
        }
        self.next = elapsed + self.showing.period();
        let line = line(self.events, self.total, elapsed);
        if self.showing == Showing::Printed {
            print_error(&format!("{line}\n"));
        } else {
            print_error(&format!("\r{line}\x1b[K"));
            self.is_shown = true;
        }
    }

    /// Takes the line away.
    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            print_error("\r\x1b[K");
        }
    }
}

/// Short enough for any terminal.
fn line(events: u64, total: u64, elapsed: Duration) -> String {
    let rate = events as f64 / elapsed.as_secs_f64().max(1e-9);
    format!(
        "{} of {} events  {}/s  {} %",
        short(events as f64),
        short(total as f64),
        short(rate),
        (u128::from(events) * 100)
            .checked_div(u128::from(total))
            .unwrap_or(100)
    )
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        if self.showing != Showing::Not {
            let ends = bytes[..written].iter().filter(|byte| **byte == b'\n');
            self.events += ends.count() as u64;
            self.show();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is_and_how_fast_it_goes() {
        let line = line(1_250_000, 10_000_000, Duration::from_secs(2));
        assert_eq!(line, "1.25 M of 10.0 M events  625 k/s  12 %");
    }

    #[test]
    fn whole_events_are_counted_whatever_the_pieces() {
        let mut out = Vec::new();
        let mut counted = Counted::new(&mut out, 2, Showing::Redrawn);
        counted.write_all(b"{}\n{").unwrap();
        assert_eq!(counted.events, 1);
        counted.write_all(b"}\n").unwrap();
        assert_eq!(counted.events, 2);
        assert_eq!(out, b"{}\n{}\n");
    }
}
