//! Membership of a grid with a slow member: its messages arrive late, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_grid::protocol::{
    ConsensusAction, ConsensusConfig, ConsensusEvent, Holder, Member, MemberId, Membership,
    MembershipMessage, ReplicaClaim, SyncState,
};

const PARTITIONS: u32 = 128;

const TICK: Duration = Duration::from_millis(20);

/// A message under way: its receiver, its sender and its content.
type Underway = (u64, Member, MembershipMessage);

/// Members, and the messages between them.
struct SlowGrid {
    councils: BTreeMap<u64, Membership>,
    /// The messages under way, by the time of arrival and a number.
    underway: BTreeMap<(Duration, u64), Underway>,
    sent: u64,
    /// The slow member, and the delay of its messages.
    slow: (u64, Duration),
    /// The replicas that are complete.
    complete: BTreeSet<(u32, Holder)>,
    out: BTreeSet<u64>,
    now: Duration,
}

fn member(id: u64) -> Member {
    Member::new(MemberId(id), format!("host-{id}"), id.to_string())
}

impl SlowGrid {
    fn founded(config: ConsensusConfig) -> Self {
        let founder = Membership::found(member(1), PARTITIONS, 1, config);
        SlowGrid {
            councils: BTreeMap::from([(1, founder)]),
            underway: BTreeMap::new(),
            sent: 0,
            slow: (0, Duration::ZERO),
            complete: BTreeSet::new(),
            out: BTreeSet::new(),
            now: Duration::ZERO,
        }
    }

    fn join(&mut self, id: u64, config: ConsensusConfig) {
        let council = Membership::join(member(id), vec!["1".into()], config);
        self.councils.insert(id, council);
    }

    fn happens(&mut self, id: u64, event: ConsensusEvent) {
        let Some(council) = self.councils.get_mut(&id) else {
            return;
        };
        let me = council.me().clone();
        for action in council.on(self.now, event) {
            match action {
                ConsensusAction::SendMessage(to, word) => {
                    let to: u64 = to.endpoint.parse().unwrap();
                    let is_late = [id, to].contains(&self.slow.0);
                    let delay = if is_late { self.slow.1 } else { Duration::ZERO };
                    self.sent += 1;
                    let arrival = (self.now + delay, self.sent);
                    self.underway.insert(arrival, (to, me.clone(), word));
                }
                ConsensusAction::Out => {
                    self.out.insert(id);
                }
                ConsensusAction::Installed(_) | ConsensusAction::Parted => {}
            }
        }
    }

    /// Delivers the messages that have arrived.
    fn deliver(&mut self) {
        while let Some(next) = self.underway.first_entry()
            && next.key().0 <= self.now
        {
            let (to, from, word) = next.remove();
            self.happens(to, ConsensusEvent::From(from, word));
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            let ids: Vec<u64> = self.councils.keys().copied().collect();
            for id in ids {
                let claims = self.claims_of(id);
                self.happens(id, ConsensusEvent::Claims(claims));
                self.happens(id, ConsensusEvent::Tick);
                self.deliver();
            }
        }
    }

    /// Completes the resync of this number of replicas in the view of the first member. Returns
    /// false if no replica is in resync.
    fn complete(&mut self, count: usize) -> bool {
        let Some(view) = self.councils[&1].view() else {
            return false;
        };
        let filling = view.partitions().flat_map(|(partition, record)| {
            let holders = record.filling.iter();
            holders.map(move |holder| (partition.index(), *holder))
        });
        let new: Vec<_> = filling
            .filter(|it| !self.complete.contains(it))
            .take(count)
            .collect();
        let has_some = !new.is_empty();
        self.complete.extend(new);
        has_some
    }

    fn claims_of(&self, id: u64) -> Vec<ReplicaClaim> {
        let Some(view) = self.councils.get(&id).and_then(Membership::view) else {
            return Vec::new();
        };
        let mut claims = Vec::new();
        for (partition, record) in view.partitions() {
            let partition = partition.index();
            if record.primary() != Some(MemberId(id)) {
                continue;
            }
            let is_complete = |holder: &&Holder| self.complete.contains(&(partition, **holder));
            let filled = record.filling.iter().filter(is_complete);
            let filled = filled.map(|holder| SyncState::Completed(holder.member));
            let promises = filled.chain(record.next_primary.map(SyncState::HandedOver));
            claims.extend(promises.map(|promise| ReplicaClaim {
                partition,
                version: record.version,
                promise,
            }));
        }
        claims
    }

    fn members(&self, id: u64) -> Vec<u64> {
        let view = self.councils[&id].view().unwrap();
        view.members.iter().map(|member| member.id.0).collect()
    }
}

#[test]
fn a_member_that_is_always_a_view_behind_is_alive() {
    let config = ConsensusConfig::default();
    let mut grid = SlowGrid::founded(config);
    grid.join(2, config);
    grid.join(3, config);
    while {
        grid.pass(Duration::from_millis(500));
        grid.complete(usize::MAX)
    } {}
    assert_eq!(grid.members(1), [1, 2, 3]);
    // The views follow each other faster than the slow member can answer.
    grid.slow = (3, Duration::from_millis(300));
    grid.join(4, config);
    grid.pass(Duration::from_secs(1));
    while grid.complete(1) {
        grid.pass(Duration::from_millis(100));
        assert!(grid.out.is_empty());
        assert_eq!(grid.members(1), [1, 2, 3, 4]);
    }
    grid.pass(Duration::from_secs(3));
    while grid.complete(usize::MAX) {
        grid.pass(Duration::from_secs(3));
    }
    for id in 1..=4 {
        assert_eq!(grid.councils[&id].view(), grid.councils[&1].view());
    }
    assert!(grid.councils[&1].view().unwrap().is_settled());
}

#[test]
fn a_member_that_receives_no_views_is_removed_although_its_messages_arrive() {
    let config = ConsensusConfig::default();
    let mut grid = SlowGrid::founded(config);
    grid.join(2, config);
    grid.join(3, config);
    while {
        grid.pass(Duration::from_millis(500));
        grid.complete(usize::MAX)
    } {}
    // It installs no later view, and sends pings of this one.
    let mut stuck = grid.councils.remove(&3).unwrap();
    grid.join(4, config);
    let mut left = Duration::from_secs(10);
    while grid.members(1).contains(&3) {
        assert!(!left.is_zero(), "it is removed");
        left = left.saturating_sub(Duration::from_millis(100));
        for action in stuck.on(grid.now, ConsensusEvent::Tick) {
            if let ConsensusAction::SendMessage(to, word) = action {
                let to: u64 = to.endpoint.parse().unwrap();
                grid.happens(to, ConsensusEvent::From(member(3), word));
            }
        }
        grid.deliver();
        grid.complete(1);
        grid.pass(Duration::from_millis(100));
    }
    assert!(grid.members(1).contains(&4));
}
