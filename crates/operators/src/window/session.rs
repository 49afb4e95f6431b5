//! Session windows.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor, Progress,
    RecordGuard, RestoredState, Result, StateChunk, StateShape, Timestamp, Watermark,
};

use super::change::{EmitChanges, EmitResults, SessionOutput};
use super::intake::LateRule;
use super::sessions::{SessionSpec, SessionTask, Sessions, Settled};
use super::slider::ResultOf;
use super::told::TOLD;
use super::{Firing, WindowResult, result_time};
use crate::keyed::{KeptAs, KeyedStates, STATE, unless_kept};
use crate::time::require_times;
use crate::{Feed, FeedVisitor, KeyedFold};

/// How many keys one call looks at before it lets others have their turn.
const KEYS_PER_CALL: usize = 4096;

/// Aggregates each key over sessions: stretches of event time without a silence longer than the gap.
///
/// Emits a [`WindowResult`] when the watermark reaches a session's end; its `start` is the time of the first record, its
/// `end` that of the last plus the gap. Sessions come in order of their ends. A watermark costs time only for the keys that
/// have a session to close, and now and then for one that was prolonged.
///
/// Late records (see [`SessionSpec`]) of input *i* go to output *i* + 1, if the vertex has one, and are counted in any
/// case. With an allowed lateness, a closed session that a late record joins is emitted again when the watermark has reached
/// its end ([`Firing::Update`]); it takes the place of all results of its key that lie within it. With
/// [`changes`](Self::changes) those results are named. Final results of a key never overlap. Triggers for early results are
/// not asked.
pub struct SessionWindowP<F: KeyedFold, O = EmitResults> {
    spec: SessionSpec,
    fold: Arc<F>,
    keys: KeyedStates<F::Key, Sessions<F::Acc>>,
    /// How they are written where they have to survive it.
    kept: Option<KeptAs<F::Key, F::Acc>>,
    /// When to look at which key, the earliest first. Prolonging a session leaves its entry as it is: the key is then
    /// looked at too early and gets another entry.
    agenda: BinaryHeap<Reverse<(Timestamp, u32)>>,
    late: LateRule,
    output: PhantomData<O>,
}

impl<F: KeyedFold> SessionWindowP<F> {
    /// Aggregates by `fold` over sessions.
    pub fn new(spec: SessionSpec, fold: Arc<F>) -> Self {
        SessionWindowP {
            spec,
            fold,
            keys: KeyedStates::default(),
            kept: None,
            agenda: BinaryHeap::new(),
            // A final session ends at the watermark or before, so only records before the watermark can lie within one.
            late: LateRule::new(move |watermark| spec.late_before(watermark))
                .suspect_before(|watermark| watermark.0),
            output: PhantomData,
        }
    }

    /// Emits [`WindowChange`](crate::WindowChange)s in place of results. Call it before the processor runs.
    pub fn changes(self) -> SessionWindowP<F, EmitChanges> {
        SessionWindowP {
            spec: self.spec,
            fold: self.fold,
            keys: self.keys,
            kept: self.kept,
            agenda: self.agenda,
            late: self.late,
            output: PhantomData,
        }
    }
}

impl<F: KeyedFold, O: SessionOutput<F::Key, F::Out>> SessionWindowP<F, O> {
    /// Says how keys and accumulators are written, so that its sessions survive it.
    pub fn kept_as(mut self, kept: KeptAs<F::Key, F::Acc>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Emits the sessions that `watermark` closes and drops those whose lateness is over.
    fn close(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if outbox.lanes() > 0 && !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        let mut lane = outbox.lane::<O::Record>(Ordinal::FIRST)?;
        for _ in 0..KEYS_PER_CALL {
            let Some(&Reverse((time, slot))) = self.agenda.peek() else {
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
                    // The key is gone, or an earlier look has dealt with it.
                    self.agenda.pop();
                    continue;
                }
            }
            match self.look_at(slot, time) {
                Outcome::Deletes(deletion, time) => lane.push(deletion, time),
                Outcome::Ends(result) => {
                    self.agenda.pop();
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
        self.agenda.len()
    }

    /// Does the next step for a key that is scheduled for `time`.
    fn look_at(&mut self, slot: u32, time: Timestamp) -> Outcome<F, O> {
        self.touch(slot);
        let Some((key, sessions)) = self.keys.get_mut(slot) else {
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
        let settled = sessions.settle(&*self.fold, &self.spec, position);
        let told = self.late.told.of(key).0;
        Outcome::Ends(settled.map(|settled| {
            let Settled {
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

    /// Puts a key on the agenda again, unless it is forgotten.
    fn reschedule(&mut self, slot: u32) {
        if let Some((_, sessions)) = self.keys.get_mut(slot)
            && let Some(due) = sessions.due_before_scheduled(&self.spec)
        {
            self.agenda.push(Reverse((due, slot)));
        }
    }

    /// The sessions of a key are about to change.
    fn touch(&mut self, slot: u32) {
        let kept = &self.kept;
        self.keys.touch(slot, |chunk, key, sessions| {
            write(kept, chunk, key, sessions)
        });
    }
}

/// What a look at a key has come to.
enum Outcome<F: KeyedFold, O: SessionOutput<F::Key, F::Out>> {
    /// A deletion to emit at this time. There is more to do for the key.
    Deletes(O::Record, Timestamp),
    /// The look is over, with the result of a session if one was closed.
    Ends(Option<ResultOf<F>>),
}

/// Appends the entry of a key: its sessions.
fn write<K: Key, A>(
    kept: &Option<KeptAs<K, A>>,
    chunk: &mut StateChunk,
    key: &K,
    sessions: &Sessions<A>,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write_as((STATE, &[]), chunk, key, |out| sessions.write(kept, out)),
        None => Ok(()),
    }
}

/// Takes a chunk of the feed that it visits into sessions.
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
            kept,
            agenda,
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
                true => match keys.find(&key) {
                    Some(slot) => slot,
                    None => return false,
                },
                false => keys.slot_or_insert(key, || {
                    is_new = true;
                    Sessions::default()
                }),
            };
            keys.touch(slot, |chunk, key, sessions| {
                write(kept, chunk, key, sessions)
            });
            let Some((key, sessions)) = keys.get_mut(slot) else {
                return false;
            };
            if is_new {
                sessions.begin(spec, late.told.of(key));
            }
            let Some((acc, is_due_anew)) = sessions.admit(&**fold, spec, time, too_old) else {
                return false;
            };
            feed.accumulate(acc, record);
            if is_due_anew && let Some(due) = sessions.due_before_scheduled(spec) {
                agenda.push(Reverse((due, slot)));
            }
            true
        };
        if late.has_any(rows.times()) {
            return late.sort_out(rows, self.input, self.outbox, admit);
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
        if context.guarantee.keeps_state() {
            self.keys.keep_track();
        }
        Ok(())
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
        if self.late.told.has_heard(watermark) {
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

    /// The end of the input closes all sessions, as its watermark has done before if it came.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.close(Watermark::END, outbox)
    }

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.kept.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        let sessions = self.kept.iter().map(|kept| kept.shape(STATE));
        sessions.chain([StateShape::own(TOLD)]).collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.late.told.take_cut(cut.epoch);
        self.keys.take_cut(cut)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.late.told.write_cut(writer)?;
        let kept = &self.kept;
        self.keys.write_cut(writer, |chunk, key, _, sessions| {
            write(kept, chunk, key, sessions)
        })
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.commit(epoch)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.keys.give_up(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state == TOLD {
                self.late.told.restore(&entry)?;
                continue;
            }
            let Some(kept) = &self.kept else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, mut rest) = kept.read_as(STATE, &entry)?;
            let mut sessions = Sessions::read(kept, &self.spec, &mut rest)?;
            let due = sessions.due_before_scheduled(&self.spec);
            let slot = self.keys.restore(key, sessions)?;
            self.agenda.extend(due.map(|due| Reverse((due, slot))));
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.late.restored();
        Ok(Progress::DONE)
    }

    fn hand_over(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn take_over(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.keys = before.keys;
        self.agenda = before.agenda;
        self.late = before.late;
        self.late.told.taken_over();
        true
    }
}
