//! Membership of a few members. Messages are delivered immediately unless the members are cut off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_grid::protocol::{
    Ballot, ConsensusAction, ConsensusConfig, ConsensusEvent, Member, MemberId, Membership,
    MembershipMessage, Ping, ReplicaClaim, SyncState, View, ViewNumber,
};

struct Hall {
    councils: BTreeMap<u64, Membership>,
    /// Members that can reach only each other.
    apart: BTreeSet<u64>,
    /// Pairs of which the first cannot send to the second.
    cut: BTreeSet<(u64, u64)>,
    /// A pair of which the first does not receive views that exclude the second.
    misses: Option<(u64, u64)>,
    out: BTreeSet<u64>,
    parted: BTreeSet<u64>,
    now: Duration,
}

fn member(id: u64) -> Member {
    Member::new(MemberId(id), format!("host-{id}"), id.to_string())
}

impl Hall {
    /// Creates this number of members, of which the first has founded the grid.
    fn of(count: u64) -> Self {
        let config = ConsensusConfig::default();
        let mut councils = BTreeMap::from([(1, Membership::found(member(1), 8, 1, config))]);
        for id in 2..=count {
            councils.insert(id, Membership::join(member(id), vec!["1".into()], config));
        }
        let mut hall = Hall {
            councils,
            apart: BTreeSet::new(),
            cut: BTreeSet::new(),
            misses: None,
            parted: BTreeSet::new(),
            out: BTreeSet::new(),
            now: Duration::ZERO,
        };
        hall.pass(3_000);
        hall
    }

    fn happens(&mut self, id: u64, event: ConsensusEvent) {
        let mut todo = VecDeque::from([(id, event)]);
        while let Some((id, event)) = todo.pop_front() {
            let now = self.now;
            let Some(council) = self.councils.get_mut(&id) else {
                continue;
            };
            let me = council.me().clone();
            for action in council.on(now, event) {
                match action {
                    ConsensusAction::SendMessage(to, word) => {
                        let to: u64 = to.endpoint.parse().unwrap();
                        if self.arrives(id, to, &word) {
                            todo.push_back((to, ConsensusEvent::From(me.clone(), word)));
                        }
                    }
                    ConsensusAction::Installed(_) => {}
                    ConsensusAction::Out => {
                        self.out.insert(id);
                    }
                    ConsensusAction::Parted => {
                        self.parted.insert(id);
                    }
                }
            }
        }
    }

    fn arrives(&self, from: u64, to: u64, word: &MembershipMessage) -> bool {
        let is_missed = match (word, self.misses) {
            (MembershipMessage::Decided(view), Some((missing, gone))) => {
                missing == to && !view.has(MemberId(gone))
            }
            _ => false,
        };
        let is_cut = self.cut.contains(&(from, to));
        self.apart.contains(&to) == self.apart.contains(&from) && !is_cut && !is_missed
    }

    /// Advances the time in milliseconds; primaries complete their work immediately.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.now += Duration::from_millis(20);
            let ids: Vec<u64> = self.councils.keys().copied().collect();
            for id in ids {
                let claims = self.claims_of(id);
                self.happens(id, ConsensusEvent::Claims(claims));
                self.happens(id, ConsensusEvent::Tick);
            }
        }
    }

    fn claims_of(&self, id: u64) -> Vec<ReplicaClaim> {
        let mut claims = Vec::new();
        let Some(view) = self.councils.get(&id).and_then(Membership::view) else {
            return claims;
        };
        for (partition, record) in view.partitions() {
            if record.primary() == Some(MemberId(id)) {
                let filled = record
                    .filling
                    .iter()
                    .map(|holder| SyncState::Completed(holder.member));
                let promises = filled.chain(record.next_primary.map(SyncState::HandedOver));
                claims.extend(promises.map(|promise| ReplicaClaim {
                    partition: partition.index(),
                    version: record.version,
                    promise,
                }));
            }
        }
        claims
    }

    fn view(&self, id: u64) -> &Arc<View> {
        self.councils[&id].view().unwrap()
    }

    fn may_act(&self, id: u64) -> bool {
        self.councils
            .get(&id)
            .is_some_and(|council| council.lease().is_some_and(|until| self.now < until))
    }

    fn members(&self, id: u64) -> Vec<u64> {
        self.view(id)
            .members
            .iter()
            .map(|member| member.id.0)
            .collect()
    }
}

#[test]
fn who_comes_is_let_in_and_all_have_one_view() {
    let hall = Hall::of(5);
    for id in 1..=5 {
        assert_eq!(hall.view(id), hall.view(1));
        assert!(hall.may_act(id));
    }
    assert_eq!(hall.view(1).members.len(), 5);
    assert!(hall.view(1).is_settled());
}

#[test]
fn a_majority_goes_on_without_a_member_that_is_silent_and_it_learns_so_when_it_is_back() {
    let mut hall = Hall::of(3);
    hall.apart = BTreeSet::from([1]);
    hall.pass(5_000);
    assert_eq!(hall.members(2), hall.members(3));
    assert!(!hall.members(2).contains(&1));
    assert!(hall.may_act(2) && hall.may_act(3) && !hall.may_act(1));
    assert_eq!(hall.members(1).len(), 3, "alone it gets no other view");
    assert!(!hall.out.contains(&1));
    hall.apart.clear();
    hall.pass(500);
    assert!(hall.out.contains(&1));
}

#[test]
fn nobody_acts_for_a_member_that_may_still_act() {
    let mut hall = Hall::of(3);
    hall.apart = BTreeSet::from([1]);
    // The first has a lease for a while; until it ends there is no other view.
    while hall.may_act(1) {
        assert!(hall.members(2).contains(&1));
        hall.pass(20);
    }
    hall.pass(5_000);
    assert!(!hall.members(2).contains(&1));
}

#[test]
fn two_halves_stop_and_go_on_when_they_meet_again() {
    let mut hall = Hall::of(4);
    let before = hall.view(1).number;
    hall.apart = BTreeSet::from([1, 2]);
    hall.pass(5_000);
    assert!((1..=4).all(|id| !hall.may_act(id)));
    assert!((1..=4).all(|id| hall.view(id).number == before));
    hall.apart.clear();
    hall.pass(2_000);
    assert!((1..=4).all(|id| hall.may_act(id)));
}

#[test]
fn one_of_two_goes_on_when_the_other_is_proven_to_be_dead() {
    let mut hall = Hall::of(2);
    hall.councils.remove(&1);
    hall.pass(5_000);
    assert!(!hall.may_act(2));
    hall.happens(2, ConsensusEvent::Dead(MemberId(1)));
    hall.pass(10_000);
    assert!(hall.may_act(2));
    assert_eq!(hall.members(2), [2]);
    assert!(hall.view(2).records.iter().all(|record| record.losses == 0));
}

#[test]
fn a_member_leaves_when_others_have_what_it_kept() {
    let mut hall = Hall::of(3);
    hall.happens(1, ConsensusEvent::Leave);
    hall.pass(2_000);
    assert!(hall.out.contains(&1));
    assert_eq!(hall.members(2), hall.members(3));
    assert!(hall.view(2).is_settled());
    assert!(hall.view(2).records.iter().all(|record| record.losses == 0));
}

#[test]
fn a_member_that_has_slept_blames_nobody() {
    let mut hall = Hall::of(3);
    hall.now += Duration::from_secs(60);
    let before = hall.view(1).number;
    hall.pass(2_000);
    assert_eq!(hall.view(1).number, before);
}

#[test]
fn words_of_strangers_and_of_other_views_change_nothing() {
    let mut hall = Hall::of(2);
    let before = Arc::clone(hall.view(1));
    let accept = MembershipMessage::Accept(
        before.number,
        Ballot::default(),
        Arc::new(View::first(member(9), 8, 1)),
    );
    hall.happens(1, ConsensusEvent::From(member(9), accept));
    let decided = MembershipMessage::Decided(Arc::new(View::first(member(9), 8, 1)));
    hall.happens(1, ConsensusEvent::From(member(9), decided));
    assert_eq!(hall.view(1), &before);
}

#[test]
fn who_has_voted_for_another_view_grants_no_lease_in_this_one() {
    let mut hall = Hall::of(3);
    let view = Arc::clone(hall.view(2));
    let now = hall.now;
    let ping = Ping {
        view: view.number,
        sent: now,
        claims: Vec::new(),
        leaving: false,
        gone: Vec::new(),
        joining: Vec::new(),
        receives_from: Vec::new(),
    };
    let grants = |hall: &mut Hall| {
        let word = MembershipMessage::Ping(ping.clone());
        let council = hall.councils.get_mut(&2).unwrap();
        let actions = council.on(now, ConsensusEvent::From(member(3), word));
        let is_grant = |action: &ConsensusAction| {
            matches!(
                action,
                ConsensusAction::SendMessage(_, MembershipMessage::Pong { .. })
            )
        };
        actions.iter().any(is_grant)
    };
    assert!(grants(&mut hall));
    let next = View {
        number: view.number.next(),
        ..(*view).clone()
    };
    let ballot = Ballot {
        round: 99,
        by: MemberId(1),
    };
    let accept = MembershipMessage::Accept(view.number, ballot, Arc::new(next));
    let council = hall.councils.get_mut(&2).unwrap();
    let voted = council.on(now, ConsensusEvent::From(member(1), accept));
    let is_vote = |action: &ConsensusAction| {
        matches!(
            action,
            ConsensusAction::SendMessage(_, MembershipMessage::Accepted(..))
        )
    };
    assert!(voted.iter().any(is_vote));
    assert!(!grants(&mut hall));
}

#[test]
fn who_can_not_be_answered_is_not_let_in() {
    let mut hall = Hall::of(1);
    // Its messages arrive, but it receives none.
    for _ in 0..100 {
        let join = MembershipMessage::Join(member(2), None);
        hall.happens(1, ConsensusEvent::From(member(2), join));
        hall.pass(100);
    }
    assert_eq!(hall.members(1), [1]);
    assert!(hall.may_act(1));
}

#[test]
fn grids_that_meet_stay_apart() {
    let mut hall = Hall::of(3);
    let config = ConsensusConfig::default();
    let found = |id| Membership::found(member(id), 8, 1, config);
    hall.councils.insert(11, found(11));
    let join = Membership::join(member(12), vec!["11".into(), "1".into()], config);
    hall.councils.insert(12, join);
    hall.pass(3_000);
    let theirs = Arc::clone(hall.view(11));
    assert_eq!(hall.members(11), [11, 12]);
    assert_eq!(hall.view(12), &theirs);
    // A later view of another grid does not replace a member's own.
    let mine = Arc::clone(hall.view(2));
    let later = View {
        number: ViewNumber(999),
        ..(*theirs).clone()
    };
    let decided = MembershipMessage::Decided(Arc::new(later));
    hall.happens(2, ConsensusEvent::From(member(11), decided));
    hall.happens(
        2,
        ConsensusEvent::From(member(11), MembershipMessage::Behind(mine.number)),
    );
    hall.pass(3_000);
    assert!((1..=3).all(|id| hall.view(id) == &mine && hall.may_act(id)));
    assert!(hall.out.is_empty());
    assert!(hall.may_act(11) && hall.may_act(12));
}

#[test]
fn who_is_put_out_has_stopped_before_it_votes_for_that() {
    let mut hall = Hall::of(3);
    let view = Arc::clone(hall.view(1));
    let without_first = View {
        number: view.number.next(),
        members: view.members[1..].to_vec(),
        ..(*view).clone()
    };
    assert!(
        view.records
            .iter()
            .any(|record| record.primary() == Some(MemberId(1)))
    );
    let ballot = Ballot {
        round: 99,
        by: MemberId(2),
    };
    let accept = MembershipMessage::Accept(view.number, ballot, Arc::new(without_first));
    let is_vote = |action: &ConsensusAction| {
        matches!(
            action,
            ConsensusAction::SendMessage(_, MembershipMessage::Accepted(..))
        )
    };
    let mut council = hall.councils.remove(&1).unwrap();
    let until = council.lease().unwrap();
    let mut now = hall.now;
    let mut voted = council.on(now, ConsensusEvent::From(member(2), accept));
    while !voted.iter().any(is_vote) {
        assert!(now < until + Duration::from_secs(2), "it votes in the end");
        now += Duration::from_millis(20);
        voted = council.on(now, ConsensusEvent::Tick);
    }
    assert!(
        now >= until,
        "it may act until {until:?}, and voted at {now:?}"
    );
    assert!(council.lease().is_none_or(|until| until <= now));
}

#[test]
fn two_that_grant_each_other_nothing_do_not_ask_each_other_without_an_end() {
    let mut hall = Hall::of(3);
    let view = Arc::clone(hall.view(1));
    let next = View {
        number: view.number.next(),
        ..(*view).clone()
    };
    let after = View {
        number: next.number.next(),
        ..next.clone()
    };
    let ballot = Ballot {
        round: 99,
        by: MemberId(1),
    };
    let (number, next, after) = (next.number, Arc::new(next), Arc::new(after));
    let now = hall.now + Duration::from_secs(1);
    let mut words = Vec::new();
    for id in [2, 3] {
        let council = hall.councils.get_mut(&id).unwrap();
        for word in [
            MembershipMessage::Decided(Arc::clone(&next)),
            MembershipMessage::Accept(number, ballot, Arc::clone(&after)),
        ] {
            // None of the following messages arrive.
            council.on(now, ConsensusEvent::From(member(1), word));
        }
        words.extend(council.on(now, ConsensusEvent::Tick));
    }
    let mut told = 0;
    let mut from = 2;
    words.retain(
        |action| matches!(action, ConsensusAction::SendMessage(to, _) if *to.endpoint == *"3"),
    );
    while !words.is_empty() && told < 100 {
        let to = 5 - from;
        let council = hall.councils.get_mut(&to).unwrap();
        let mut answers = Vec::new();
        for action in words {
            if let ConsensusAction::SendMessage(there, word) = action
                && *there.endpoint == *to.to_string()
            {
                told += 1;
                answers.extend(council.on(now, ConsensusEvent::From(member(from), word)));
            }
        }
        (words, from) = (answers, to);
    }
    assert!((1..100).contains(&told), "{told}");
}

#[test]
fn who_has_left_is_not_let_in_again_by_what_it_said_before() {
    let mut hall = Hall::of(3);
    hall.happens(3, ConsensusEvent::Leave);
    hall.pass(2_000);
    assert!(hall.out.contains(&3));
    hall.councils.remove(&3);
    let join = MembershipMessage::Join(member(3), Some(MemberId(1)));
    hall.happens(1, ConsensusEvent::From(member(3), join));
    hall.pass(2_000);
    assert_eq!(hall.members(1), [1, 2]);
    assert!(hall.may_act(1) && hall.may_act(2));
}

#[test]
fn who_is_heard_and_hears_nobody_is_put_out_also_if_it_is_the_first() {
    for deaf in [1, 3] {
        let mut hall = Hall::of(3);
        hall.cut = (1..=3).map(|from| (from, deaf)).collect();
        hall.pass(8_000);
        let others: Vec<u64> = (1..=3).filter(|id| *id != deaf).collect();
        for id in &others {
            assert_eq!(hall.members(*id), others);
            assert!(hall.may_act(*id));
        }
        assert!(!hall.may_act(deaf));
        assert!(
            hall.view(others[0])
                .records
                .iter()
                .all(|record| record.losses == 0)
        );
        // It learns of its removal once it receives again.
        hall.cut.clear();
        hall.pass(500);
        assert!(hall.out.contains(&deaf));
    }
}

#[test]
fn of_two_that_do_not_hear_each_other_one_is_put_out_and_nothing_is_lost() {
    for cut in [vec![(2, 3), (3, 2)], vec![(2, 3)]] {
        let mut hall = Hall::of(4);
        hall.cut = cut.into_iter().collect();
        hall.pass(10_000);
        assert_eq!(hall.members(1), [1, 2, 4]);
        assert_eq!(hall.view(1), hall.view(2));
        assert!([1, 2, 4].into_iter().all(|id| hall.may_act(id)));
        assert!(hall.view(1).is_settled());
        assert!(hall.view(1).records.iter().all(|record| record.losses == 0));
    }
}

/// Creates members without backups, each of which holds data that no other has.
fn without_backups(count: u64) -> Hall {
    let config = ConsensusConfig::default();
    let mut hall = Hall::of(1);
    hall.councils = BTreeMap::from([(1, Membership::found(member(1), 8, 0, config))]);
    for id in 2..=count {
        let council = Membership::join(member(id), vec!["1".into()], config);
        hall.councils.insert(id, council);
    }
    hall.pass(5_000);
    let records = &hall.view(1).records;
    let keeps = |id: u64| records.iter().any(|record| record.is_kept_by(MemberId(id)));
    let spared: Vec<u64> = (1..=count).filter(|id| !keeps(*id)).collect();
    assert!(spared.is_empty(), "{spared:?} keep nothing");
    hall
}

#[test]
fn two_that_do_not_hear_each_other_both_stay_where_neither_can_be_spared() {
    let mut hall = without_backups(4);
    hall.cut = BTreeSet::from([(2, 3), (3, 2)]);
    hall.pass(10_000);
    assert_eq!(hall.members(1), [1, 2, 3, 4]);
    assert!(hall.view(1).records.iter().all(|record| record.losses == 0));
}

#[test]
fn the_first_puts_nobody_out_whom_it_alone_does_not_hear() {
    // Data held by the second and the third only would be lost; without the first nothing is.
    let mut hall = Hall::of(5);
    hall.cut = [(1, 2), (2, 1), (1, 3), (3, 1)].into_iter().collect();
    hall.pass(10_000);
    assert_eq!(hall.members(4), [2, 3, 4, 5]);
    assert!((2..=5).all(|id| hall.may_act(id) && hall.view(id) == hall.view(4)));
    assert!(hall.view(4).is_settled());
    assert!(hall.view(4).records.iter().all(|record| record.losses == 0));
}

#[test]
fn the_first_and_another_both_stay_where_neither_can_be_spared() {
    let mut hall = without_backups(4);
    hall.cut = BTreeSet::from([(1, 2), (2, 1)]);
    hall.pass(10_000);
    for id in 1..=4 {
        assert_eq!(hall.members(id), [1, 2, 3, 4]);
        assert!(hall.may_act(id));
    }
    assert!(hall.view(1).records.iter().all(|record| record.losses == 0));
    // A member that is silent for all others is removed.
    hall.councils.remove(&2);
    hall.pass(5_000);
    assert_eq!(hall.members(1), [1, 3, 4]);
}

#[test]
fn who_leaves_stays_until_it_is_known_where_it_alone_knows_of_that() {
    let mut hall = Hall::of(2);
    hall.misses = Some((2, 1));
    hall.happens(1, ConsensusEvent::Leave);
    hall.pass(5_000);
    assert!(hall.out.contains(&1) && hall.parted.is_empty());
    assert_eq!(hall.members(2), [1, 2]);
    hall.misses = None;
    hall.pass(500);
    assert_eq!(hall.members(2), [2]);
    assert!(hall.parted.contains(&1) && hall.may_act(2));
}
