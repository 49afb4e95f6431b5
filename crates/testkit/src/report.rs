//! What a test says at its end.

use std::fmt;
use std::time::Duration;

use crate::callback::Call;
use crate::driver::Timing;

/// What a passed test has seen. Times are for reading: no test fails for them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TestReport {
    /// How many ways the processor was run to its end.
    pub variants: usize,
    /// How many runs were cancelled on their way.
    pub cancelled: usize,
    /// In how many runs the processor handed over what it remembers, and others went on with it.
    pub survived: usize,
    /// How many callbacks were called.
    pub calls: u64,
    /// The longest call.
    pub longest_slice: Duration,
    /// Which callback the longest call was.
    pub longest_callback: String,
    /// How many calls took longer than the cooperative limit.
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

/// Why a test failed: the variant, the broken rule, and the calls that led there.
#[derive(Clone, Debug)]
pub struct TestFailure {
    pub(crate) processor: String,
    pub(crate) variant: String,
    pub(crate) broken: String,
    pub(crate) trace: Vec<Call>,
}

impl TestFailure {
    /// What was broken, without the circumstances.
    pub fn broken(&self) -> &str {
        &self.broken
    }

    /// In which variant it was found.
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
