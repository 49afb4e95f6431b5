//! The sessions of one key.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Schema, StateCodec, Timestamp, Watermark};
use ardea_state::{ValueReader, put_part, put_time, put_times, truncated_entry};

use crate::KeyedFold;

/// The gap of sessions, and their allowed lateness.
///
/// A record at *t* reaches up to, but not including, *t + gap*. Records that reach each other form
/// a session. It starts with its first record and ends where its last record reaches to. The
/// session is closed when the watermark reaches its end.
///
/// A session is **final** when it was emitted and its allowed lateness has passed: when its end
/// plus the allowed lateness is at most the watermark. A final session never changes, and no other
/// session of its key overlaps it.
///
/// A record is **late** in two cases:
///
/// * It reaches no retained session, and a session of this record alone would be final at once.
/// * It lies within or before a final session. A session with this record would overlap the final
///   one.
///
/// An old record that joins a session with newer records is therefore not lost. A key is removed
/// when its last session has been final for as long as the gap. Its next record then starts a new
/// session; sessions that could have been removed by that time count as final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionSpec {
    gap: Duration,
    lateness: Duration,
}

impl SessionSpec {
    /// Creates sessions that end after a silence of `gap`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the gap is less than a microsecond.
    pub fn gap(gap: Duration) -> Result<Self> {
        if gap.as_micros() == 0 {
            let what = format!("a session's gap must be at least a microsecond, but is {gap:?}");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("give how long a key is silent between two sessions, such as 30 s"));
        }
        Ok(SessionSpec {
            gap,
            lateness: Duration::ZERO,
        })
    }

    /// Retains closed sessions for `lateness` after their end, and corrects their results.
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    /// Returns the time up to which a record at `time` reaches.
    #[inline]
    pub fn reach(&self, time: Timestamp) -> Timestamp {
        time + self.gap
    }

    /// Returns the time before which records are late at `watermark`, unless they reach a session.
    /// Later records are late only within a final session.
    pub(crate) fn late_before(&self, watermark: Watermark) -> Timestamp {
        match watermark {
            Watermark::NONE => Timestamp::MIN,
            Watermark::END => Timestamp::MAX,
            Watermark(time) => time - self.gap - self.lateness + Duration::from_micros(1),
        }
    }
}

/// The start and the end of an emitted window.
pub(crate) type Bounds = (Timestamp, Timestamp);

/// Records of a key that reach each other.
struct Session<A> {
    start: Timestamp,
    last: Timestamp,
    acc: A,
    /// True if a result of the session, or of one merged into it, was emitted.
    is_shown: bool,
    /// The emitted windows of the session and of those merged into it that no later result has
    /// replaced.
    shown: Vec<Bounds>,
    /// True if the emitted results contain all records of the session.
    is_settled: bool,
}

/// The next task for the sessions of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SessionTask {
    /// Emit the session at this position, or drop it if it was emitted.
    Session(usize),
    /// Remove the key: only late records can lie within its final sessions.
    Forget,
}

/// The result of a closed session.
pub(crate) struct ClosedSession<R> {
    /// The time of its first record.
    pub(crate) start: Timestamp,
    /// The first time after the session.
    pub(crate) end: Timestamp,
    pub(crate) value: R,
    /// True if a result of the session, or of one merged into it, was emitted before.
    pub(crate) is_shown: bool,
}

/// The emitted windows of a session, as written in state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EmittedWindows {
    /// None was emitted.
    Never = 0,
    /// The session itself was emitted. Older versions also wrote this for sessions that had changed
    /// since then.
    AsIs = 1,
    /// The bounds of the emitted windows follow.
    Listed = 2,
    /// The entry is not a session, but contains the time until which sessions are final.
    Final = 3,
}

impl EmittedWindows {
    fn of(byte: u8) -> Result<EmittedWindows> {
        let all = [
            EmittedWindows::Never,
            EmittedWindows::AsIs,
            EmittedWindows::Listed,
            EmittedWindows::Final,
        ];
        all.get(usize::from(byte))
            .copied()
            .ok_or_else(truncated_entry)
    }
}

impl<A> Session<A> {
    /// Returns the first time after the session.
    fn end(&self, spec: &SessionSpec) -> Timestamp {
        spec.reach(self.last)
    }

    /// Returns the time of the next task: emit the session, or drop it if it was emitted.
    fn due(&self, spec: &SessionSpec) -> Timestamp {
        if self.is_settled {
            self.end(spec) + spec.lateness
        } else {
            self.end(spec)
        }
    }
}

/// The serializer of the sessions of a key.
pub(crate) struct SessionsCodec<A> {
    pub(crate) acc: Arc<dyn StateCodec<A>>,
    pub(crate) spec: SessionSpec,
}

impl<A: 'static> StateCodec<Sessions<A>> for SessionsCodec<A> {
    fn put(&self, sessions: &Sessions<A>, out: &mut Vec<u8>) -> Result<()> {
        sessions.write(&*self.acc, out)
    }

    fn get(&self, bytes: &[u8]) -> Result<Sessions<A>> {
        Sessions::read(&*self.acc, &self.spec, ValueReader::of(bytes))
    }

    fn schema(&self) -> Schema {
        self.acc.schema()
    }
}

/// The sessions of a key in order of time. None reaches another.
pub(crate) struct Sessions<A> {
    sessions: Vec<Session<A>>,
    /// The end of the last final session, or a later time if that session was removed; the minimum
    /// without one. All retained sessions start at or after this time.
    final_until: Timestamp,
    /// The time for which the key is scheduled, at or before the time of its next task.
    pub(crate) scheduled: Option<Timestamp>,
}

impl<A> Default for Sessions<A> {
    fn default() -> Self {
        Sessions {
            sessions: Vec::new(),
            final_until: Timestamp::MIN,
            scheduled: None,
        }
    }
}

impl<A> Sessions<A> {
    /// Appends the end of the last final session, if there is one, and all retained sessions. Each
    /// has its times, a [`EmittedWindows`] byte, the settled flag, the emitted windows if they are
    /// written, and its accumulator.
    ///
    /// # Errors
    /// An accumulator cannot be written.
    fn write(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<()> {
        if self.final_until > Timestamp::MIN {
            put_time(out, self.final_until);
            put_time(out, self.final_until);
            out.extend_from_slice(&[EmittedWindows::Final as u8, 0]);
        }
        for session in &self.sessions {
            put_time(out, session.start);
            put_time(out, session.last);
            let shown = match session.is_shown {
                true => EmittedWindows::Listed,
                false => EmittedWindows::Never,
            };
            out.extend_from_slice(&[shown as u8, session.is_settled.into()]);
            if shown == EmittedWindows::Listed {
                put_times(
                    out,
                    session.shown.iter().flat_map(|(from, to)| [*from, *to]),
                );
            }
            put_part(out, |out| codec.put(&session.acc, out))?;
        }
        Ok(())
    }

    /// Reads sessions written by [`write`](Self::write). Nothing is scheduled.
    ///
    /// # Errors
    /// The sessions cannot be read.
    fn read(
        codec: &dyn StateCodec<A>,
        spec: &SessionSpec,
        mut rest: ValueReader<'_>,
    ) -> Result<Self> {
        let mut all = Sessions::default();
        while !rest.is_empty() {
            let (start, last) = (rest.time()?, rest.time()?);
            let [shown, is_settled] = rest.array()?;
            let state = EmittedWindows::of(shown)?;
            let shown = match state {
                EmittedWindows::Never => Vec::new(),
                EmittedWindows::AsIs => vec![(start, spec.reach(last))],
                EmittedWindows::Listed => {
                    let times = rest.times()?.collect::<Result<Vec<_>>>()?;
                    let (bounds, odd) = times.as_chunks::<2>();
                    if !odd.is_empty() {
                        return Err(truncated_entry());
                    }
                    bounds.iter().map(|[from, to]| (*from, *to)).collect()
                }
                EmittedWindows::Final => {
                    all.final_until = last;
                    continue;
                }
            };
            all.sessions.push(Session {
                start,
                last,
                acc: codec.get(rest.part()?)?,
                is_shown: state != EmittedWindows::Never,
                shown,
                is_settled: is_settled != 0,
            });
        }
        Ok(all)
    }

    /// Initializes a new key at `watermark`. Final sessions of the key may have been removed
    /// before.
    pub(crate) fn begin(&mut self, spec: &SessionSpec, watermark: Watermark) {
        self.final_until = watermark.0 - spec.gap - spec.lateness;
    }

    /// Returns the accumulator for a record at `time`, and whether a task may be due earlier than
    /// before. `None` if the record is late. A record for which `too_old` is true gets no new
    /// session.
    #[inline]
    pub(crate) fn admit<F: KeyedFold<Acc = A>>(
        &mut self,
        fold: &F,
        spec: &SessionSpec,
        time: Timestamp,
        too_old: bool,
    ) -> Option<(&mut A, bool)> {
        // Nearly all records extend the newest session.
        let newest = self
            .sessions
            .last()
            .is_some_and(|s| s.start <= time && time < s.end(spec));
        let at = match newest {
            true => self.sessions.len() - 1,
            false => self.join(fold, spec, time, too_old)?,
        };
        let session = &mut self.sessions[at];
        session.last = session.last.max(time);
        let was_settled = std::mem::replace(&mut session.is_settled, false);
        Some((&mut session.acc, !newest || was_settled))
    }

    /// Merges all sessions that a record at `time` reaches or that reach it, or creates one. `None`
    /// if the record is late.
    fn join<F: KeyedFold<Acc = A>>(
        &mut self,
        fold: &F,
        spec: &SessionSpec,
        time: Timestamp,
        too_old: bool,
    ) -> Option<usize> {
        if time < self.final_until {
            return None;
        }
        let first = self
            .sessions
            .partition_point(|session| session.end(spec) <= time);
        let after = self
            .sessions
            .partition_point(|session| session.start < spec.reach(time));
        if first >= after {
            if too_old {
                return None;
            }
            let acc = fold.create();
            let new = Session {
                start: time,
                last: time,
                acc,
                is_shown: false,
                shown: Vec::new(),
                is_settled: false,
            };
            self.sessions.insert(first, new);
            return Some(first);
        }
        let mut others = self
            .sessions
            .drain(first + 1..after)
            .collect::<Vec<_>>()
            .into_iter();
        let joined = &mut self.sessions[first];
        joined.start = joined.start.min(time);
        for other in &mut others {
            fold.combine(&mut joined.acc, &other.acc);
            joined.last = other.last;
            joined.is_shown |= other.is_shown;
            joined.shown.extend(other.shown);
        }
        Some(first)
    }

    /// Returns the next task, and the event time at which it is due.
    pub(crate) fn next_due(&self, spec: &SessionSpec) -> Option<(Timestamp, SessionTask)> {
        let sessions = self.sessions.iter().enumerate();
        let due = sessions.map(|(at, session)| (session.due(spec), SessionTask::Session(at)));
        due.min().or_else(|| {
            // From then on, all records before that end are too old.
            let is_needed = self.final_until > Timestamp::MIN;
            is_needed.then(|| {
                (
                    spec.reach(self.final_until) + spec.lateness,
                    SessionTask::Forget,
                )
            })
        })
    }

    /// Returns the time of the next task if it is before the scheduled time, and schedules the key
    /// for it.
    pub(crate) fn due_before_scheduled(&mut self, spec: &SessionSpec) -> Option<Timestamp> {
        let (due, _) = self.next_due(spec)?;
        if self.scheduled.is_some_and(|scheduled| scheduled <= due) {
            return None;
        }
        self.scheduled = Some(due);
        Some(due)
    }

    /// Removes and returns an emitted window with other bounds that the session at `position`
    /// replaces.
    pub(crate) fn take_replaced(&mut self, spec: &SessionSpec, position: usize) -> Option<Bounds> {
        let session = &mut self.sessions[position];
        if session.is_settled {
            return None;
        }
        let bounds = (session.start, session.end(spec));
        let replaced = session.shown.iter().position(|shown| *shown != bounds)?;
        Some(session.shown.remove(replaced))
    }

    /// Returns the result of the session at `position`, which is due; `None` if it was emitted and
    /// is only dropped. The session is retained for the allowed lateness.
    pub(crate) fn close<F: KeyedFold<Acc = A>>(
        &mut self,
        fold: &F,
        spec: &SessionSpec,
        position: usize,
    ) -> Option<ClosedSession<F::Out>> {
        let session = &mut self.sessions[position];
        let (start, end, is_shown) = (session.start, session.end(spec), session.is_shown);
        let settled = (!session.is_settled).then(|| ClosedSession {
            start,
            end,
            value: fold.finish(&session.acc),
            is_shown,
        });
        if settled.is_none() || spec.lateness.is_zero() {
            self.sessions.remove(position);
            self.final_until = self.final_until.max(end);
        } else {
            (session.is_shown, session.is_settled) = (true, true);
            session.shown.clear();
            session.shown.push((start, end));
        }
        settled
    }
}
