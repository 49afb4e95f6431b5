//! Session windows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ardea_core::{
    Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, RecordGuard, Result, Timestamp,
    Watermark,
};

use super::intake::LateRule;
use super::sessions::{SessionSpec, Sessions, Settled};
use super::slider::ResultOf;
use super::{Firing, WindowResult, result_time};
use crate::time::require_times;
use crate::{Feed, FeedVisitor, KeyTable, KeyedFold};

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
    keys: KeyTable<F::Key, Sessions<F::Acc>>,
    /// When to look at which key, the earliest first. Prolonging a session leaves its entry as it is: the key is then
    /// looked at too early and gets another entry.
    agenda: BinaryHeap<Reverse<(Timestamp, u32)>>,
    late: LateRule,
    watermark: Watermark,
}

impl<F: KeyedFold> SessionWindowP<F> {
    /// Aggregates by `fold` over sessions.
    pub fn new(spec: SessionSpec, fold: Arc<F>) -> Self {
        SessionWindowP {
            spec,
            fold,
            keys: KeyTable::default(),
            agenda: BinaryHeap::new(),
            late: LateRule::new(),
            watermark: Watermark::NONE,
        }
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
            let sessions = &mut self.keys.values_mut()[slot as usize];
            if sessions.scheduled != Some(time) {
                continue; // An earlier look has dealt with it.
            }
            sessions.scheduled = None;
            if let Some((due, position)) = sessions.first_due(&self.spec)
                && due == time
                && let Some(settled) = sessions.settle(&*self.fold, &self.spec, position)
            {
                let Settled {
                    start,
                    end,
                    value,
                    is_shown,
                } = settled;
                let is_update = is_shown || end <= self.watermark.0;
                let firing = if is_update {
                    Firing::Update
                } else {
                    Firing::OnTime
                };
                let key = self.keys.keys()[slot as usize].clone();
                lane.push(
                    WindowResult {
                        start,
                        end,
                        key,
                        value,
                        firing,
                    },
                    result_time(end),
                );
            }
            self.reschedule(slot);
        }
        Ok(Progress::MADE)
    }

    #[cfg(test)]
    pub(crate) fn agenda_len(&self) -> usize {
        self.agenda.len()
    }

    /// Puts a key on the agenda again, or forgets it if it has no session left.
    fn reschedule(&mut self, slot: u32) {
        let sessions = &mut self.keys.values_mut()[slot as usize];
        match sessions.due_before_scheduled(&self.spec) {
            Some(due) => self.agenda.push(Reverse((due, slot))),
            None => self.keys.remove(slot),
        }
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
            agenda,
            late,
            fold,
            ..
        } = self.window;
        let position = self.inbox.position();
        let rows = self.inbox.rows::<I::Record>()?;
        require_times(rows.times(), self.input, position)?;
        let mut admit = |record: &I::Record, time, too_old| {
            let key = feed.key(record);
            if too_old && keys.get(&key).is_none() {
                return false;
            }
            let (slot, sessions) = keys.get_or_insert(key, Sessions::default);
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
    fn forgets(&self) -> Option<&'static str> {
        Some("its open windows")
    }

    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.late.count_in(&context.metrics);
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
        let progress = self.close(watermark, outbox)?;
        if progress.done {
            self.watermark = self.watermark.max(watermark);
            self.late.advance(self.spec.late_before(watermark));
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    /// The end of the input closes all sessions, as its watermark has done before if it came.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.close(Watermark::END, outbox)
    }
}
