//! The part of a copy that is no primary.

use super::filling::Filling;
use super::{Course, Have, Replica, ReplicaAction, ReplicaWord, Role, Say};
use crate::protocol::MemberId;
use crate::protocol::operation::Change;
use crate::protocol::shelf::{Cursor, Parcel};
use crate::protocol::view::{Holder, Record};

/// What a copy remembers that is no primary.
pub(super) struct Backup {
    /// On which course it hears its primary, if it has heard it yet.
    course: Option<Course>,
    /// Up to here it has what its primary has. Behind that its log has what an earlier primary sent: that may be settled, and is kept until the primary sends
    /// it again, or something else.
    agreed: u64,
    /// What it needs until it is whole.
    pub filling: Option<Filling>,
}

/// Where changes that have come belong, and what is known of others: see [`Say::Append`].
pub(super) struct Bounds {
    pub start: u64,
    pub inherited: u64,
    pub before: u64,
    pub settled: u64,
}

impl Replica {
    /// This copy is no primary, as before or from now on.
    pub(super) fn serve(&mut self, holder: Holder, record: &Record, out: &mut Vec<ReplicaAction>) {
        self.abdicate(out);
        let (course, agreed, filling) = match std::mem::replace(&mut self.role, Role::Nothing) {
            Role::Backup(backup) => (backup.course, backup.agreed, backup.filling),
            _ => (None, self.applied, None),
        };
        let course = course.filter(|course| course.reign == record.reign);
        let is_whole = record.is_whole(holder.member);
        let filling = match filling {
            _ if is_whole => None,
            Some(filling) if course.is_some() => Some(filling),
            _ => Some(Filling::default()),
        };
        self.log.forget(self.applied);
        self.role = Role::Backup(Backup {
            course,
            agreed,
            filling,
        });
    }

    /// Whether that may be said by this partition's primary, to this copy.
    fn is_for_me(&self, from: MemberId, course: Course) -> bool {
        let record = self.record.as_ref();
        let is_primary = record
            .is_some_and(|record| record.primary() == Some(from) && record.reign == course.reign);
        is_primary
            && self
                .holder()
                .is_some_and(|holder| holder.since == course.since)
    }

    /// The primary has changes.
    pub(super) fn append(
        &mut self,
        from: MemberId,
        course: Course,
        bounds: Bounds,
        changes: Vec<Change>,
        out: &mut Vec<ReplicaAction>,
    ) {
        let Bounds {
            start,
            inherited,
            before,
            settled,
        } = bounds;
        if !self.is_for_me(from, course) || !self.follow(course, start, inherited) {
            return;
        }
        let Role::Backup(backup) = &self.role else {
            return;
        };
        let agreed = backup.agreed;
        let gap = before > agreed;
        // First what is settled goes, so that what has come takes its place.
        self.apply_up_to(settled.min(agreed));
        self.log.forget(self.applied);
        if !gap {
            let known = usize::try_from(agreed - before).unwrap_or(usize::MAX);
            let mut agrees = agreed;
            for change in changes.into_iter().skip(known) {
                agrees += 1;
                self.log.set(agrees, change);
            }
            self.agree_up_to(agrees);
            self.apply_up_to(settled.min(agrees));
            self.log.forget(self.applied);
        }
        self.tell_what_is_there(from, gap, out);
    }

    /// Up to that change it has what its primary has.
    fn agree_up_to(&mut self, upto: u64) {
        if let Role::Backup(backup) = &mut self.role {
            backup.agreed = upto;
        }
    }

    /// Whether the course is the one that it is on, or begins now.
    fn follow(&mut self, course: Course, start: u64, inherited: u64) -> bool {
        let Role::Backup(backup) = &mut self.role else {
            return false;
        };
        match backup.course {
            Some(present) if present == course => return true,
            // Late words of an earlier attempt to fill it.
            Some(present) if present.reign == course.reign && present.attempt > course.attempt => {
                return false;
            }
            _ => {}
        }
        backup.course = Some(course);
        if backup.filling.is_some() {
            backup.filling = Some(Filling::default());
            self.wipe(start);
        } else {
            // All up to the start was settled. What is behind that may be: the primary has it then, but may be gone before it has sent it. What it hasn't
            // never will be.
            self.apply_up_to(start.min(self.log.end()));
            self.log.forget(self.applied);
            self.log.cut(inherited);
        }
        self.agree_up_to(self.applied);
        true
    }

    fn tell_what_is_there(&mut self, from: MemberId, gap: bool, out: &mut Vec<ReplicaAction>) {
        let Role::Backup(backup) = &self.role else {
            return;
        };
        if let Some(course) = backup.course {
            let is_filled = |filling: &Filling| filling.is_done(self.applied);
            let say = Say::Have(Have {
                upto: backup.agreed,
                made: self.applied,
                gap,
                filled: backup.filling.as_ref().is_none_or(is_filled),
            });
            out.push(ReplicaAction::Tell(from, ReplicaWord { course, say }));
        }
    }

    /// Whether it should ask for entries.
    pub fn wants_entries(&self) -> bool {
        match &self.role {
            Role::Backup(backup) => {
                backup.course.is_some() && backup.filling.as_ref().is_some_and(Filling::wants)
            }
            _ => false,
        }
    }

    /// Asks its primary for entries; whoever calls it bounds the rate.
    pub fn pull(&mut self, out: &mut Vec<ReplicaAction>) {
        let primary = self.record.as_ref().and_then(|record| record.primary());
        if let (Role::Backup(backup), Some(primary)) = (&self.role, primary)
            && let (Some(course), Some(cursor)) = (
                backup.course,
                backup.filling.as_ref().and_then(|filling| filling.next),
            )
        {
            let say = Say::Pull(cursor);
            out.push(ReplicaAction::Tell(primary, ReplicaWord { course, say }));
        }
    }

    /// Entries have come.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one word")]
    pub(super) fn unpack(
        &mut self,
        from: MemberId,
        course: Course,
        cursor: Cursor,
        next: Option<Cursor>,
        at: u64,
        parcels: Vec<Parcel>,
        out: &mut Vec<ReplicaAction>,
    ) {
        if !self.is_for_me(from, course) {
            return;
        }
        let Role::Backup(backup) = &mut self.role else {
            return;
        };
        let is_mine = backup.course == Some(course);
        let Some(filling) = backup
            .filling
            .as_mut()
            .filter(|filling| is_mine && filling.next == Some(cursor))
        else {
            return;
        };
        for parcel in &parcels {
            filling.unpack(&mut self.shelf, parcel);
        }
        filling.came(&mut self.shelf, next, at);
        self.account();
        self.tell_what_is_there(from, false, out);
    }
}
