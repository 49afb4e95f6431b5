//! Tests of the candidates for a lease with a simulated metadata store.

use super::*;

/// A metadata store that replies immediately.
#[derive(Default)]
struct MockMetastore(Option<(LeaseRecord, StoreVersion)>, u64);

impl MockMetastore {
    fn answer(&mut self, request: StoreRequest<LeaseRecord>) -> StoreReply<LeaseRecord> {
        let there = self.0.as_ref().map(|(_, version)| *version);
        match request {
            StoreRequest::Read => StoreReply::Found(self.0.clone()),
            StoreRequest::Write { value, expected } if expected == there => {
                self.1 += 1;
                self.0 = Some((value, StoreVersion(self.1)));
                StoreReply::Written(StoreVersion(self.1))
            }
            _ => StoreReply::Conflict,
        }
    }

    /// Runs a candidate until it sends no more requests; returns its gains and losses of
    /// leadership.
    fn run(&mut self, lease: &mut Lease, now: Duration, event: LeaseEvent) -> Vec<LeaseAction> {
        let mut told = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in lease.on(now, event) {
                match action {
                    LeaseAction::Store(id, request) => {
                        events.push(LeaseEvent::Reply(id, self.answer(request)));
                    }
                    other => told.push(other),
                }
            }
        }
        told
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn candidates() -> (Lease, Lease) {
    let candidate = |name| Lease::new(name, name, LeaseConfig::default());
    (candidate("a"), candidate("b"))
}

#[test]
fn the_first_to_claim_holds_and_renews_and_the_other_waits() {
    let (mut a, mut b) = candidates();
    let mut shelf = MockMetastore::default();
    let gained = shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(1))]);
    for second in 0..20 {
        assert!(
            shelf
                .run(&mut a, seconds(second), LeaseEvent::Tick)
                .is_empty()
        );
        assert!(
            shelf
                .run(&mut b, seconds(second), LeaseEvent::Tick)
                .is_empty()
        );
        assert_eq!(a.mastership(seconds(second)), Some(MasterEpoch(1)));
    }
}

#[test]
fn a_standby_takes_over_a_term_after_the_last_renewal_and_not_before_the_holder_has_aborted() {
    let (mut a, mut b) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    let mut taken_over = None;
    for tick in 0..100 {
        let now = Duration::from_millis(100 * tick);
        if !shelf.run(&mut b, now, LeaseEvent::Tick).is_empty() {
            taken_over.get_or_insert(now);
            assert_eq!(a.mastership(now), None);
        }
    }
    let taken_over = taken_over.unwrap();
    assert!(
        (seconds(4)..=seconds(6)).contains(&taken_over),
        "{taken_over:?}"
    );
    assert_eq!(b.mastership(taken_over), Some(MasterEpoch(2)));
    let lost = a.on(taken_over, LeaseEvent::Tick);
    assert_eq!(lost[0], LeaseAction::Lost(MasterEpoch(1)));
}

#[test]
fn a_holder_that_observes_a_later_epoch_claims_one_after_it() {
    let (mut a, _) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    // The observation of an earlier epoch does not end the leadership.
    let earlier = LeaseEvent::Outpaced(MasterEpoch(0));
    assert!(shelf.run(&mut a, seconds(0), earlier).is_empty());
    let told = shelf.run(&mut a, seconds(1), LeaseEvent::Outpaced(MasterEpoch(7)));
    let [lost, gained] = [1, 8].map(MasterEpoch);
    assert_eq!(told, [LeaseAction::Lost(lost), LeaseAction::Gained(gained)]);
}

/// Checks that a candidate loses the leadership `epoch` and sends one request, and returns this
/// request.
fn loses_and_asks(actions: &[LeaseAction], epoch: u64) -> (RequestId, StoreRequest<LeaseRecord>) {
    let [LeaseAction::Lost(lost), LeaseAction::Store(id, request)] = actions else {
        panic!("{actions:?}");
    };
    assert_eq!(*lost, MasterEpoch(epoch));
    (*id, request.clone())
}

#[test]
fn who_hears_of_a_later_mastership_looks_for_it_and_waits_if_somebody_has_it() {
    let (mut a, b) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    shelf.0 = Some((b.record(MasterEpoch(9)), StoreVersion(7)));
    let outpaced = LeaseEvent::Outpaced(MasterEpoch(9));
    assert_eq!(a.mastership(seconds(1)), Some(MasterEpoch(1)));
    let (id, request) = loses_and_asks(&a.on(seconds(1), outpaced), 1);
    assert_eq!(request, StoreRequest::Read);
    let found = LeaseEvent::Reply(id, shelf.answer(request));
    assert_eq!(shelf.run(&mut a, seconds(1), found), []);
    for second in 1..5 {
        assert_eq!(shelf.run(&mut a, seconds(second), LeaseEvent::Tick), []);
    }
}

#[test]
fn a_renewal_that_is_under_way_when_a_later_mastership_is_heard_of_renews_nothing() {
    let (mut a, _) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    let renewal = a.on(seconds(1), LeaseEvent::Tick).remove(0);
    let LeaseAction::Store(renews, request) = renewal else {
        panic!("{renewal:?}");
    };
    let written = shelf.answer(request);
    let outpaced = LeaseEvent::Outpaced(MasterEpoch(7));
    let (id, request) = loses_and_asks(&a.on(seconds(1), outpaced), 1);
    assert_eq!(request, StoreRequest::Read);
    assert_eq!(
        a.on(seconds(1), LeaseEvent::Reply(renews, written)),
        [],
        "nobody waits for that"
    );
    assert_eq!(a.mastership(seconds(1)), None);
    let found = LeaseEvent::Reply(id, shelf.answer(request));
    let told = shelf.run(&mut a, seconds(1), found);
    assert_eq!(told, [LeaseAction::Gained(MasterEpoch(8))]);
}

#[test]
fn who_has_seen_a_lease_that_is_removed_waits_for_a_term_and_claims_with_a_later_number() {
    let (mut a, mut b) = candidates();
    let mut shelf = MockMetastore(Some((a.record(MasterEpoch(4)), StoreVersion(1))), 1);
    let gained = shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(5))]);
    shelf.run(&mut b, seconds(0), LeaseEvent::Tick);
    shelf.0 = None;
    let mut taken_over = None;
    for tick in 10..100 {
        let now = Duration::from_millis(100 * tick);
        for told in shelf.run(&mut b, now, LeaseEvent::Tick) {
            assert_eq!(told, LeaseAction::Gained(MasterEpoch(6)));
            assert_eq!(a.mastership(now), None, "at {now:?}");
            taken_over.get_or_insert(now);
        }
    }
    assert_eq!(taken_over, Some(seconds(5)));
}

#[test]
fn who_holds_a_lease_that_is_removed_claims_another_at_once() {
    let (mut a, mut b) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    shelf.run(&mut b, seconds(0), LeaseEvent::Tick);
    shelf.0 = None;
    assert_eq!(shelf.run(&mut b, seconds(1), LeaseEvent::Tick), []);
    let told = shelf.run(&mut a, seconds(1), LeaseEvent::Tick);
    let [lost, gained] = [1, 2].map(MasterEpoch);
    assert_eq!(told, [LeaseAction::Lost(lost), LeaseAction::Gained(gained)]);
    assert_eq!(shelf.run(&mut b, seconds(2), LeaseEvent::Tick), []);
}

#[test]
fn who_resigns_is_followed_at_once() {
    let (mut a, mut b) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    let lost = shelf.run(&mut a, seconds(1), LeaseEvent::Resign);
    assert_eq!(lost, [LeaseAction::Lost(MasterEpoch(1))]);
    let gained = shelf.run(&mut b, seconds(1), LeaseEvent::Tick);
    assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(2))]);
}

#[test]
fn a_claim_whose_answer_is_lost_is_made_again_with_a_higher_number() {
    let (mut a, _) = candidates();
    let mut shelf = MockMetastore::default();
    let read = a.on(seconds(0), LeaseEvent::Tick).remove(0);
    let LeaseAction::Store(id, request) = read else {
        panic!("{read:?}");
    };
    let claim = a
        .on(seconds(0), LeaseEvent::Reply(id, shelf.answer(request)))
        .remove(0);
    let LeaseAction::Store(lost_id, request) = claim else {
        panic!("{claim:?}");
    };
    let lost_answer = shelf.answer(request);
    let gained = shelf.run(&mut a, seconds(2), LeaseEvent::Tick);
    assert_eq!(gained, [LeaseAction::Gained(MasterEpoch(2))]);
    assert!(
        a.on(seconds(2), LeaseEvent::Reply(lost_id, lost_answer))
            .is_empty()
    );
}

#[test]
fn a_holder_whose_store_answers_slowly_stays_the_holder() {
    let (mut a, _) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    // Each reply takes a second and a half, while the store executes requests immediately.
    let mut coming = Vec::new();
    for tick in 0..600 {
        let now = Duration::from_millis(100 * tick);
        let ready = coming.partition_point(|(at, ..): &(Duration, _, _)| *at <= now);
        let mut events = vec![LeaseEvent::Tick];
        let ready = coming.drain(..ready);
        events.extend(ready.map(|(_, id, reply)| LeaseEvent::Reply(id, reply)));
        for action in events.into_iter().flat_map(|event| a.on(now, event)) {
            let LeaseAction::Store(id, request) = action else {
                panic!("at {now:?}: {action:?}");
            };
            let at = now + Duration::from_millis(1500);
            coming.push((at, id, shelf.answer(request)));
        }
        assert_eq!(a.mastership(now), Some(MasterEpoch(1)));
    }
}

#[test]
fn a_renewal_that_comes_back_after_the_term_does_not_revive_the_mastership() {
    let (mut a, _) = candidates();
    let mut shelf = MockMetastore::default();
    shelf.run(&mut a, seconds(0), LeaseEvent::Tick);
    let config = LeaseConfig {
        request_timeout: seconds(60),
        ..LeaseConfig::default()
    };
    a.config = config;
    let renewal = a.on(seconds(1), LeaseEvent::Tick).remove(0);
    let LeaseAction::Store(id, request) = renewal else {
        panic!("{renewal:?}");
    };
    let answer = shelf.answer(request);
    assert_eq!(
        a.on(seconds(5), LeaseEvent::Tick),
        [LeaseAction::Lost(MasterEpoch(1))]
    );
    let next = shelf.run(&mut a, seconds(6), LeaseEvent::Reply(id, answer));
    assert_eq!(next, [LeaseAction::Gained(MasterEpoch(2))]);
}
