//! The invariants of the simulated grid, and the conditions of recovery.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_core::PartitionId;
use ardea_grid::protocol::{Holder, Member, MemberId, Node, Record, Replica, View};

use super::history::{HistoryEvent, HistoryOperation, OperationResult, Verdict, explain};
use super::simulation::{FINAL_READER, GridSimulation};

/// The maximum number of states in the search for a linearization of one key.
const MOST_WAYS: usize = 200_000;

impl GridSimulation {
    fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partitions).filter_map(PartitionId::from_index)
    }

    /// Checks that no other member serves a partition that the member `id` serves.
    pub fn check_alone(&mut self, id: u64) {
        let Some(life) = self.lives.get(&id) else {
            return;
        };
        let clock = life.clock.read(self.now);
        let serves = |partition: &PartitionId| life.node.serves(clock, *partition);
        let also = self.partitions().filter(serves).find_map(|partition| {
            let mut others = self.lives.iter().filter(|(other, _)| **other != id);
            let other = others.find(|(_, other)| {
                other.halted <= self.now && other.node.serves(other.clock.read(self.now), partition)
            });
            other.map(|(other, _)| (partition, *other))
        });
        if let Some((partition, other)) = also {
            self.breaks(format!("{id} and {other} both serve {partition:?}"));
        }
    }

    /// Checks a view that a member has installed: it equals the known view of the same number, or
    /// has the next number.
    pub fn installed(&mut self, id: u64, view: Arc<View>) {
        if view.number == self.newest.number && *view != *self.newest {
            self.breaks(format!("{id} has another view {}", view.number));
        }
        if view.number <= self.newest.number {
            return;
        }
        if view.number != self.newest.number.next() {
            // The member that decided the views in between has them first, and may have died
            // immediately.
            let before = self.newest.number;
            let number = view.number;
            self.remember(format!(
                "views between {before} and {number} were never seen"
            ));
        }
        let members: Vec<_> = view.members.iter().map(|member| member.id.0).collect();
        self.remember(format!("view {}: {members:?}", view.number));
        self.report.views += 1;
        let before = Arc::clone(&self.newest);
        let follows = view.number == before.number.next();
        for (partition, record) in view.partitions() {
            if let Some(old) = before.record(partition) {
                self.changed(partition, old, record, &view, follows);
            }
        }
        self.newest = view;
    }

    /// Checks a change of a partition's owners. All copies may be lost only if more members were
    /// lost than there are backups, since the partition last had all copies.
    fn changed(
        &mut self,
        partition: PartitionId,
        old: &Record,
        new: &Record,
        view: &View,
        follows: bool,
    ) {
        let is_here = |member: &MemberId| view.has(*member);
        let whole = old.whole.iter();
        let gone = whole.filter(|holder| !is_here(&holder.member)).count();
        if old.whole.len() > self.backups() {
            self.lost_copies.insert(partition, 0);
        }
        // If too few members stay for all copies, those of leaving members are dropped too.
        let stay = view.members.len() - view.leaving.len();
        let is_aborted = |holder: &&Holder| {
            is_here(&holder.member) && !new.is_kept_by(holder.member) && stay <= self.backups()
        };
        let aborted = old.whole.iter().filter(is_aborted).count();
        if let Some(lost) = self.lost_copies.get_mut(&partition) {
            *lost += gone + aborted;
        }
        let whole = new.whole.iter();
        let filled = whole.filter(|holder| !old.is_whole(holder.member)).count() as u64;
        if new.losses > old.losses {
            self.report.lost += 1;
            self.remember(format!("{partition:?} is lost"));
            let now = self.now;
            let lost = self.lost_copies.remove(&partition);
            let too_few = lost.is_some_and(|lost| lost <= self.backups());
            if follows && (gone < old.whole.len() || too_few) {
                self.breaks(format!("{partition:?} was lost with {lost:?} copies"));
            }
            let event = HistoryEvent {
                deed: HistoryOperation::Lose,
                began: now,
                ended: now,
                seen: OperationResult::Unknown,
            };
            let keys = (0..100).filter(|key| self.partition_of(*key) == partition);
            for key in keys.collect::<Vec<u64>>() {
                self.history.entry(key).or_default().push(event);
            }
        } else {
            self.report.filled += filled;
            if old.primary() != new.primary() {
                match old.primary().is_some_and(|primary| is_here(&primary)) {
                    true => self.report.handed_over += 1,
                    false => self.report.promoted += 1,
                }
            }
        }
    }

    /// Returns true if the remaining members do not form a quorum.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck_but_for(|_| false)
    }

    /// Returns true if the other members would not form a quorum without the member `life`.
    pub fn is_stuck_without(&self, life: u64) -> bool {
        self.is_stuck_but_for(|id| id.0 == life)
    }

    fn is_stuck_but_for(&self, ends: impl Fn(MemberId) -> bool) -> bool {
        let is_dead = |id: MemberId| !self.lives.contains_key(&id.0) || ends(id);
        let lives = self.lives.iter();
        let lives = lives.filter(|(id, _)| !ends(MemberId(**id)));
        let nodes: Vec<&Node> = lives.map(|(_, life)| &life.node).collect();
        if nodes.iter().any(|node| node.is_out()) {
            // A member that has left still notifies others.
            return false;
        }
        // The members with the newest view may have died.
        let known = nodes.iter().filter_map(|node| node.view());
        let known = known.max_by_key(|view| view.number);
        known.is_none_or(|view| !view.is_quorum(|id| !is_dead(id), is_dead))
    }

    /// Returns true if the member was expelled while it was cut off, and all others that it knows
    /// have ended or were expelled too. No member is left to notify it, and it has no lease.
    fn is_forlorn(&self, id: u64) -> bool {
        let view = self.lives.get(&id).and_then(|life| life.node.view());
        let mut others = view.iter().flat_map(|view| &view.members);
        let is_gone =
            |other: &Member| !self.lives.contains_key(&other.id.0) || !self.newest.has(other.id);
        view.is_some() && !self.newest.has(MemberId(id)) && others.all(is_gone)
    }

    /// Returns a condition of recovery that is not met yet, or `None`.
    pub fn unrecovered(&mut self) -> Option<String> {
        let alive = self.lives.iter().filter(|(_, life)| !life.node.is_out());
        let alive = alive.map(|(id, _)| *id);
        let alive: BTreeSet<u64> = alive.filter(|id| !self.is_forlorn(*id)).collect();
        let members = self.newest.members.iter();
        let members: BTreeSet<u64> = members.map(|member| member.id.0).collect();
        if alive != members {
            return Some(format!("{alive:?} are alive, and {members:?} are members"));
        }
        for (id, life) in self.lives.iter().filter(|(id, _)| alive.contains(id)) {
            let view = life.node.view().map(|view| view.number);
            if view != Some(self.newest.number) {
                let newest = self.newest.number;
                return Some(format!(
                    "{id} is in view {view:?}, and the newest is {newest}"
                ));
            }
        }
        let is_leaving = !self.newest.leaving.is_empty();
        if !self.newest.is_settled() && !is_leaving {
            let records = &self.newest.records;
            return Some(format!("not everything is where it should be: {records:?}"));
        }
        if !self.under_way.is_empty() {
            return Some(format!("not everything is answered: {:?}", self.under_way));
        }
        if !self.final_reads {
            self.final_reads = true;
            self.read_all();
            return Some("keys are still being read".to_string());
        }
        self.partitions()
            .find_map(|partition| self.differs(partition))
    }

    /// Reads all keys, each at a random member.
    fn read_all(&mut self) {
        let lives = self.lives.iter().filter(|(_, life)| !life.node.is_out());
        let lives: Vec<u64> = lives.map(|(id, _)| *id).collect();
        let keys: Vec<u64> = self.history.keys().copied().collect();
        for key in keys {
            if let Some(life) = self.random.pick(&lives) {
                self.start_operation(FINAL_READER, life, key, GridSimulation::look_at(key));
            }
        }
    }

    /// Returns a difference between the copies of a partition, if any.
    fn differs(&self, partition: PartitionId) -> Option<String> {
        let record = self.newest.record(partition)?;
        let mut copies = record.whole.iter().filter_map(|holder| {
            let life = self.lives.get(&holder.member.0)?;
            let look =
                |replica: &Replica| (replica.applied(), replica.content(), format!("{replica:?}"));
            Some((holder.member, life.node.look_at(partition, look)?))
        });
        let (first, copy) = copies.next()?;
        let other = copies.find(|(_, other)| (other.0, &other.1) != (copy.0, &copy.1));
        other.map(|(other, there)| {
            format!(
                "{partition:?} differs: {first} has {}, {other} has {}",
                copy.2, there.2
            )
        })
    }

    /// Checks that the observations of all clients are linearizable.
    ///
    /// # Errors
    ///
    /// The history of a key whose observations are not linearizable.
    pub fn explain(&mut self) -> Result<(), String> {
        if !self.is_synchronous() {
            return Ok(());
        }
        // A stuck grid does not answer: the pending operations may have been done or not.
        for asked in std::mem::take(&mut self.under_way).into_values() {
            self.has_seen(&asked, OperationResult::Unknown);
        }
        for (key, events) in &self.history {
            match explain(events, MOST_WAYS) {
                Verdict::Explained => {}
                Verdict::TooMuch => self.report.unexplained += 1,
                Verdict::Impossible => {
                    let mut events = events.clone();
                    events.sort_by_key(|event| event.began);
                    let lines: Vec<String> = events
                        .iter()
                        .map(|event| {
                            let (began, ended) =
                                (event.began.as_secs_f64(), event.ended.as_secs_f64());
                            format!(
                                "  {began:.3} to {ended:.3}: {:?}: {:?}",
                                event.deed, event.seen
                            )
                        })
                        .collect();
                    return Err(format!(
                        "the history of key {key} is not linearizable:\n{}",
                        lines.join("\n")
                    ));
                }
            }
        }
        Ok(())
    }
}
