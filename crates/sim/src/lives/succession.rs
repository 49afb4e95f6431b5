//! What must hold when the job's program is followed by another: what one has left is what the next begins with, and nothing behind that is
//! published by the one that gave way.

use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    BROUGHT, EpochsRecord, JobRecord, LeftState, Refused, StoreReply, StoreRequest, Upgrade,
    UpgradeEnd, WorkerId,
};
use ardea_core::{Error, ErrorCode};

use super::Program;
use super::instance::Counts;
use super::published::behind;
use crate::faults::Fault;
use crate::world::{Event, World};

/// What a program is like that is to follow another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Nature {
    /// It comes up.
    #[default]
    Good,
    /// Its instances fail whenever they begin.
    Fails,
    /// None of its cuts can be saved.
    Mute,
    /// Its first cuts are saved just when nobody has patience any more.
    Slow,
    /// It can't go on from what the one before remembers.
    Misfit,
}

impl Program {
    /// Whether nothing is published that another program goes on from.
    ///
    /// # Errors
    ///
    /// When it is.
    pub(super) fn may_publish(&self, counts: &Counts) -> Result<(), String> {
        let doubled = self.bound.as_ref().and_then(|bound| behind(counts, bound));
        doubled.map_or(Ok(()), |what| {
            Err(format!("a program publishes that was followed: {what}"))
        })
    }
}

impl World {
    /// What a worker's program is like now.
    pub(super) fn nature_of(&self, id: WorkerId) -> Nature {
        let of = self.workers.get(&id).map(|worker| worker.of);
        let nature = self.lives.as_ref().zip(of);
        match nature.map_or(Nature::Good, |(lives, of)| lives.nature(of)) {
            Nature::Slow if !self.is_proving() => Nature::Good,
            nature => nature,
        }
    }

    fn is_proving(&self) -> bool {
        self.patience().is_some()
    }

    /// How long a program may take that has to come up.
    fn patience(&self) -> Option<Duration> {
        let (record, _) = self.shelf.record.value.as_ref()?;
        match &record.upgrade {
            Some(Upgrade::Proving(before)) => Some(before.patience),
            _ => None,
        }
    }

    /// A master begins with the epochs of a slow program that has to come up. When it has no patience any more, some of what is said is lost: what
    /// the program commits, and that it is to give way.
    pub(super) fn note_claim(&mut self, before: Option<&EpochsRecord>, record: &EpochsRecord) {
        let of = record.job.submission;
        let is_claim = before.is_none_or(|before| before.master < record.master);
        let (Some(patience), Some(lives)) = (self.patience(), &mut self.lives) else {
            return;
        };
        if !is_claim || lives.nature(of) != Nature::Slow {
            return;
        }
        let judged_at = self.now + patience;
        lives.program(of).judged_at = Some(judged_at);
        let second = Duration::from_secs(1);
        let until = judged_at + 3 * second;
        if until < lives.befallen_until {
            let at = judged_at.saturating_sub(self.random.time(Duration::ZERO, second));
            let storm = Fault::Storm(self.random.time(second, 3 * second));
            self.timeline.plan(at, Event::Fault(storm));
        }
    }

    /// By how many milliseconds a worker's cuts are saved later than usual.
    pub(super) fn lateness_of(&mut self, id: WorkerId) -> u64 {
        if self.nature_of(id) != Nature::Slow {
            return 0;
        }
        let of = self.workers.get(&id).map(|worker| worker.of);
        let program = self.lives.as_mut().zip(of);
        let judged_at = program.and_then(|(lives, of)| lives.program(of).judged_at);
        let left = judged_at.map(|at| at.saturating_sub(self.now).as_millis() as u64);
        (left.unwrap_or(0) + self.random.below(1_000)).saturating_sub(500)
    }

    /// Another job takes the place of this one, and begins with that state of that submission.
    ///
    /// # Errors
    ///
    /// When something of this one runs, the state is not what was left, or more than that is published.
    pub(crate) fn check_giving_way(
        &mut self,
        from: (u64, Option<LeftState>),
        next: u64,
    ) -> Result<(), String> {
        let own = self.job.submission;
        let (from, state) = from;
        if let Some(worker) = self.cluster.current().next() {
            return Err(format!("another program follows while {worker} runs"));
        }
        let committed = self.shelf.epochs_of(from);
        let committed = committed.and_then(|record| LeftState::of(record));
        let Some(lives) = &mut self.lives else {
            return Err("a job without a guarantee is followed".to_string());
        };
        let program = lives.program(from);
        let known = *program.left.get_or_insert(state);
        if known != state || (from == own && committed != state) {
            return Err(format!(
                "a program goes on from {state:?}, and {known:?} was left of {committed:?}"
            ));
        }
        let bound = state.map(|state| program.vault.read_by(state.epoch).cloned());
        let bound = match bound {
            Some(Some(read)) => read,
            Some(None) => return Err(format!("{state:?} was never recorded")),
            None => Counts::new(),
        };
        if let Some(what) = lives.published.behind(&bound) {
            return Err(format!(
                "a program goes on before what is published: {what}"
            ));
        }
        for of in [own, from] {
            lives.program(of).bound = Some(bound.clone());
        }
        lives.program(next).begins = state.map(|state| (from, state));
        Ok(())
    }

    /// A master looks for the record of epochs of a job that has none yet: if that begins with what another has left, it is brought first, unless
    /// that can't be read.
    pub(crate) fn brings(&mut self, of: u64) -> Option<StoreReply<Arc<EpochsRecord>>> {
        let lives = self.lives.as_mut()?;
        let (from, state) = lives.programs.get(&of)?.begins?;
        if !self.shelf.is_there(of) {
            return None;
        }
        if lives.is_damaged {
            return Some(match self.random.per_mille(500) {
                true => StoreReply::Unavailable,
                false => {
                    let error = Error::new(ErrorCode::SnapshotDamaged, "a block is damaged");
                    StoreReply::Refused(Refused::not_stored(&error))
                }
            });
        }
        let left = lives.programs.remove(&from)?;
        let brought = lives.program(of).vault.bring(&left.vault, state);
        lives.programs.insert(from, left);
        if let Err(broken) = brought {
            self.watch.broken(broken);
        }
        let first = Arc::new(EpochsRecord::brought(self.job.clone(), state.epoch));
        let write = StoreRequest::Write {
            value: first,
            expected: None,
        };
        self.shelf.epochs(of, write);
        None
    }

    /// The job's record is stored: each step of an upgrade follows from the one before, and what is over stays so.
    pub(crate) fn check_upgrade(&mut self, before: Option<&JobRecord>, record: &JobRecord) {
        let before = before.and_then(|before| before.upgrade.as_ref());
        let after = record.upgrade.as_ref();
        if before == after {
            return;
        }
        let is_next = match (before, after) {
            (None | Some(Upgrade::Over(_)), Some(Upgrade::Leaving(_))) => true,
            (Some(Upgrade::Leaving(order)), Some(Upgrade::Left(same, _))) => order == same,
            (Some(Upgrade::Proving(by)), Some(Upgrade::Returning(same, _))) => by == same,
            (Some(Upgrade::Proving(by)), Some(Upgrade::Over(UpgradeEnd::Upgraded { from }))) => {
                self.has_come_up() && by.job.definition.job.submission == *from
            }
            _ => false,
        };
        let word = |upgrade: Option<&Upgrade>| upgrade.map(Upgrade::word);
        let what = format!("upgrade: {:?} after {:?}", word(after), word(before));
        if !is_next {
            return self.watch.broken(what);
        }
        self.watch.say(self.now, what);
        if let (Some(Upgrade::Over(_)), Some(lives)) = (after, &mut self.lives) {
            lives.report.upgraded += 1;
        }
    }

    /// Whether the job has committed an epoch of its own.
    fn has_come_up(&self) -> bool {
        let record = self.epochs_record();
        let committed = record.and_then(LeftState::of);
        committed.is_some_and(|state| state.generation != BROUGHT)
    }
}
