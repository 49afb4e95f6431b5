//! Groups of iterations: the threads and their coordinator.
//!
//! A thread receives one plan for all iterations of a group, and reports once at its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use ardea_core::{Error, ErrorCode, Result, panic_message};

use crate::dataset::Dataset;
use crate::replica::Replica;
use crate::task::Task;

/// The iterations of a group, as a decision for one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupPlan {
    pub(crate) first: u64,
    /// The iteration after the last one.
    pub(crate) end: u64,
}

/// A thread that runs the tasks of its partitions.
pub(crate) struct GroupWorker<'t, P, F> {
    pub(crate) replica: &'t Replica<'t>,
    pub(crate) dataset: &'t Dataset<P>,
    pub(crate) function: &'t F,
    pub(crate) partitions: std::ops::Range<u32>,
}

impl<'t, P, F> GroupWorker<'t, P, F>
where
    F: Fn(&mut Task<'t, P>) -> Result<()>,
{
    /// Runs groups until there are no more plans.
    pub(crate) fn run(&self, plans: &Receiver<GroupPlan>, reports: &Sender<()>) {
        while let Ok(plan) = plans.recv() {
            self.replica
                .lock()
                .group_began
                .get_or_insert_with(Instant::now);
            if let Err(error) = self.run_group(plan) {
                self.replica.fail(error);
            }
            if reports.send(()).is_err() {
                return;
            }
        }
    }

    fn run_group(&self, plan: GroupPlan) -> Result<()> {
        for iteration in plan.first..plan.end {
            for index in self.partitions.clone() {
                if self.is_over() {
                    return Ok(());
                }
                self.run_task(iteration, index)?;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let state = self.replica.lock();
        state.is_stopped || state.failure.is_some()
    }

    fn run_task(&self, iteration: u64, index: u32) -> Result<()> {
        let Some(partition) = self.dataset.partitions().get(index as usize) else {
            return Ok(());
        };
        let mut task = Task {
            replica: self.replica,
            partition,
            index,
            iteration,
            updates: self.replica.operations.iter().map(|_| None).collect(),
        };
        let place = || format!("iteration {iteration}, partition {index}");
        let outcome = catch_panics(place, || {
            (self.function)(&mut task)?;
            self.replica.contribute(iteration, index, task.updates)
        });
        match outcome {
            Ok(()) => Ok(()),
            // The run has ended while the task waited.
            Err(error) if error.code() == ErrorCode::Cancelled && self.is_over() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Calls user code; a panic becomes an error with its place.
pub(crate) fn catch_panics(
    place: impl FnOnce() -> String,
    call: impl FnOnce() -> Result<()>,
) -> Result<()> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let what = format!("user code panicked in {}", place());
        Err(Error::new(ErrorCode::UserPanic, what).because(panic_message(&*panic)))
    })
}
