//! A bolt that prints.

use std::io::{self, Write};

use ardea_core::{Error, ErrorCode, Result};
use ardea_topology::{Bolt, Collector, ComponentState, Failure, Outcome, Settings, Tuple, Tuples};
use serde::Deserialize;

/// A bolt that prints tuples on standard output, one per line. A write error fails the job and not
/// the tuple.
#[derive(Default)]
pub(super) struct Print(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrintSettings {}

impl Print {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        let PrintSettings {} = settings.parse()?;
        Ok(Print::default())
    }

    fn add(&mut self, tuple: &Tuple<'_>) {
        use std::fmt::Write;
        for (place, value) in tuple.values().enumerate() {
            if place > 0 {
                self.0.push('\t');
            }
            // Writing to a string can't fail.
            let _ = write!(self.0, "{value}");
        }
        self.0.push('\n');
    }

    fn print(&mut self) -> Outcome {
        let mut out = io::stdout().lock();
        let written = out.write_all(self.0.as_bytes()).and_then(|()| out.flush());
        self.0.clear();
        written.map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::BrokenPipe => ErrorCode::OutputClosed,
                _ => ErrorCode::WriteFailed,
            };
            let told = Error::new(code, "cannot write to standard output").because(error);
            Failure::of_the_job(told.hint("check the free space where it leads"))
        })
    }
}

impl Bolt for Print {
    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Stateless
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        self.add(tuple);
        self.print()
    }

    fn execute_batch(&mut self, tuples: &Tuples<'_>, _: &mut Collector<'_>) -> Outcome<usize> {
        tuples.iter().for_each(|tuple| self.add(&tuple));
        self.print()?;
        Ok(tuples.len())
    }
}
