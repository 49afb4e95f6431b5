//! Changes beyond the memory limit are refused as a whole.

use super::*;

#[test]
fn guests_and_others_take_no_room_of_each_other() {
    let mut bench = Bench::new(1, ReplicaConfig::default(), 1_000);
    bench.install(&record(1, 1, &[holder(1, 1)], &[]));
    let (own, guests) = (MapId::named("a"), MapId::of_guest("a"));
    assert!(guests.is_of_guest() && !own.is_of_guest());
    let put = |map, key: &'static str| Operation::Put {
        map,
        key: key.into(),
        value: "x".repeat(600).into(),
        expires: None,
        when: When::Always,
    };
    for (map, key, has_room) in [
        (guests, "first", true),
        (guests, "second", false),
        (own, "first", true),
        (own, "second", false),
    ] {
        let asked = bench.ask(1, put(map, key));
        let is_full = matches!(
            bench.answers[&asked],
            Outcome::Refused(Refusal::Full { limit: 1_000, .. })
        );
        assert_eq!(is_full, !has_room, "{map:?} {key}");
    }
    let measured = bench.ask(1, Operation::Measure(guests));
    let Outcome::Answered(Answer::Count(bytes)) = bench.answers[&measured] else {
        panic!("{:?}", bench.answers[&measured]);
    };
    assert!((600..1_000).contains(&bytes), "{bytes}");
    // Removal frees memory.
    bench.ask(1, Operation::Clear(guests));
    let again = bench.ask(1, put(guests, "second"));
    assert_eq!(bench.answers[&again], done());
}

#[test]
fn several_are_put_at_once_or_none_of_them_if_they_have_no_room_together() {
    let mut bench = Bench::new(1, ReplicaConfig::default(), 1_000);
    bench.install(&record(1, 1, &[holder(1, 1)], &[]));
    let (long, short) = ("x".repeat(300), "y".repeat(10));
    let all = bench.put_all(
        1,
        [("first", &long[..]), ("second", &long), ("third", &long)],
    );
    assert!(matches!(
        bench.answers[&all],
        Outcome::Refused(Refusal::Full { limit: 1_000, .. })
    ));
    assert!(bench.copies[&1].content().is_empty());
    let two = bench.put_all(
        1,
        [("first", &short[..]), ("second", &long), ("first", &long)],
    );
    assert_eq!(bench.answers[&two], done());
    assert_eq!(bench.get(1, "first"), value(&long), "the last one counts");
    // Existing entries need no more memory, and a key that occurs twice counts once.
    let same = bench.put_all(1, [("first", &long[..]), ("second", &long)]);
    assert_eq!(bench.answers[&same], done());
    let again = [("first", &long[..]); 9];
    let same = bench.put_all(1, again);
    assert_eq!(bench.answers[&same], done());
    let longer = "z".repeat(900);
    let hidden = bench.put_all(1, [("first", ""), ("first", ""), ("first", &longer)]);
    assert!(matches!(
        bench.answers[&hidden],
        Outcome::Refused(Refusal::Full { limit: 1_000, .. })
    ));
    let removed = bench.ask(
        1,
        Operation::Remove {
            map: MAP,
            key: "first".into(),
        },
    );
    assert_eq!(bench.answers[&removed], value(&long));
}
