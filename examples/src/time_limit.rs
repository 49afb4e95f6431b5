//! Sources with a time limit.

use std::sync::Arc;
use std::time::Duration;

use ardea::Result;
use ardea::core::{
    Bounded, Clock, Epoch, Instance, InstanceContext, Outbox, Processor, Progress, Source,
    SourceControl,
};

/// Ends a source after `length` if it has not ended by itself. Without the limit, a generator for
/// ten seconds runs longer if its job cannot keep up.
pub(crate) fn with_time_limit<T, B>(source: Source<T, B>, length: Duration) -> Source<T, Bounded> {
    let (name, made_by, parallelism, isolation) = source.into_parts();
    let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(TimeLimitP {
            source: made_by.supply(instance)?,
            length,
            clock: Clock::system(),
            end: None,
        }))
    };
    Source::new(name, Arc::new(supply))
        .parallelism(parallelism)
        .isolation(isolation)
}

/// The longest time until the next check of the end.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// A processor that forwards all calls to the source until the time limit.
struct TimeLimitP {
    source: Box<dyn Processor>,
    length: Duration,
    clock: Clock,
    /// The end, set by the first call.
    end: Option<Duration>,
}

impl Processor for TimeLimitP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.source.init(context)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let now = self.clock.now();
        let end = *self.end.get_or_insert(now.saturating_add(self.length));
        // A source that has kept up emits its last records here, so that none is missing.
        let progress = self.source.complete(outbox)?;
        if progress.done || now >= end {
            return Ok(Progress::DONE);
        }
        outbox.wake_at(end.min(now.saturating_add(MAX_WAIT)));
        Ok(progress)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.source.on_epoch(epoch, outbox)
    }

    fn close(&mut self) {
        self.source.close();
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        self.source.source_control()
    }
}

#[cfg(test)]
mod tests {
    use ardea::core::ManualClock;
    use ardea::prelude::*;

    use super::*;

    /// Reads a source of 1,000 records a second in a job that takes `room` records per call.
    /// Returns the number of records after `calls` calls in its second, and whether it is done.
    fn made(room: usize, calls: usize) -> (usize, bool) {
        let hand = ManualClock::new();
        let source = with_time_limit(
            generate::at_rate(1_000, |i| i).limit(1_000).build(),
            Duration::from_secs(1),
        );
        let (_, made_by, ..) = source.into_parts();
        let mut source = made_by.supply(Instance::ONLY).unwrap();
        let context = InstanceContext {
            clock: hand.clock(),
            ..InstanceContext::detached("source")
        };
        source.init(&context).unwrap();
        let mut count = 0;
        for _ in 0..calls {
            let mut outbox = Outbox::new(1, room);
            let progress = source.complete(&mut outbox).unwrap();
            count += outbox
                .lane::<u64>(ardea::core::Ordinal::FIRST)
                .unwrap()
                .rows()
                .len();
            if progress.done {
                return (count, true);
            }
            hand.advance(Duration::from_millis(100));
        }
        (count, false)
    }

    #[test]
    fn a_generator_that_keeps_up_makes_all_and_one_that_does_not_ends_all_the_same() {
        assert_eq!(made(1_024, 20), (1_000, true));
        assert_eq!(made(10, 10), (91, false));
        assert_eq!(made(10, 20), (101, true));
    }
}
