//! Session windows.
//!
//! * `sessions`: the sessions of one key;
//! * `change`: the results that a session's result replaces.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor, Progress,
    RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
    Watermark,
};
use ardea_state::{KeyedState, StateCodecs};

use crate::time::require_times;
use crate::window::result::{Firing, ResultOf, WindowResult, result_time};
use crate::window::slice_assigner::LateRule;
use crate::window::state::partition_watermarks::WATERMARK_STATE;
use crate::{Feed, FeedVisitor, KeyedFold};

mod change;
mod sessions;

#[cfg(test)]
mod tests;

pub use change::{EmitChanges, EmitResults, SessionOutput, WindowChange};
pub use sessions::SessionSpec;

use sessions::{ClosedSession, SessionTask, Sessions, SessionsCodec};

/// The maximum number of keys processed per call.
const KEYS_PER_CALL: usize = 4096;

/// Aggregates each key over sessions: periods of event time without a silence longer than the gap.
///
/// Emits a [`WindowResult`] when the watermark reaches a session's end. Its `start` is the time of
/// the first record, its `end` that of the last record plus the gap. Sessions are emitted in order
/// of their ends. A watermark costs time only for keys with a session to close, and occasionally
/// for a key whose session was extended.
///
/// Late records (see [`SessionSpec`]) of input *i* are sent to output *i* + 1, if the vertex has
/// one, and are always counted. With an allowed lateness, a closed session that a late record joins
/// is emitted again when the watermark has reached its new end ([`Firing::Update`]). This result
/// replaces all results of the key that lie within the session; with [`changes`](Self::changes) the
/// replaced results are named. Final results of a key never overlap. Early triggers are ignored.
pub struct SessionWindowP<F: KeyedFold, O = EmitResults> {
    spec: SessionSpec,
    fold: Arc<F>,
    keys: KeyedState<F::Key, Sessions<F::Acc>>,
    /// The times at which keys are due, the earliest first, with the hash of the key and its slot.
    /// The order does not depend on slots, which differ after a restore. An extended session keeps
    /// its entry: the key is then processed too early and gets another entry.
    schedule: BinaryHeap<Reverse<(Timestamp, u64, u32)>>,
    late: LateRule,
    output: PhantomData<O>,
}

impl<F: KeyedFold> SessionWindowP<F> {
    /// Creates session windows aggregated by `fold`.
    pub fn new(spec: SessionSpec, fold: Arc<F>) -> Self {
        SessionWindowP {
            spec,
            fold,
            keys: KeyedState::default(),
            schedule: BinaryHeap::new(),
            // A final session ends at or before the watermark, so only records before the watermark
            // can lie within a final session.
            late: LateRule::new(move |watermark| spec.late_before(watermark))
                .suspect_before(|watermark| watermark.0),
            output: PhantomData,
        }
    }

    /// Emits [`WindowChange`](crate::WindowChange)s instead of results. Must be called before the
    /// processor runs.
    pub fn changes(self) -> SessionWindowP<F, EmitChanges> {
        SessionWindowP {
            spec: self.spec,
            fold: self.fold,
            keys: self.keys,
            schedule: self.schedule,
            late: self.late,
            output: PhantomData,
        }
    }
}

impl<F: KeyedFold, O: SessionOutput<F::Key, F::Out>> SessionWindowP<F, O> {
    /// Sets the serializers of keys and accumulators, so that sessions are checkpointed.
    pub fn with_codecs(mut self, codecs: StateCodecs<F::Key, F::Acc>) -> Self {
        let spec = self.spec;
        self.keys
            .set_codecs(codecs.map_state(|acc| SessionsCodec { acc, spec }));
        self
    }

    /// Returns a time such that records at this time or later are not late.
    pub fn on_time_from(&self) -> Timestamp {
        self.late.suspects()
    }

    /// Emits the sessions that `watermark` closes, and drops sessions whose allowed lateness has
    /// passed.
    fn close(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if outbox.lanes() > 0 && !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        let mut lane = outbox.lane::<O::Record>(Ordinal::FIRST)?;
        for _ in 0..KEYS_PER_CALL {
            let Some(&Reverse((time, _, slot))) = self.schedule.peek() else {
                return Ok(Progress::DONE);
            };
            if time > watermark.0 {
                return Ok(Progress::DONE);
            }
            if lane.is_full() {
                return Ok(Progress::MADE);
            }
            match self.keys.get(slot) {
                Some(sessions) if sessions.scheduled == Some(time) => {}
                _ => {
                    // The key was removed or already processed.
                    self.schedule.pop();
                    continue;
                }
            }
            match self.process_due(slot, time) {
                Outcome::Deletes(deletion, time) => lane.push(deletion, time),
                Outcome::Ends(result) => {
                    self.schedule.pop();
                    if let Some(result) = result {
                        let time = result_time(result.end);
                        lane.push(O::result(result), time);
                    }
                    self.reschedule(slot);
                }
            }
        }
        Ok(Progress::MADE)
    }

    #[cfg(test)]
    pub(crate) fn agenda_len(&self) -> usize {
        self.schedule.len()
    }

    /// Performs the next step for a key that is due at `time`.
    fn process_due(&mut self, slot: u32, time: Timestamp) -> Outcome<F, O> {
        let Some((key, sessions)) = self.keys.update(slot) else {
            return Outcome::Ends(None);
        };
        let position = match sessions.next_due(&self.spec) {
            Some((due, SessionTask::Session(position))) if due == time => position,
            Some((due, SessionTask::Forget)) if due == time => {
                self.keys.remove(slot);
                return Outcome::Ends(None);
            }
            _ => {
                sessions.scheduled = None;
                return Outcome::Ends(None);
            }
        };
        while let Some(bounds) = sessions.take_replaced(&self.spec, position) {
            if let Some(deletion) = O::deletion(bounds, key) {
                return Outcome::Deletes(deletion, result_time(time));
            }
        }
        sessions.scheduled = None;
        let settled = sessions.close(&*self.fold, &self.spec, position);
        let told = self.late.watermarks.of(key).0;
        Outcome::Ends(settled.map(|settled| {
            let ClosedSession {
                start,
                end,
                value,
                is_shown,
            } = settled;
            WindowResult {
                start,
                end,
                key: key.clone(),
                value,
                firing: match is_shown || end <= told {
                    true => Firing::Update,
                    false => Firing::OnTime,
                },
            }
        }))
    }

    /// Schedules a key again, unless it was removed.
    fn reschedule(&mut self, slot: u32) {
        if let Some((key, sessions)) = self.keys.update(slot)
            && let Some(due) = sessions.due_before_scheduled(&self.spec)
        {
            self.schedule.push(Reverse((due, key.key_hash(), slot)));
        }
    }
}

/// The outcome of a step for a key.
enum Outcome<F: KeyedFold, O: SessionOutput<F::Key, F::Out>> {
    /// A deletion to emit at this time. More steps follow for the key.
    Deletes(O::Record, Timestamp),
    /// The step is complete, with the result of a session if one was closed.
    Ends(Option<ResultOf<F>>),
}

/// A visitor that adds a chunk of records to sessions.
struct TakeSessions<'a, F: KeyedFold, O> {
    window: &'a mut SessionWindowP<F, O>,
    input: Ordinal,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox,
}

impl<F: KeyedFold, O> FeedVisitor<F> for TakeSessions<'_, F, O> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let SessionWindowP {
            spec,
            keys,
            schedule: agenda,
            late,
            fold,
            output: _,
        } = self.window;
        let position = self.inbox.position();
        let rows = self.inbox.rows::<I::Record>()?;
        require_times(rows.times(), self.input, position)?;
        let mut admit = |record: &I::Record, time, is_old: bool| {
            let key = feed.key(record);
            let too_old = is_old && late.is_late(&*key, time);
            let mut is_new = false;
            let slot = match too_old {
                true => keys.find(&key),
                false => Some(keys.slot_in_memory(key, || {
                    is_new = true;
                    Sessions::default()
                })),
            };
            let Some((slot, (key, sessions))) =
                slot.and_then(|slot| Some((slot, keys.update(slot)?)))
            else {
                return false;
            };
            if is_new {
                sessions.begin(spec, late.watermarks.of(key));
            }
            let Some((acc, is_due_anew)) = sessions.admit(&**fold, spec, time, too_old) else {
                return false;
            };
            feed.accumulate(acc, record);
            if is_due_anew && let Some(due) = sessions.due_before_scheduled(spec) {
                agenda.push(Reverse((due, key.key_hash(), slot)));
            }
            true
        };
        if late.has_any(rows.times()) {
            return late.separate_late(rows, self.input, self.outbox, admit);
        }
        let mut guard = RecordGuard::new();
        for (record, time) in rows.iter() {
            admit(record, time, false);
            guard.advance();
        }
        rows.clear();
        Ok(())
    }
}

impl<F: KeyedFold, O: SessionOutput<F::Key, F::Out>> Processor for SessionWindowP<F, O> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.late.attach(context);
        self.keys.open(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let fold = Arc::clone(&self.fold);
        fold.visit(
            input,
            TakeSessions {
                window: self,
                input,
                inbox,
                outbox,
            },
        )
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.late.watermarks.is_already_processed(watermark) {
            outbox.watermark(watermark);
            return Ok(Progress::DONE);
        }
        let progress = self.close(watermark, outbox)?;
        if progress.done {
            self.late.advance(watermark);
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    /// Closes all sessions, in case no watermark at the end of time has closed them.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.close(Watermark::END, outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.keys.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<F: KeyedFold, O: SessionOutput<F::Key, F::Out>> Checkpointed for SessionWindowP<F, O> {
    fn states(&mut self) -> Vec<StateShape> {
        let mut states = self.keys.states();
        states.push(StateShape::own(WATERMARK_STATE));
        states
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.late.watermarks.take_snapshot(snapshot.epoch);
        self.keys.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.late.watermarks.write_snapshot(writer)?;
        self.keys.write_snapshot(writer)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.on_checkpoint_committed(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.on_checkpoint_aborted(epoch)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state == WATERMARK_STATE {
                true => self.late.watermarks.restore(&entry)?,
                false => self.keys.restore_entry(&entry)?,
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        (0..self.keys.slots()).for_each(|slot| self.reschedule(slot));
        self.late.restored();
        self.keys.on_restored(epoch)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.keys = before.keys;
        self.schedule = before.schedule;
        self.late = before.late;
        self.late.watermarks.taken_over();
        true
    }
}
