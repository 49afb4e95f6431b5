//! Session windows.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor, Progress,
    RecordGuard, RestoredState, Result, StateChunk, StateShape, Timestamp, Watermark,
};

use super::intake::LateRule;
use super::sessions::{SessionSpec, Sessions, Settled};
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
/// case. With an allowed lateness, a closed session that a late record joins is emitted again at the next watermark
/// ([`Firing::Update`]); it takes the place of all results of its key that lie within it. Triggers for early results are not
/// asked.
pub struct SessionWindowP<F: KeyedFold> {
    spec: SessionSpec,
    fold: Arc<F>,
    keys: KeyedStates<F::Key, Sessions<F::Acc>>,
    /// How they are written where they have to survive it.
    kept: Option<KeptAs<F::Key, F::Acc>>,
    /// When to look at which key, the earliest first. Prolonging a session leaves its entry as it is: the key is then
    /// looked at too early and gets another entry.
    agenda: BinaryHeap<Reverse<(Timestamp, u32)>>,
    late: LateRule,
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
            late: LateRule::new(move |watermark| spec.late_before(watermark)),
        }
    }

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
        let mut lane = outbox.lane::<ResultOf<F>>(Ordinal::FIRST)?;
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
            self.agenda.pop();
            let Some((_, sessions)) = self.keys.get_mut(slot) else {
                continue; // It has no session any more.
            };
            if sessions.scheduled != Some(time) {
                continue; // An earlier look has dealt with it.
            }
            sessions.scheduled = None;
            if let Some((due, position)) = sessions.first_due(&self.spec)
                && due == time
                && let Some(result) = self.settle(slot, position)
            {
                let time = result_time(result.end);
                lane.push(result, time);
            }
            self.reschedule(slot);
        }
        Ok(Progress::MADE)
    }

    #[cfg(test)]
    pub(crate) fn agenda_len(&self) -> usize {
        self.agenda.len()
    }

    /// The result of the session of a key that is due; none if it was emitted, and is dropped.
    fn settle(&mut self, slot: u32, position: usize) -> Option<ResultOf<F>> {
        self.touch(slot);
        let (key, sessions) = self.keys.get_mut(slot)?;
        let Settled {
            start,
            end,
            value,
            is_shown,
        } = sessions.settle(&*self.fold, &self.spec, position)?;
        let is_update = is_shown || end <= self.late.told.of(key).0;
        Some(WindowResult {
            start,
            end,
            key: key.clone(),
            value,
            firing: match is_update {
                true => Firing::Update,
                false => Firing::OnTime,
            },
        })
    }

    /// Puts a key on the agenda again, or forgets it if it has no session left.
    fn reschedule(&mut self, slot: u32) {
        let Some((_, sessions)) = self.keys.get_mut(slot) else {
            return;
        };
        match sessions.due_before_scheduled(&self.spec) {
            Some(due) => self.agenda.push(Reverse((due, slot))),
            None => {
                self.touch(slot);
                self.keys.remove(slot);
            }
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
struct TakeSessions<'a, F: KeyedFold> {
    window: &'a mut SessionWindowP<F>,
    input: Ordinal,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeSessions<'_, F> {
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
        } = self.window;
        let position = self.inbox.position();
        let rows = self.inbox.rows::<I::Record>()?;
        require_times(rows.times(), self.input, position)?;
        let mut admit = |record: &I::Record, time, is_old: bool| {
            let key = feed.key(record);
            let too_old = is_old && late.is_late(&*key, time);
            let slot = match too_old {
                true => match keys.find(&key) {
                    Some(slot) => slot,
                    None => return false,
                },
                false => keys.slot_or_insert(key, Sessions::default),
            };
            keys.touch(slot, |chunk, key, sessions| {
                write(kept, chunk, key, sessions)
            });
            let Some((_, sessions)) = keys.get_mut(slot) else {
                return false;
            };
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

impl<F: KeyedFold> Processor for SessionWindowP<F> {
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
            let mut sessions = Sessions::read(kept, &mut rest)?;
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
