//! What is done with tuples.

use std::time::Duration;

use crate::collector::Collector;
use crate::context::ComponentContext;
use crate::failure::Outcome;
use crate::outputs::Outputs;
use crate::tuple::{Tuple, Tuples};

/// Takes tuples, and emits others: the code of one instance.
///
/// One thread at a time calls it, and none of its calls blocks, unless the component is declared
/// [`on_thread`](crate::BoltDeclarer::on_thread). What it remembers are its own fields.
///
/// Each tuple that `execute` returns from with `Ok` is acked, and what was emitted meanwhile is tied to it; one that it returns a failure
/// for is failed: the spout is told, and may emit it again. A bolt that is not through with a tuple when `execute` returns
/// [holds](Collector::hold) it. A panic fails the job, with the tuple named.
pub trait Bolt: Send {
    /// The streams that it emits, with their fields; none unless it says so. Asked of a fresh instance when the topology is built.
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    /// Called once before all others. A failure fails the job.
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        let _ = context;
        Ok(())
    }

    /// Deals with one tuple.
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome;

    /// Deals with many tuples at once, and returns how many, from the front, it has dealt with; what is left comes again.
    ///
    /// The default calls [`execute`](Bolt::execute) with each. A bolt overrides it to do something for all tuples of a chunk before it does
    /// the next thing, such as computing all hashes before it looks into a table. Those dealt with are acked on return, except for
    /// those that were [failed](Collector::fail_tuple) or [held](Collector::hold); a failure fails them all. What is emitted outside of
    /// [`Collector::settle`] is tied to nothing, and a panic there names the chunk's first tuple.
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

    /// How often [`tick`](Bolt::tick) is called, if at all; [`Declarer::tick_every`](crate::BoltDeclarer::tick_every) overrides it.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    /// Called at regular times, between tuples. What it emits is tied to nothing. A failure is counted, and the job goes on.
    fn tick(&mut self, out: &mut Collector<'_>) -> Outcome {
        let _ = out;
        Ok(())
    }

    /// All spouts have said that they are done. Emits what is left, and acks what is held: the spouts wait for it. If tuples come again
    /// after a failure, it is called again after them. A failure fails the job.
    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        let _ = out;
        Ok(())
    }

    /// Called once after all others, also after a failure. Must not panic.
    fn close(&mut self) {}
}
