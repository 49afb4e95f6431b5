//! Bolts, which process tuples.

use std::time::Duration;

use crate::collector::Collector;
use crate::context::ComponentContext;
use crate::failure::Outcome;
use crate::outputs::Outputs;
use crate::state::ComponentState;
use crate::tuple::{Tuple, Tuples};

/// The code of one bolt instance, which takes tuples and emits others.
///
/// Calls come from one thread at a time. They must not block, unless the component is declared
/// [`on_thread`](crate::BoltDeclarer::on_thread). The state is in the fields of the implementing
/// type; [`state`](Bolt::state) returns the part that checkpoints contain.
///
/// A tuple is acked when `execute` returns `Ok` for it, and tuples emitted meanwhile are anchored
/// to it. If `execute` returns a failure, the tuple fails: the spout is notified and may emit it
/// again. A bolt that needs a tuple after `execute` has returned [holds](Collector::hold) it. A
/// panic fails the job, with the tuple in the message.
pub trait Bolt: Send {
    /// Returns the emitted streams with their fields; by default none. Called on a new instance
    /// when the topology is built.
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    /// Returns the state of this instance that checkpoints contain. Called at any time; the same
    /// declaration at each call.
    ///
    /// States are opened in [`prepare`](Bolt::prepare) and restored after it. A `KeyedState` must
    /// have the keys of the bolt's fields grouping: a state with keys of another instance fails the
    /// job.
    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Undeclared
    }

    /// Called once before all other calls but [`state`](Bolt::state). A failure fails the job.
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let _ = context;
        Ok(())
    }

    /// Processes one tuple.
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome;

    /// Processes many tuples at once. Returns the number of tuples, from the front, that were
    /// processed; the rest is passed again.
    ///
    /// The default calls [`execute`](Bolt::execute) for each tuple. Override this method to perform
    /// one step for all tuples of a chunk before the next, such as computing all hashes before
    /// table lookups. Processed tuples are acked on return, except [failed](Collector::fail_tuple)
    /// or [held](Collector::hold) ones; a returned failure fails all tuples without a result.
    /// Tuples emitted outside [`Collector::settle`] are not anchored, and a panic outside it is
    /// reported with the chunk's first tuple.
    #[inline]
    fn execute_batch(&mut self, tuples: &Tuples<'_>, out: &mut Collector<'_>) -> Outcome<usize> {
        for (dealt_with, tuple) in tuples.iter().enumerate() {
            if dealt_with > 0 && out.is_full() {
                return Ok(dealt_with);
            }
            out.settle(&tuple, |out| self.execute(&tuple, out))?;
        }
        Ok(tuples.len())
    }

    /// Returns the interval of [`tick`](Bolt::tick) calls, if any;
    /// [`tick_every`](crate::BoltDeclarer::tick_every) overrides it.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    /// Called at regular intervals, between tuples. Emitted tuples are not anchored. A failure is
    /// counted, and the job continues.
    fn tick(&mut self, out: &mut Collector<'_>) -> Outcome {
        let _ = out;
        Ok(())
    }

    /// Called when all spouts are done. Emits remaining tuples and acks held ones, which the spouts
    /// wait for. If tuples are replayed after a failure, `finish` is called again after them. A
    /// failure fails the job.
    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        let _ = out;
        Ok(())
    }

    /// Called once after all other calls, also after a failure. Must not panic.
    fn close(&mut self) {}
}
