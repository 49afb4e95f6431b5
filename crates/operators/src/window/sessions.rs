//! The sessions of one key.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Key, Result, Timestamp, Watermark};

use crate::KeyedFold;
use crate::keyed::{KeptAs, Rest, cut_short, put_time, put_times};

/// How long a key must be silent for its session to end, and for how long late records are still taken.
///
/// A record at *t* reaches to, not including, *t + gap*. Records that reach each other are one session: it starts with its
/// first record and ends where its last one reaches to. The session is closed when the watermark reaches its end.
///
/// A session is **final** when it was emitted and its allowed lateness is over: when its end plus the allowed lateness is at
/// most the watermark. A final session never changes, and no other session of its key overlaps it.
///
/// A record is **late** in two cases:
///
/// * It reaches no session that is still kept, and a session of its own would be final at once.
/// * It lies within a final session, or before one. A session with this record would overlap the final one.
///
/// So an old record that joins a session to which newer records have come is not lost. A key is forgotten when its last session
/// has been final for as long as the gap. Then its next record begins anew: sessions that could have been forgotten by then count
/// as final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionSpec {
    gap: Duration,
    lateness: Duration,
}

impl SessionSpec {
    /// Sessions that end after a silence of `gap`.
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

    /// Keeps closed sessions for `lateness` after their end, and corrects their results.
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    /// Where a record at `time` reaches to.
    #[inline]
    fn reach(&self, time: Timestamp) -> Timestamp {
        time + self.gap
    }

    /// Records before this are late at `watermark`, unless they reach a session. Later ones are late only within a final session.
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
    /// Whether a result of it, or of a session that became part of it, was emitted.
    is_shown: bool,
    /// The emitted windows of it and of sessions that became part of it, as far as no later result has replaced them.
    shown: Vec<Bounds>,
    /// Whether it holds nothing that was not emitted.
    is_settled: bool,
}

/// The next thing to do for the sessions of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SessionTask {
    /// To emit the session at this position, or to drop it if it was emitted.
    Session(usize),
    /// To forget the key: no record that is not late can lie within its final sessions any more.
    Forget,
}

/// What a session gives when it is closed.
pub(crate) struct Settled<R> {
    /// The time of its first record.
    pub(crate) start: Timestamp,
    /// The first time that is not in it.
    pub(crate) end: Timestamp,
    pub(crate) value: R,
    /// Whether a result of it, or of a session that became part of it, was emitted before.
    pub(crate) is_shown: bool,
}

/// What an entry of state says of the windows that were emitted for a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    /// None was.
    Never = 0,
    /// The session itself was. Older versions wrote this, of sessions that had changed since then as well.
    AsIs = 1,
    /// Their bounds follow.
    Listed = 2,
    /// The entry is no session, but says until when sessions are final.
    Final = 3,
}

impl Shown {
    fn of(byte: u8) -> Result<Shown> {
        let all = [Shown::Never, Shown::AsIs, Shown::Listed, Shown::Final];
        all.get(usize::from(byte)).copied().ok_or_else(cut_short)
    }
}

impl<A> Session<A> {
    /// The first time that is not in it.
    fn end(&self, spec: &SessionSpec) -> Timestamp {
        spec.reach(self.last)
    }

    /// When there is something to do: to emit it, or to drop it if it was emitted.
    fn due(&self, spec: &SessionSpec) -> Timestamp {
        if self.is_settled {
            self.end(spec) + spec.lateness
        } else {
            self.end(spec)
        }
    }
}

/// The sessions of a key, in order of time, and none reaching another.
pub(crate) struct Sessions<A> {
    sessions: Vec<Session<A>>,
    /// The end of the last final session, or later where that is forgotten; the start of all time if there is none. All kept
    /// sessions start at it or later.
    final_until: Timestamp,
    /// The earliest time at which this key will be looked at; not later than the earliest that is due.
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
    /// Appends the end of the last final session, if there is one, and all kept sessions. Each has its times, a [`Shown`] byte,
    /// whether it is settled, the emitted windows if they are written, and its accumulator.
    ///
    /// # Errors
    /// If an accumulator can't be written.
    pub(crate) fn write<K: Key>(&self, kept: &KeptAs<K, A>, out: &mut Vec<u8>) -> Result<()> {
        if self.final_until > Timestamp::MIN {
            put_time(out, self.final_until);
            put_time(out, self.final_until);
            out.extend_from_slice(&[Shown::Final as u8, 0]);
        }
        for session in &self.sessions {
            put_time(out, session.start);
            put_time(out, session.last);
            let shown = match session.is_shown {
                true => Shown::Listed,
                false => Shown::Never,
            };
            out.extend_from_slice(&[shown as u8, session.is_settled.into()]);
            if shown == Shown::Listed {
                put_times(
                    out,
                    session.shown.iter().flat_map(|(from, to)| [*from, *to]),
                );
            }
            kept.put_state(&session.acc, out)?;
        }
        Ok(())
    }

    /// Reads what [`write`](Self::write) has appended. Nothing is scheduled.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn read<K: Key>(
        kept: &KeptAs<K, A>,
        spec: &SessionSpec,
        rest: &mut Rest<'_>,
    ) -> Result<Self> {
        let mut all = Sessions::default();
        while !rest.is_empty() {
            let (start, last) = (rest.time()?, rest.time()?);
            let [shown, is_settled] = rest.array()?;
            let state = Shown::of(shown)?;
            let shown = match state {
                Shown::Never => Vec::new(),
                Shown::AsIs => vec![(start, spec.reach(last))],
                Shown::Listed => {
                    let times = rest.times()?.collect::<Result<Vec<_>>>()?;
                    let (bounds, odd) = times.as_chunks::<2>();
                    if !odd.is_empty() {
                        return Err(cut_short());
                    }
                    bounds.iter().map(|[from, to]| (*from, *to)).collect()
                }
                Shown::Final => {
                    all.final_until = last;
                    continue;
                }
            };
            all.sessions.push(Session {
                start,
                last,
                acc: kept.take_state(rest)?,
                is_shown: state != Shown::Never,
                shown,
                is_settled: is_settled != 0,
            });
        }
        Ok(all)
    }

    /// Begins with the first record of a key at `watermark`. Final sessions of the key may have been forgotten.
    pub(crate) fn begin(&mut self, spec: &SessionSpec, watermark: Watermark) {
        self.final_until = watermark.0 - spec.gap - spec.lateness;
    }

    /// The accumulator for a record at `time`, and whether something may have become due earlier than it was. None if the record
    /// is late. A record that is `too_old` gets no session of its own.
    #[inline]
    pub(crate) fn admit<F: KeyedFold<Acc = A>>(
        &mut self,
        fold: &F,
        spec: &SessionSpec,
        time: Timestamp,
        too_old: bool,
    ) -> Option<(&mut A, bool)> {
        // Nearly all records go on with the newest session.
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

    /// Joins all sessions that a record at `time` reaches, or that reach it; or makes one. None if the record is late.
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

    /// The next thing to do, and the event time at which it is due.
    pub(crate) fn next_due(&self, spec: &SessionSpec) -> Option<(Timestamp, SessionTask)> {
        let sessions = self.sessions.iter().enumerate();
        let due = sessions.map(|(at, session)| (session.due(spec), SessionTask::Session(at)));
        due.min().or_else(|| {
            // From then on all records before that end are too old.
            let is_needed = self.final_until > Timestamp::MIN;
            is_needed.then(|| {
                (
                    spec.reach(self.final_until) + spec.lateness,
                    SessionTask::Forget,
                )
            })
        })
    }

    /// When the key has to be looked at, if that is earlier than it is scheduled for; it then is scheduled for it.
    pub(crate) fn due_before_scheduled(&mut self, spec: &SessionSpec) -> Option<Timestamp> {
        let (due, _) = self.next_due(spec)?;
        if self.scheduled.is_some_and(|scheduled| scheduled <= due) {
            return None;
        }
        self.scheduled = Some(due);
        Some(due)
    }

    /// Takes one of the emitted windows that the session at `position` takes the place of, and that has not its bounds.
    pub(crate) fn take_replaced(&mut self, spec: &SessionSpec, position: usize) -> Option<Bounds> {
        let session = &mut self.sessions[position];
        if session.is_settled {
            return None;
        }
        let bounds = (session.start, session.end(spec));
        let replaced = session.shown.iter().position(|shown| *shown != bounds)?;
        Some(session.shown.remove(replaced))
    }

    /// The result of the session at `position`, which is due; none if it was emitted and is only to be dropped. It is
    /// kept for the allowed lateness.
    pub(crate) fn settle<F: KeyedFold<Acc = A>>(
        &mut self,
        fold: &F,
        spec: &SessionSpec,
        position: usize,
    ) -> Option<Settled<F::Out>> {
        let session = &mut self.sessions[position];
        let (start, end, is_shown) = (session.start, session.end(spec), session.is_shown);
        let settled = (!session.is_settled).then(|| Settled {
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
