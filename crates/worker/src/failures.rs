//! Counters of failed and restarted instances of this container.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::ErrorCode;

/// The failures of each instance since the start of this process.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<String, BTreeMap<u32, Counts>>>);

/// The counters of one instance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// The number of restarts.
    pub(crate) restarts: u64,
    /// The numbers of errors and panics, by code.
    pub(crate) exceptions: BTreeMap<&'static str, u64>,
}

impl Failures {
    /// Counts a restart of an instance.
    pub(crate) fn restarts(&self, vertex: &str, instance: u32) {
        self.change(vertex, instance, |counts| counts.restarts += 1);
    }

    /// Counts a failure of an instance.
    pub(crate) fn fails(&self, vertex: &str, instance: u32, code: ErrorCode) {
        self.change(vertex, instance, |counts| {
            *counts.exceptions.entry(code.as_str()).or_default() += 1;
        });
    }

    /// Returns the counters of an instance.
    pub(crate) fn of(&self, vertex: &str, instance: u32) -> Counts {
        let counts = self.counts();
        let found = counts.get(vertex).and_then(|it| it.get(&instance));
        found.cloned().unwrap_or_default()
    }

    fn change(&self, vertex: &str, instance: u32, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts();
        let of_vertex = counts.entry(vertex.to_owned()).or_default();
        change(of_vertex.entry(instance).or_default());
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<u32, Counts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_instance_and_code() {
        let failures = Failures::default();
        failures.restarts("counts", 1);
        failures.fails("counts", 1, ErrorCode::UserPanic);
        failures.fails("counts", 1, ErrorCode::UserPanic);
        let counts = failures.of("counts", 1);
        assert_eq!((counts.restarts, counts.exceptions["ARD-201"]), (1, 2));
        assert_eq!(failures.of("counts", 0), Counts::default());
    }
}
