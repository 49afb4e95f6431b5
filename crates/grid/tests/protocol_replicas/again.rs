//! Resends, and idle primaries.

use super::*;

#[test]
fn what_is_missing_is_sent_again_once_however_much_came_behind_it() {
    let mut bench = pair();
    let puts: Vec<u64> = (0..10)
        .map(|key| bench.put(1, &key.to_string(), "value"))
        .collect();
    bench.under_way.remove(0);
    // The others arrive, and the backup reports a gap each time.
    for _ in 0..9 {
        bench.deliver(0);
    }
    assert_eq!(bench.under_way.len(), 9);
    for _ in 0..9 {
        bench.deliver(0);
    }
    assert_eq!(bench.under_way.len(), 1);
    // The resend is lost, too: it is repeated in time, though writes continue.
    bench.under_way.clear();
    for _ in 0..20 {
        bench.now += Duration::from_millis(100);
        bench.put(1, "busy", "value");
        bench.tick(1);
        while !bench.under_way.is_empty() {
            bench.deliver(0);
        }
    }
    assert!(puts.iter().all(|put| bench.answers[put] == done()));
}

#[test]
fn a_primary_rests_when_all_know_that_all_have_everything() {
    let mut bench = pair();
    let rests = |bench: &Bench| bench.copies[&1].rests();
    assert!(rests(&bench));
    bench.put(1, "key", "value");
    assert!(!rests(&bench), "the backup may not have it");
    bench.deliver(0);
    bench.deliver(0);
    assert!(!rests(&bench), "the backup does not know that all have it");
    bench.calm();
    assert!(rests(&bench));
    bench.tick(1);
    assert_eq!(bench.under_way.len(), 0);
    let put = Operation::Put {
        map: MAP,
        key: "key".into(),
        value: "value".into(),
        expires: Some(i64::MAX - 1),
        when: When::Always,
    };
    bench.ask(1, put);
    bench.calm();
    assert!(!rests(&bench), "something expires");
}

#[test]
fn what_is_sent_behind_a_rest_is_not_late_at_once() {
    let mut bench = pair();
    bench.now += Duration::from_secs(60);
    bench.tick(1);
    bench.put(1, "key", "value");
    let sent = bench.under_way.len();
    bench.now += Duration::from_millis(1);
    bench.tick(1);
    assert_eq!(bench.under_way.len(), sent);
}

#[test]
fn who_says_late_that_something_is_missing_which_has_come_is_not_heeded() {
    let mut bench = pair();
    bench.put(1, "first", "value");
    bench.put(1, "second", "value");
    // The second message overtakes the first, and the backup's report of it is duplicated.
    bench.deliver(1);
    let late = bench.under_way[1].clone();
    bench.calm();
    bench.under_way.push(late);
    bench.deliver(0);
    assert!(bench.copies[&1].rests());
    bench.now += Duration::from_secs(60);
    bench.put(1, "third", "value");
    let sent = bench.under_way.len();
    bench.now += Duration::from_millis(1);
    bench.tick(1);
    assert_eq!(bench.under_way.len(), sent);
}

#[test]
fn what_nobody_answers_is_sent_again_ever_more_seldom() {
    let mut bench = pair();
    let put = bench.put(1, "key", "value");
    for _ in 0..200 {
        bench.now += Duration::from_millis(50);
        bench.tick(1);
    }
    let changes = bench.under_way.iter().map(|(_, _, word)| match &word.body {
        ReplicaBody::Append { changes, .. } => changes.len(),
        _ => 0,
    });
    let sent: usize = changes.sum();
    assert!((5..15).contains(&sent), "{sent}");
    bench.under_way.truncate(1);
    bench.calm();
    assert!(bench.is_answered(put));
}
