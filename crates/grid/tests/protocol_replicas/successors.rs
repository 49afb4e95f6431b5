//! Changes when primaries follow each other quickly.

use super::*;

/// Three replicas with two acknowledged writes, of which only the first primary knows that they are
/// settled. It hands over to the second, whose messages reach the third but not the first.
fn handed_over() -> Bench {
    let one_at_a_time = ReplicaConfig {
        batch_bytes: 1,
        ..ReplicaConfig::default()
    };
    let mut bench = Bench::new(3, one_at_a_time, u64::MAX);
    let all = [holder(1, 1), holder(2, 1), holder(3, 1)];
    bench.install(&record(1, 1, &all, &[]));
    bench.calm();
    let puts = [
        bench.put(1, "first", "value"),
        bench.put(1, "second", "value"),
    ];
    while let Some(at) = bench.under_way.iter().position(|(_, to, _)| *to != 1) {
        bench.deliver(at);
    }
    while bench.under_way.iter().any(|(_, to, _)| *to == 1) {
        bench.deliver(0);
    }
    assert!(puts.iter().all(|put| bench.is_answered(*put)));
    bench.under_way.clear();
    bench.install(&record(2, 2, &[all[1], all[0], all[2]], &[]));
    let is_second = |(from, to, word): &(u64, u64, ReplicaMessage)| {
        let is_second = matches!(word.body, ReplicaBody::Append { before: 1, .. });
        (*from, *to) == (2, 3) && is_second
    };
    bench.under_way.retain(is_second);
    bench.deliver(0);
    bench.under_way.clear();
    bench.copies.remove(&2);
    bench
}

#[test]
fn the_first_primary_goes_on_where_it_was_if_its_successor_dies_at_once() {
    let mut bench = handed_over();
    bench.install(&record(3, 3, &[holder(1, 1), holder(3, 1)], &[]));
    bench.calm();
    let put = bench.put(1, "third", "value");
    bench.calm();
    assert_eq!(bench.answers.get(&put), Some(&done()));
    assert_eq!(bench.copies[&1].content(), bench.copies[&3].content());
}

#[test]
fn what_was_acknowledged_outlives_both_the_primary_and_its_successor() {
    let mut bench = handed_over();
    bench.copies.remove(&1);
    bench.install(&record(3, 3, &[holder(3, 1)], &[]));
    bench.calm();
    assert_eq!(bench.get(3, "first"), value("value"));
    assert_eq!(bench.get(3, "second"), value("value"));
}

#[test]
fn what_one_primary_sent_gives_way_to_what_a_later_one_has() {
    let mut bench = Bench::new(4, ReplicaConfig::default(), u64::MAX);
    let all = [holder(1, 1), holder(3, 1), holder(2, 1), holder(4, 1)];
    bench.install(&record(1, 1, &all, &[]));
    bench.calm();
    // Each primary reaches one other replica, and dies.
    for (primary, reached) in [(1, 2), (3, 4)] {
        bench.put(primary, &format!("of {primary}"), "value");
        bench
            .under_way
            .retain(|(from, to, _)| (*from, *to) == (primary, reached));
        while !bench.under_way.is_empty() {
            bench.deliver(0);
            bench.under_way.retain(|(_, to, _)| *to == reached);
        }
        bench.copies.remove(&primary);
        let rest = if primary == 1 {
            &all[1..]
        } else {
            &[all[3], all[2]][..]
        };
        bench.install(&record(primary + 1, primary + 1, rest, &[]));
    }
    bench.calm();
    let none = Outcome::Answered(Answer::Value(None));
    assert_eq!(bench.get(4, "of 1"), none);
    assert_eq!(bench.get(4, "of 3"), value("value"));
    assert_eq!(bench.copies[&2].content(), bench.copies[&4].content());
}
