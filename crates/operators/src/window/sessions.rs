//! The sessions of one key.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Key, Result, Timestamp, Watermark};

use crate::KeyedFold;
use crate::keyed::{KeptAs, Rest, put_time};

/// How long a key must be silent for its session to end, and for how long late records are still taken.
///
/// A record at *t* reaches to, not including, *t + gap*. Records that reach each other are one session: it starts with its
/// first record and ends where its last one reaches to. The session is closed when the watermark reaches its end.
///
/// A record is **late** if it reaches no session that is still kept, and a session of its own would be closed and its
/// allowed lateness over: if *t + gap + allowed lateness* is at most the watermark. So a late record that joins a session
/// to which newer records have come is not lost.
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

    /// Records before this are late at `watermark`, unless they reach a session.
    pub(crate) fn late_before(&self, watermark: Watermark) -> Timestamp {
        match watermark {
            Watermark::NONE => Timestamp::MIN,
            Watermark::END => Timestamp::MAX,
            Watermark(time) => time - self.gap - self.lateness + Duration::from_micros(1),
        }
    }
}

/// Records of a key that reach each other.
struct Session<A> {
    start: Timestamp,
    last: Timestamp,
    acc: A,
    /// Whether a result of it, or of a session that has become part of it, was emitted.
    is_shown: bool,
    /// Whether it holds nothing that was not emitted.
    is_settled: bool,
}

/// What a session gives when it is closed.
pub(crate) struct Settled<R> {
    /// The time of its first record.
    pub(crate) start: Timestamp,
    /// The first time that is not in it.
    pub(crate) end: Timestamp,
    pub(crate) value: R,
    /// Whether a result of it, or of a session that has become part of it, was emitted before.
    pub(crate) is_shown: bool,
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
    /// The earliest time at which this key will be looked at; not later than the earliest that is due.
    pub(crate) scheduled: Option<Timestamp>,
}

impl<A> Default for Sessions<A> {
    fn default() -> Self {
        Sessions {
            sessions: Vec::new(),
            scheduled: None,
        }
    }
}

impl<A> Sessions<A> {
    /// Appends all sessions, each with its times, whether it was shown and is settled, and its accumulator.
    ///
    /// # Errors
    /// If an accumulator can't be written.
    pub(crate) fn write<K: Key>(&self, kept: &KeptAs<K, A>, out: &mut Vec<u8>) -> Result<()> {
        for session in &self.sessions {
            put_time(out, session.start);
            put_time(out, session.last);
            out.push(session.is_shown.into());
            out.push(session.is_settled.into());
            kept.put_state(&session.acc, out)?;
        }
        Ok(())
    }

    /// What [`write`](Self::write) has appended. Nothing is scheduled.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn read<K: Key>(kept: &KeptAs<K, A>, rest: &mut Rest<'_>) -> Result<Self> {
        let mut all = Sessions::default();
        while !rest.is_empty() {
            let (start, last) = (rest.time()?, rest.time()?);
            let [is_shown, is_settled] = rest.array()?;
            all.sessions.push(Session {
                start,
                last,
                acc: kept.take_state(rest)?,
                is_shown: is_shown != 0,
                is_settled: is_settled != 0,
            });
        }
        Ok(all)
    }

    /// The accumulator for a record at `time`, and whether something may have become due earlier than it was. A record
    /// that is `too_old` gets no session of its own.
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

    /// Joins all sessions that a record at `time` reaches, or that reach it; or makes one.
    fn join<F: KeyedFold<Acc = A>>(
        &mut self,
        fold: &F,
        spec: &SessionSpec,
        time: Timestamp,
        too_old: bool,
    ) -> Option<usize> {
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
        }
        Some(first)
    }

    /// The time at which the first session is due, and where it is.
    pub(crate) fn first_due(&self, spec: &SessionSpec) -> Option<(Timestamp, usize)> {
        let due = self
            .sessions
            .iter()
            .enumerate()
            .map(|(at, session)| (session.due(spec), at));
        due.min()
    }

    /// When the key has to be looked at, if that is earlier than it is scheduled for; it then is scheduled for it.
    pub(crate) fn due_before_scheduled(&mut self, spec: &SessionSpec) -> Option<Timestamp> {
        let (due, _) = self.first_due(spec)?;
        if self.scheduled.is_some_and(|scheduled| scheduled <= due) {
            return None;
        }
        self.scheduled = Some(due);
        Some(due)
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
        let due = !session.is_settled;
        let settled = due.then(|| Settled {
            start,
            end,
            value: fold.finish(&session.acc),
            is_shown,
        });
        (session.is_shown, session.is_settled) = (true, true);
        if settled.is_none() || spec.lateness.is_zero() {
            self.sessions.remove(position);
        }
        settled
    }
}
