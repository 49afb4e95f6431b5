//! The processor that runs a bolt instance: passes it tuples and ticks, and sends its output.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, DeadLetter, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, OnError,
    Ordinal, Outbox, Processor, Progress, Result, Watermark,
};
use ardea_instance::GuestInstance;

use crate::ack_batcher::AckBatcher;
use crate::batch::TupleBatch;
use crate::bolt::Bolt;
use crate::collector::{AckBookkeeping, Collector};
use crate::compile::BoltWiring;
use crate::component::ComponentFactory;
use crate::context::ComponentContext;
use crate::emitter::Emitter;
use crate::failure::Outcome;
use crate::guest::{BoltGuest, GuestWiring};
use crate::outputs::Outputs;
use crate::process::ComponentTraits;
use crate::state::{StatefulComponent, UNDECLARED_BOLT, UNSAVED_ACKS};
use crate::tuple::{Origin, Tuples};

/// The factory of a bolt's instances.
pub(crate) struct BoltMaker<F>(pub(crate) F);

impl<B, F> ComponentFactory<BoltWiring> for BoltMaker<F>
where
    B: Bolt + 'static,
    F: Fn() -> Result<B> + Send + Sync,
{
    fn outputs(&self) -> Result<Outputs> {
        Ok((self.0)()?.outputs())
    }

    fn traits(&self) -> Result<ComponentTraits> {
        let mut bolt = (self.0)()?;
        let tick = bolt.tick_interval();
        Ok(ComponentTraits::of(bolt.state(), tick))
    }

    fn guest(&self, wiring: GuestWiring) -> Result<Box<dyn GuestInstance>> {
        Ok(Box::new(BoltGuest::new((self.0)()?, wiring)))
    }

    fn processor(
        &self,
        wiring: &Arc<BoltWiring>,
        instance: Instance,
    ) -> Result<Box<dyn Processor>> {
        let bolt = StatefulComponent::new((self.0)()?, B::state, instance);
        let tick = wiring.tick.or_else(|| bolt.tick_interval());
        let inputs = wiring
            .inputs
            .iter()
            .map(|input| input.for_instance(instance));
        Ok(Box::new(BoltProcessor {
            bolt,
            origins: inputs.collect(),
            wiring: Arc::clone(wiring),
            tick: tick.filter(|tick| !tick.is_zero()),
            tick_due: None,
            running: None,
            has_seen_end: false,
        }))
    }
}

/// One instance of a bolt, in the graph.
pub(crate) struct BoltProcessor<B> {
    /// The bolt; it has ended if `finish` was called since the latest tuple.
    bolt: StatefulComponent<B>,
    wiring: Arc<BoltWiring>,
    /// The origin of the tuples of each input.
    origins: Vec<Origin>,
    tick: Option<Duration>,
    tick_due: Option<Duration>,
    running: Option<Running>,
    /// True if all spouts are done: only replayed tuples follow.
    has_seen_end: bool,
}

/// The state that exists from `init` on.
struct Running {
    context: InstanceContext,
    bookkeeping: AckBookkeeping,
}

impl<B: Bolt> BoltProcessor<B> {
    /// Calls the bolt between tuples, and sends its output.
    fn call_bolt(
        &mut self,
        outbox: &mut Outbox,
        what: impl FnOnce(&mut B, &mut Collector<'_>) -> Outcome,
    ) -> Result<Outcome> {
        let Some(Running {
            context,
            bookkeeping: ledger,
        }) = &mut self.running
        else {
            return Err(unopened());
        };
        let mut out = Collector::new(ledger, context);
        let outcome = what(&mut self.bolt, &mut out);
        let failures = out.failures;
        if failures > 0 {
            context.metrics.count_bad(failures);
        }
        ledger.emitter.flush(outbox)?;
        ledger.ack_batcher.flush();
        Ok(outcome)
    }

    fn has_room(&self, outbox: &Outbox) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.bookkeeping.emitter.has_room(outbox))
    }

    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        match &mut self.running {
            Some(running) => running.bookkeeping.emitter.flush(outbox),
            None => Ok(true),
        }
    }

    /// Calls `finish` unless it was called since the latest tuple; returns true if all its output
    /// is sent.
    fn finish(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.bolt.has_ended {
            if !self.has_room(outbox) {
                return Ok(false);
            }
            self.bolt.has_ended = true;
            self.call_bolt(outbox, |bolt, out| bolt.finish(out))?
                .map_err(|failure| failure.into_error("the bolt could not finish"))?;
        }
        self.flush(outbox)
    }

    /// Calls `tick` if it is due, and sets the timer for the next call.
    fn tick_if_due(&mut self, outbox: &mut Outbox) -> Result<()> {
        let (Some(interval), Some(due)) = (self.tick, self.tick_due) else {
            return Ok(());
        };
        let Some(running) = &self.running else {
            return Ok(());
        };
        let now = running.context.clock.now();
        if now < due || !self.has_room(outbox) {
            outbox.wake_at(due.max(now));
            return Ok(());
        }
        // Missed ticks are skipped.
        let next = if due + interval > now {
            due + interval
        } else {
            now + interval
        };
        self.tick_due = Some(next);
        outbox.wake_at(next);
        if let Err(failure) = self.call_bolt(outbox, |bolt, out| bolt.tick(out))? {
            if let Some(error) = failure.fatal() {
                return Err(error);
            }
            self.set_aside_tick(&failure.to_string())?;
        }
        Ok(())
    }

    fn set_aside_tick(&self, reason: &str) -> Result<()> {
        let Some(Running { context, .. }) = &self.running else {
            return Ok(());
        };
        context.metrics.count_bad(1);
        context
            .dead_letters
            .handle(OnError::DeadLetter, || DeadLetter {
                vertex: context.vertex.to_string(),
                origin: "a tick".to_string(),
                raw: Vec::new(),
                reason: reason.to_string(),
            })
    }
}

#[cold]
fn unopened() -> Error {
    Error::new(
        ErrorCode::Internal,
        "a bolt was called before it was opened",
    )
}

impl<B: Bolt> Processor for BoltProcessor<B> {
    fn unsaved_state(&self) -> Option<&'static str> {
        if self.wiring.ack_queues.is_some() {
            return Some(UNSAVED_ACKS);
        }
        (!self.bolt.is_declared()).then_some(UNDECLARED_BOLT)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.bolt.checkpointed()
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let is_flushed = self.flush(outbox)?;
        Ok(Progress {
            made: is_flushed,
            done: is_flushed,
        })
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let wiring = &self.wiring;
        let emitter = Emitter::new(
            Arc::clone(&context.vertex),
            &wiring.streams,
            &wiring.parallelism,
            wiring.ack_queues.is_some(),
            context.chunk_records,
        );
        let postman = AckBatcher::new(wiring.ack_queues.clone());
        self.running = Some(Running {
            context: context.clone(),
            bookkeeping: AckBookkeeping::new(emitter, postman),
        });
        let component = ComponentContext {
            instance: context.clone(),
            parallelism: Arc::clone(&wiring.parallelism),
        };
        self.tick_due = self.tick.map(|interval| context.clock.now() + interval);
        if self.tick_due.is_some() {
            // The first call sets the timer.
            context.waker.wake();
        }
        self.bolt
            .prepare(&component)
            .map_err(|failure| failure.into_error("the bolt could not be prepared"))
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.flush(outbox)? || !self.has_room(outbox) {
            return Ok(());
        }
        let (
            Some(Running {
                context,
                bookkeeping: ledger,
            }),
            Some(origin),
        ) = (&mut self.running, self.origins.get(input.index()))
        else {
            return Err(unopened());
        };
        self.bolt.has_ended = false;
        let batch = inbox.batch::<TupleBatch>()?;
        let tuples = Tuples { batch, origin };
        let mut out = Collector::new(ledger, context);
        let dealt_with = match self.bolt.execute_batch(&tuples, &mut out) {
            Ok(dealt_with) => {
                let dealt_with = dealt_with.min(tuples.len());
                out.ack_rest(&tuples, dealt_with);
                dealt_with
            }
            Err(failure) => {
                if let Some(error) = failure.fatal() {
                    return Err(error);
                }
                if let Err(failure) = out.fail_rest(&tuples, &failure) {
                    return Err(failure.into_error("a failed tuple could not be set aside"));
                }
                tuples.len()
            }
        };
        let failures = out.failures;
        if failures > 0 {
            context.metrics.count_bad(failures);
        }
        batch.discard_front(dealt_with);
        ledger.emitter.flush(outbox)?;
        ledger.ack_batcher.flush();
        if self.has_seen_end {
            // The end is not signalled again: `finish` must be called again after these tuples.
            context.waker.wake();
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if watermark == Watermark::END {
            self.has_seen_end = true;
            if !self.finish(outbox)? {
                return Ok(Progress::NONE);
            }
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        Ok(if self.finish(outbox)? {
            Progress::DONE
        } else {
            Progress::NONE
        })
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.flush(outbox)?;
        if self.has_seen_end {
            self.finish(outbox)?;
        }
        self.tick_if_due(outbox)
    }

    fn close(&mut self) {
        self.bolt.close();
    }
}
