//! Role of a replica that is not the primary.

use super::resync::Resync;
use super::{
    Replica, ReplicaAction, ReplicaBody, ReplicaMessage, ReplicaProgress, ReplicationStreamId, Role,
};
use crate::protocol::MemberId;
use crate::protocol::operation::Change;
use crate::protocol::partition_store::{Cursor, EntryTransfer};
use crate::protocol::view::{Holder, Record};

/// State of a replica that is not the primary.
pub(super) struct Backup {
    /// The current replication stream, once the primary has sent a message.
    course: Option<ReplicationStreamId>,
    /// Number of the last change known to be equal to the primary's. Later changes in the log come
    /// from an earlier primary. They may be settled, and are retained until the primary sends them
    /// again or replaces them.
    agreed: u64,
    /// Resync state, if the replica is incomplete.
    pub filling: Option<Resync>,
}

/// Position of received changes, and the state of other replicas: see [`ReplicaBody::Append`].
pub(super) struct Bounds {
    pub start: u64,
    pub inherited: u64,
    pub before: u64,
    pub settled: u64,
}

impl Replica {
    /// Makes this replica a backup, or continues as one.
    pub(super) fn serve(&mut self, holder: Holder, record: &Record, out: &mut Vec<ReplicaAction>) {
        self.abdicate(out);
        let (course, agreed, filling) = match std::mem::replace(&mut self.role, Role::Nothing) {
            Role::Backup(backup) => (backup.course, backup.agreed, backup.filling),
            _ => (None, self.applied, None),
        };
        let course = course.filter(|course| course.term == record.term);
        let is_whole = record.is_whole(holder.member);
        let filling = match filling {
            _ if is_whole => None,
            Some(filling) if course.is_some() => Some(filling),
            _ => Some(Resync::default()),
        };
        self.log.forget(self.applied);
        self.role = Role::Backup(Backup {
            course,
            agreed,
            filling,
        });
    }

    /// Returns true if the message comes from the partition's primary and is meant for this
    /// replica.
    fn is_for_me(&self, from: MemberId, course: ReplicationStreamId) -> bool {
        let record = self.record.as_ref();
        let is_primary = record
            .is_some_and(|record| record.primary() == Some(from) && record.term == course.term);
        is_primary
            && self
                .holder()
                .is_some_and(|holder| holder.since == course.since)
    }

    /// Processes changes from the primary.
    pub(super) fn append(
        &mut self,
        from: MemberId,
        course: ReplicationStreamId,
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
        // Settled changes are applied first, to make room in the log.
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
        self.send_progress(from, gap, out);
    }

    /// Records that all changes up to this one are equal to the primary's.
    fn agree_up_to(&mut self, upto: u64) {
        if let Role::Backup(backup) = &mut self.role {
            backup.agreed = upto;
        }
    }

    /// Returns true if the stream is the current one, or starts now.
    fn follow(&mut self, course: ReplicationStreamId, start: u64, inherited: u64) -> bool {
        let Role::Backup(backup) = &mut self.role else {
            return false;
        };
        match backup.course {
            Some(present) if present == course => return true,
            // A late message of an earlier resync.
            Some(present) if present.term == course.term && present.attempt > course.attempt => {
                return false;
            }
            _ => {}
        }
        backup.course = Some(course);
        if backup.filling.is_some() {
            backup.filling = Some(Resync::before_stream(start));
            self.wipe(start);
        } else {
            // All changes up to the start are settled. Later ones up to `inherited` may be: the
            // primary has them, but may fail before it has sent them. Changes after `inherited`
            // never will be.
            self.apply_up_to(start.min(self.log.end()));
            self.log.forget(self.applied);
            self.log.cut(inherited);
        }
        self.agree_up_to(self.applied);
        true
    }

    fn send_progress(&mut self, from: MemberId, gap: bool, out: &mut Vec<ReplicaAction>) {
        let Role::Backup(backup) = &self.role else {
            return;
        };
        if let Some(course) = backup.course {
            let is_filled = |filling: &Resync| filling.is_done(self.applied);
            let say = ReplicaBody::Progress(ReplicaProgress {
                upto: backup.agreed,
                made: self.applied,
                gap,
                filled: backup.filling.as_ref().is_none_or(is_filled),
            });
            out.push(ReplicaAction::SendMessage(
                from,
                ReplicaMessage {
                    stream: course,
                    body: say,
                },
            ));
        }
    }

    /// Returns true if entries should be requested.
    pub fn wants_entries(&self) -> bool {
        match &self.role {
            Role::Backup(backup) => {
                backup.course.is_some() && backup.filling.as_ref().is_some_and(Resync::wants)
            }
            _ => false,
        }
    }

    /// Requests entries from the primary; the caller limits the rate.
    pub fn pull(&mut self, out: &mut Vec<ReplicaAction>) {
        let primary = self.record.as_ref().and_then(|record| record.primary());
        if let (Role::Backup(backup), Some(primary)) = (&self.role, primary)
            && let (Some(course), Some(cursor)) = (
                backup.course,
                backup.filling.as_ref().and_then(|filling| filling.next),
            )
        {
            let say = ReplicaBody::Pull(cursor);
            out.push(ReplicaAction::SendMessage(
                primary,
                ReplicaMessage {
                    stream: course,
                    body: say,
                },
            ));
        }
    }

    /// Processes received entries.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one word")]
    pub(super) fn unpack(
        &mut self,
        from: MemberId,
        course: ReplicationStreamId,
        cursor: Cursor,
        next: Option<Cursor>,
        at: u64,
        parcels: Vec<EntryTransfer>,
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
            filling.unpack(&mut self.store, parcel);
        }
        filling.came(&mut self.store, next, at);
        self.account();
        self.send_progress(from, false, out);
    }
}
