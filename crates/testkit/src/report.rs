//! Reports of passed and failed tests.

use std::fmt;
use std::time::Duration;

use crate::callback::Call;
use crate::driver::Timing;

/// The counts and durations of a passed test. Durations are informational: no test fails because of
/// them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TestReport {
    /// The number of variants that the processor was run through to its end.
    pub variants: usize,
    /// The number of cancelled runs.
    pub cancelled: usize,
    /// The number of runs with snapshots and restored processors.
    pub runs_with_failures: usize,
    /// The number of calls of callbacks.
    pub calls: u64,
    /// The duration of the longest call.
    pub longest_slice: Duration,
    /// The callback of the longest call.
    pub longest_callback: String,
    /// The number of calls that took longer than the cooperative limit.
    pub slices_over_limit: u64,
}

impl TestReport {
    pub(crate) fn add(&mut self, timing: Timing) {
        self.calls += timing.calls;
        self.slices_over_limit += timing.over_limit;
        if timing.longest > self.longest_slice {
            self.longest_slice = timing.longest;
            self.longest_callback = timing
                .longest_callback
                .map_or(String::new(), |callback| callback.to_string());
        }
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} variants, {} cancelled runs, {} calls; the longest took {:?} ({}), {} were over the limit",
            self.variants,
            self.cancelled,
            self.calls,
            self.longest_slice,
            self.longest_callback,
            self.slices_over_limit
        )
    }
}

/// The failure of a test: the variant, the broken rule, and the last calls before it.
#[derive(Clone, Debug)]
pub struct TestFailure {
    pub(crate) processor: String,
    pub(crate) variant: String,
    pub(crate) broken: String,
    pub(crate) trace: Vec<Call>,
}

impl TestFailure {
    /// The broken rule, without its circumstances.
    pub fn broken(&self) -> &str {
        &self.broken
    }

    /// The variant in which the fault was found.
    pub fn variant(&self) -> &str {
        &self.variant
    }
}

impl fmt::Display for TestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} broke its contract", self.processor)?;
        writeln!(f, "  variant: {}", self.variant)?;
        write!(f, "  broken:  {}", self.broken)?;
        if !self.trace.is_empty() {
            write!(f, "\n  the last calls:")?;
            for call in &self.trace {
                write!(f, "\n      {call}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for TestFailure {}
