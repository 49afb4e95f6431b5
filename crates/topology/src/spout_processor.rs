//! Runs a spout's instance: emits, listens to what became of its messages, and keeps account of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_core::{
    Error, ErrorCode, Instance, InstanceContext, Outbox, Processor, Progress, Result, Watermark,
};

use crate::ack_channel::Mailboxes;
use crate::acker::{AckActions, AckEvent, Acker, FailReason};
use crate::anchor::{Ids, Task};
use crate::compile::SpoutWiring;
use crate::component::Make;
use crate::context::ComponentContext;
use crate::emitter::Emitter;
use crate::failure::Outcome;
use crate::mailbox::{Mail, Mailbox};
use crate::outputs::Outputs;
use crate::pace::Pace;
use crate::running::SpoutCounters;
use crate::spout::{Next, Spout, SpoutCollector};

/// Makes the instances of a spout.
pub(crate) struct SpoutMaker<F>(pub(crate) F);

impl<S, F> Make<SpoutWiring> for SpoutMaker<F>
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

    fn processor(
        &self,
        wiring: &Arc<SpoutWiring>,
        instance: Instance,
    ) -> Result<Box<dyn Processor>> {
        Ok(Box::new(SpoutP {
            spout: (self.0)()?,
            wiring: Arc::clone(wiring),
            counters: wiring.instances.counters(instance.index),
            running: None,
        }))
    }
}

/// One instance of a spout, in the graph.
pub(crate) struct SpoutP<S> {
    spout: S,
    wiring: Arc<SpoutWiring>,
    counters: Arc<SpoutCounters>,
    running: Option<Running>,
}

/// What there is from `init` on.
struct Running {
    context: InstanceContext,
    emitter: Emitter,
    follower: Option<Follower>,
    actions: AckActions,
    /// Tuples that were emitted by earlier incarnations in this process.
    emitted_before: u64,
    is_active: bool,
    /// It has said that it has emitted all there is, and nothing has failed since.
    is_exhausted: bool,
    /// It is to end, has emitted again all that had failed, and nothing has failed since.
    has_replayed: bool,
    has_told_end: bool,
}

impl Running {
    /// Whether nothing that has failed waits to be emitted again here.
    fn leaves_nothing(&self) -> bool {
        let follower = self.follower.as_ref();
        // What has moved is emitted again where it lives now.
        self.has_replayed || follower.is_none_or(|follower| follower.has_moved)
    }
}

/// What follows the messages, with acks on.
struct Follower {
    acker: Acker,
    mailbox: Arc<Mailbox>,
    /// Which spout this is of those that the mailbox has belonged to.
    incarnation: u64,
    mail: Mail,
    mailboxes: Arc<Mailboxes>,
    /// How many losses of processes it has heard of.
    losses: u64,
    /// Whether the instance lives elsewhere now: nobody brings acks to this incarnation any more, and it emits nothing.
    has_moved: bool,
}

impl Follower {
    /// Takes in what has come; what follows from it is added to `actions`.
    fn listen(&mut self, now: Duration, actions: &mut AckActions) {
        let Follower {
            acker,
            mailbox,
            mail,
            ..
        } = self;
        let mut is_loss = false;
        if mailbox.take(mail) {
            is_loss = mail.is_loss;
            acker.on(now, AckEvent::Updates(&mail.updates), actions);
            acker.on(now, AckEvent::Failed(&mail.failed), actions);
            mail.clear();
        }
        let (losses, has_moved) = (self.mailboxes.losses(), self.mailbox.is_carried());
        if is_loss || losses != self.losses || (has_moved && !self.has_moved) {
            acker.on(now, AckEvent::Lost, actions);
        } else if acker.deadline().is_some_and(|deadline| deadline <= now) {
            acker.on(now, AckEvent::Time, actions);
        }
        (self.losses, self.has_moved) = (losses, has_moved);
    }
}

impl<S: Spout> SpoutP<S> {
    /// Takes in what became of messages, and tells the spout; says whether there was anything.
    fn listen(&mut self) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let actions = &mut running.actions;
        if let Some(follower) = &mut running.follower {
            follower.listen(running.context.clock.now(), actions);
        }
        if actions.is_empty() {
            return false;
        }
        tell(&mut self.spout, actions, &self.counters);
        running.is_exhausted &= actions.failed.is_empty();
        running.has_replayed &= actions.failed.is_empty();
        actions.clear();
        true
    }

    /// Emits as much as there is room for; says what the spout wants next.
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
        let next = self.have_emitted(S::next_batch)?;
        if let Some(running) = &mut self.running {
            running.is_exhausted |= next == Some(Next::Done);
        }
        Ok(next)
    }

    /// Emits again what has failed, as much as there is room for.
    fn emit_again(&mut self) -> Result<Option<Next>> {
        let next = self.have_emitted(|spout, out| {
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

    /// Has the spout emit, if there is room and it lives here; says what it wants next.
    fn have_emitted(
        &mut self,
        ask: impl FnOnce(&mut S, &mut SpoutCollector<'_>) -> Outcome<Next>,
    ) -> Result<Option<Next>> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let follower = running.follower.as_mut();
        let has_moved = follower.as_ref().is_some_and(|it| it.has_moved);
        let acker = follower.map(|follower| &mut follower.acker);
        let room = acker.as_ref().map_or(usize::MAX, |acker| {
            let most = self.wiring.max_pending.saturating_sub(acker.pending());
            most.min(acker.room())
        });
        if has_moved || room == 0 {
            return Ok(None);
        }
        running.emitter.heed_roster();
        let mut out = SpoutCollector {
            emitter: &mut running.emitter,
            acker,
            actions: &mut running.actions,
            room,
            pace: Pace::start(&running.context.clock),
        };
        let next = ask(&mut self.spout, &mut out);
        let next = next.map_err(|failure| failure.into_error("the spout failed"))?;
        self.counters.emitted.store(
            running.emitted_before + running.emitter.emitted(),
            Ordering::Relaxed,
        );
        Ok(Some(next))
    }

    /// Rests until something happens; the time is when the spout wants to be called, if it named one.
    fn rest(&mut self, wait: Option<Duration>, outbox: &mut Outbox) -> Progress {
        let Some(running) = &mut self.running else {
            return Progress::NONE;
        };
        // Without a deadline the engine would ask again after its idle poll; waking is what this relies on.
        let now = running.context.clock.now();
        let mut wake_at = now.saturating_add(wait.unwrap_or(LONGEST_REST));
        if let Some(follower) = &running.follower {
            if !follower.mailbox.rest() {
                return Progress::MADE;
            }
            wake_at = wake_at.min(follower.acker.deadline().unwrap_or(wake_at));
        }
        outbox.wake_at(wake_at);
        Progress::NONE
    }

    fn pending(&self) -> usize {
        let follower = self.running.as_ref().and_then(|r| r.follower.as_ref());
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
            false => self.emit_again()?,
        };
        // What nobody follows, and what goes nowhere, is acked here.
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
            false => self.running.as_ref().is_none_or(Running::leaves_nothing),
        };
        if pending == 0 && is_through {
            return Ok(Progress::DONE);
        }
        if exhausted || !may_emit {
            self.tell_end(outbox);
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

    /// Tells all bolts, once, that nothing more will come unless something fails: those that hold tuples let go of them.
    fn tell_end(&mut self, outbox: &mut Outbox) {
        if let Some(running) = &mut self.running
            && !running.has_told_end
        {
            let has_moved = running.follower.as_ref().is_some_and(|it| it.has_moved);
            if has_moved {
                // There is more to come, from where it has moved to.
                return;
            }
            running.has_told_end = true;
            outbox.watermark(Watermark::END);
        }
    }
}

/// How long an instance rests that nobody wakes.
const LONGEST_REST: Duration = Duration::from_secs(1);

fn tell(spout: &mut impl Spout, actions: &AckActions, counters: &SpoutCounters) {
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

/// Whether spouts are to emit: nobody has deactivated the topology, and its job is not paused.
fn is_active(wiring: &SpoutWiring, context: &InstanceContext) -> bool {
    wiring.controls.is_active() && !context.signals.is_paused()
}

/// What follows the messages of this instance; nothing with acks off.
fn follower(wiring: &SpoutWiring, context: &InstanceContext) -> Result<Option<Follower>> {
    let Some(mailboxes) = &wiring.mailboxes else {
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
    Ok(Some(Follower {
        acker: Acker::new(task, first_generation, wiring.message_timeout, now),
        incarnation: mailbox.belongs_to(context.waker.clone()),
        mailbox,
        mail: Mail::default(),
        losses: mailboxes.losses(),
        has_moved: false,
        mailboxes: Arc::clone(mailboxes),
    }))
}

impl<S: Spout> Processor for SpoutP<S> {
    fn forgets(&self) -> Option<&'static str> {
        Some("how far a spout has come: topologies have acks instead of a guarantee")
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let wiring = &self.wiring;
        let follower = follower(wiring, context)?;
        let instance = (wiring.spout, context.instance.index);
        wiring.controls.register(instance, context.waker.clone());
        let is_active = is_active(wiring, context);
        self.running = Some(Running {
            context: context.clone(),
            emitter: Emitter::new(
                Arc::clone(&context.vertex),
                &wiring.streams,
                &wiring.roster,
                follower.is_some(),
                context.chunk_records,
            ),
            follower,
            actions: AckActions::default(),
            emitted_before: self.counters.emitted.load(Ordering::Relaxed),
            is_active,
            is_exhausted: false,
            has_replayed: false,
            has_told_end: false,
        });
        let component = ComponentContext {
            instance: context.clone(),
            roster: Arc::clone(&wiring.roster),
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

    fn pauses_itself(&self) -> bool {
        true
    }

    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.step(outbox, false)
    }

    fn close(&mut self) {
        let follower = self.running.as_ref().and_then(|r| r.follower.as_ref());
        if let Some(follower) = follower {
            follower.mailbox.leave(follower.incarnation);
        }
        self.spout.close();
    }
}
