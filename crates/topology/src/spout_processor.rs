//! The processor that runs a spout instance: emits, receives acks, and tracks its messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, InstanceContext, Outbox, OutboxRuntime,
    Processor, Progress, Result, SourceControl, Watermark,
};
use ardea_instance::GuestInstance;

use crate::ack_channel::AckQueues;
use crate::ack_queue::{AckMessages, AckQueue};
use crate::acker::{AckActions, AckEvent, Acker, FailReason};
use crate::anchor::{Ids, Task};
use crate::call_budget::CallBudget;
use crate::compile::SpoutWiring;
use crate::component::ComponentFactory;
use crate::context::ComponentContext;
use crate::emitter::Emitter;
use crate::failure::Outcome;
use crate::guest::{GuestWiring, SpoutGuest};
use crate::outputs::Outputs;
use crate::process::ComponentTraits;
use crate::running::SpoutCounters;
use crate::spout::{Next, Spout, SpoutCollector};
use crate::state::{StatefulComponent, UNSAVED_ACKS};

/// The factory of a spout's instances.
pub(crate) struct SpoutMaker<F>(pub(crate) F);

impl<S, F> ComponentFactory<SpoutWiring> for SpoutMaker<F>
where
    S: Spout + 'static,
    F: Fn() -> Result<S> + Send + Sync,
{
    fn outputs(&self) -> Result<Outputs> {
        Ok((self.0)()?.outputs())
    }

    fn has_fixed_instances(&self) -> bool {
        S::has_fixed_instances()
    }

    fn traits(&self) -> Result<ComponentTraits> {
        Ok(ComponentTraits::of((self.0)()?.state(), None))
    }

    fn guest(&self, wiring: GuestWiring) -> Result<Box<dyn GuestInstance>> {
        Ok(Box::new(SpoutGuest::new((self.0)()?, wiring)))
    }

    fn processor(
        &self,
        wiring: &Arc<SpoutWiring>,
        instance: Instance,
    ) -> Result<Box<dyn Processor>> {
        Ok(Box::new(SpoutProcessor::new((self.0)()?, wiring, instance)))
    }
}

/// One instance of a spout, in the graph.
pub(crate) struct SpoutProcessor<S> {
    spout: StatefulComponent<S>,
    wiring: Arc<SpoutWiring>,
    counters: Arc<SpoutCounters>,
    running: Option<Running>,
}

/// The state that exists from `init` on.
struct Running {
    context: InstanceContext,
    emitter: Emitter,
    tracker: Option<MessageTracker>,
    actions: AckActions,
    /// Tuples emitted by earlier incarnations in this process.
    emitted_before: u64,
    is_active: bool,
    /// True if the spout is done, and no message has failed since.
    is_exhausted: bool,
    /// True if the instance is to end, has replayed all failed messages, and none has failed since.
    has_replayed: bool,
    has_signalled_end: bool,
}

impl Running {
    /// Returns true if no failed message waits to be replayed here.
    fn has_no_replays(&self) -> bool {
        let follower = self.tracker.as_ref();
        // A moved instance replays in its new process.
        self.has_replayed || follower.is_none_or(|follower| follower.has_moved)
    }
}

/// The message tracking, with acks on.
struct MessageTracker {
    acker: Acker,
    ack_queue: Arc<AckQueue>,
    /// The incarnation of this spout at the ack queue.
    incarnation: u64,
    acks: AckMessages,
    mailboxes: Arc<AckQueues>,
    /// The number of process losses handled.
    losses: u64,
    /// True if the instance has moved: this incarnation gets no more acks, and emits nothing.
    has_moved: bool,
}

impl MessageTracker {
    /// Handles received acks, and adds the resulting notifications to `actions`.
    fn listen(&mut self, now: Duration, actions: &mut AckActions) {
        let MessageTracker {
            acker,
            ack_queue: mailbox,
            acks: mail,
            ..
        } = self;
        let mut is_loss = false;
        if mailbox.take(mail) {
            is_loss = mail.is_loss;
            acker.on(now, AckEvent::Updates(&mail.updates), actions);
            acker.on(now, AckEvent::Failed(&mail.failed), actions);
            mail.clear();
        }
        let (losses, has_moved) = (self.mailboxes.losses(), self.ack_queue.is_remote());
        if is_loss || losses != self.losses || (has_moved && !self.has_moved) {
            acker.on(now, AckEvent::Lost, actions);
        } else if acker.deadline().is_some_and(|deadline| deadline <= now) {
            acker.on(now, AckEvent::Time, actions);
        }
        (self.losses, self.has_moved) = (losses, has_moved);
    }
}

impl<S: Spout> SpoutProcessor<S> {
    pub(crate) fn new(spout: S, wiring: &Arc<SpoutWiring>, instance: Instance) -> Self {
        SpoutProcessor {
            spout: StatefulComponent::new(spout, S::state, instance),
            wiring: Arc::clone(wiring),
            counters: wiring.instances.counters(instance.index),
            running: None,
        }
    }

    /// Handles received acks, and notifies the spout; returns true if there were any.
    fn listen(&mut self) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let actions = &mut running.actions;
        if let Some(follower) = &mut running.tracker {
            follower.listen(running.context.clock.now(), actions);
        }
        if actions.is_empty() {
            return false;
        }
        notify_spout(&mut *self.spout, actions, &self.counters);
        running.is_exhausted &= actions.failed.is_empty();
        running.has_replayed &= actions.failed.is_empty();
        actions.clear();
        true
    }

    /// Emits tuples while there is room; returns the spout's request for the next call.
    fn emit(&mut self) -> Result<Option<Next>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let active = is_active(&self.wiring, &running.context);
        if active != running.is_active {
            running.is_active = active;
            if active {
                self.spout.activate();
            } else {
                self.spout.deactivate();
            }
        }
        if !active || running.is_exhausted {
            return Ok(None);
        }
        let next = self.call_spout(S::next_batch)?;
        if let Some(running) = &mut self.running {
            running.is_exhausted |= next == Some(Next::Done);
        }
        Ok(next)
    }

    /// Replays failed messages while there is room; returns the spout's request for the next call.
    fn replay(&mut self) -> Result<Option<Next>> {
        let next = self.call_spout(|spout, out| {
            loop {
                let next = spout.next_failed(out)?;
                if next != Next::More || out.is_full() {
                    return Ok(next);
                }
            }
        })?;
        if let Some(running) = &mut self.running {
            running.has_replayed |= next == Some(Next::Done);
        }
        Ok(next)
    }

    /// Calls the spout to emit, if there is room and the instance is local; returns its answer.
    fn call_spout<R>(
        &mut self,
        ask: impl FnOnce(&mut S, &mut SpoutCollector<'_>) -> Outcome<R>,
    ) -> Result<Option<R>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let follower = running.tracker.as_mut();
        let has_moved = follower.as_ref().is_some_and(|it| it.has_moved);
        let acker = follower.map(|follower| &mut follower.acker);
        let room = acker.as_ref().map_or(usize::MAX, |acker| {
            let most = self.wiring.max_pending.saturating_sub(acker.pending());
            most.min(acker.room())
        });
        if has_moved || room == 0 {
            return Ok(None);
        }
        running.emitter.apply_parallelism();
        let mut out = SpoutCollector {
            emitter: &mut running.emitter,
            acker,
            actions: &mut running.actions,
            room,
            budget: CallBudget::start(&running.context.clock),
            is_relayed: false,
        };
        let next = ask(&mut self.spout, &mut out);
        let next = next.map_err(|failure| failure.into_error("the spout failed"))?;
        self.counters.emitted.store(
            running.emitted_before + running.emitter.emitted(),
            Ordering::Relaxed,
        );
        Ok(Some(next))
    }

    /// Waits until an event, or until the time that the spout requested.
    fn rest(&mut self, wait: Option<Duration>, outbox: &mut Outbox) -> Progress {
        let Some(running) = &mut self.running else {
            return Progress::NONE;
        };
        // Without a deadline the engine would poll at its idle interval; a spout that waits relies
        // on being woken.
        let now = running.context.clock.now();
        let mut wake_at = now.saturating_add(wait.unwrap_or(MAX_WAIT));
        if let Some(follower) = &running.tracker {
            if !follower.ack_queue.prepare_wait() {
                return Progress::MADE;
            }
            wake_at = wake_at.min(follower.acker.deadline().unwrap_or(wake_at));
        }
        outbox.wake_at(wake_at);
        Progress::NONE
    }

    fn pending(&self) -> usize {
        let follower = self.running.as_ref().and_then(|r| r.tracker.as_ref());
        follower.map_or(0, |follower| follower.acker.pending())
    }

    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        match &mut self.running {
            Some(running) => running.emitter.flush(outbox),
            None => Ok(true),
        }
    }

    fn step(&mut self, outbox: &mut Outbox, may_emit: bool) -> Result<Progress> {
        let mut made = self.listen();
        if !self.flush(outbox)? {
            return Ok(Progress { made, done: false });
        }
        let next = match may_emit {
            true => self.emit()?,
            false => self.replay()?,
        };
        // Acks of untracked tuples and of those without subscribers are delivered here.
        made |= self.listen();
        let sent = outbox.is_empty();
        let flushed = self.flush(outbox)?;
        made |= sent != outbox.is_empty();
        let pending = self.pending();
        self.counters
            .pending
            .store(pending as u64, Ordering::Relaxed);
        if !flushed {
            return Ok(Progress { made, done: false });
        }
        let exhausted = self.running.as_ref().is_none_or(|it| it.is_exhausted);
        let is_through = match may_emit {
            true => exhausted,
            false => self.running.as_ref().is_none_or(Running::has_no_replays),
        };
        if pending == 0 && is_through {
            let is_prepared = self.prepare_snapshot(None, outbox)?;
            return Ok(Progress {
                made: is_prepared,
                done: is_prepared,
            });
        }
        if exhausted || !may_emit {
            self.signal_end(outbox);
        }
        if made || next == Some(Next::More) {
            return Ok(Progress::MADE);
        }
        let wait = match next {
            Some(Next::Wait(time)) => Some(time),
            _ => None,
        };
        Ok(self.rest(wait, outbox))
    }

    /// Lets the spout prepare the next snapshot; returns true if it has, and all tuples are sent.
    fn prepare_snapshot(&mut self, epoch: Option<Epoch>, outbox: &mut Outbox) -> Result<bool> {
        if !self.flush(outbox)? {
            return Ok(false);
        }
        let is_prepared = self.call_spout(|spout, out| spout.prepare_snapshot(epoch, out))?;
        Ok(self.flush(outbox)? && is_prepared != Some(false))
    }

    /// Signals all bolts, once, that only replayed tuples may follow: they release held tuples.
    fn signal_end(&mut self, outbox: &mut Outbox) {
        if let Some(running) = &mut self.running
            && !running.has_signalled_end
        {
            let has_moved = running.tracker.as_ref().is_some_and(|it| it.has_moved);
            if has_moved {
                // The moved instance emits more in its new process.
                return;
            }
            running.has_signalled_end = true;
            outbox.watermark(Watermark::END);
        }
    }
}

/// The longest wait of an instance that is not woken.
const MAX_WAIT: Duration = Duration::from_secs(1);

fn notify_spout(spout: &mut impl Spout, actions: &AckActions, counters: &SpoutCounters) {
    let add = |counter: &std::sync::atomic::AtomicU64, count: usize| {
        counter.store(
            counter.load(Ordering::Relaxed) + count as u64,
            Ordering::Relaxed,
        );
    };
    if !actions.acked.is_empty() {
        spout.ack_batch(&actions.acked);
        add(&counters.acked, actions.acked.len());
        if !actions.latencies.is_empty() {
            counters.count_latencies(&actions.latencies);
        }
    }
    for (message, reason) in &actions.failed {
        spout.fail(*message);
        match reason {
            FailReason::Bolt => add(&counters.failed, 1),
            FailReason::Timeout => add(&counters.timed_out, 1),
            FailReason::WorkerLost => add(&counters.lost, 1),
        }
    }
}

/// Returns true if spouts may emit: the topology is not deactivated, and its job is not paused.
fn is_active(wiring: &SpoutWiring, context: &InstanceContext) -> bool {
    wiring.controls.is_active() && !context.signals.is_paused()
}

/// Creates the message tracking of this instance; `None` with acks off.
fn message_tracker(
    wiring: &SpoutWiring,
    context: &InstanceContext,
) -> Result<Option<MessageTracker>> {
    let Some(mailboxes) = &wiring.ack_queues else {
        return Ok(None);
    };
    let instance = context.instance.index;
    let task = Task::new(wiring.spout, instance);
    let found = task.and_then(|task| Some((task, mailboxes.of(task)?)));
    let Some((task, mailbox)) = found else {
        let what = format!("a spout can't have an instance {instance}");
        return Err(Error::new(ErrorCode::LimitReached, what)
            .hint(format!("at most {} are possible", Task::MOST_INSTANCES)));
    };
    let first_generation = Ids::random().draw() as u32;
    let now = context.clock.now();
    Ok(Some(MessageTracker {
        acker: Acker::new(task, first_generation, wiring.message_timeout, now),
        incarnation: mailbox.set_spout(context.waker.clone()),
        ack_queue: mailbox,
        acks: AckMessages::default(),
        losses: mailboxes.losses(),
        has_moved: false,
        mailboxes: Arc::clone(mailboxes),
    }))
}

impl<S: Spout> Processor for SpoutProcessor<S> {
    fn unsaved_state(&self) -> Option<&'static str> {
        if self.wiring.ack_queues.is_some() {
            return Some(UNSAVED_ACKS);
        }
        (!self.spout.is_declared())
            .then_some("the position of a spout, which `Spout::state` does not declare")
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.spout.checkpointed()
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let is_prepared = self.prepare_snapshot(Some(epoch), outbox)?;
        Ok(Progress {
            made: is_prepared,
            done: is_prepared,
        })
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let wiring = &self.wiring;
        let follower = message_tracker(wiring, context)?;
        let instance = (wiring.spout, context.instance.index);
        wiring.controls.register(instance, context.waker.clone());
        let is_active = is_active(wiring, context);
        self.running = Some(Running {
            context: context.clone(),
            emitter: Emitter::new(
                Arc::clone(&context.vertex),
                &wiring.streams,
                &wiring.parallelism,
                follower.is_some(),
                context.chunk_records,
            ),
            tracker: follower,
            actions: AckActions::default(),
            emitted_before: self.counters.emitted.load(Ordering::Relaxed),
            is_active,
            is_exhausted: false,
            has_replayed: false,
            has_signalled_end: false,
        });
        let component = ComponentContext {
            instance: context.clone(),
            parallelism: Arc::clone(&wiring.parallelism),
        };
        self.spout
            .open(&component)
            .map_err(|failure| failure.into_error("the spout could not be opened"))?;
        if is_active {
            self.spout.activate();
        }
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.step(outbox, true)
    }

    fn close(&mut self) {
        let follower = self.running.as_ref().and_then(|r| r.tracker.as_ref());
        if let Some(follower) = follower {
            follower.ack_queue.remove_spout(follower.incarnation);
        }
        self.spout.close();
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<S: Spout> SourceControl for SpoutProcessor<S> {
    fn pauses_itself(&self) -> bool {
        true
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.step(outbox, false)
    }
}
