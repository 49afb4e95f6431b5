//! Messages in any order: replicas converge, and acknowledged writes are present.

use proptest::prelude::*;

use super::*;

/// An event during a resync.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    PutAll(Vec<(u8, u8)>),
    Remove(u8),
    Clear,
    Deliver(u8),
    Lose(u8),
    Double(u8),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..20_u8, any::<u8>()).prop_map(|(key, length)| Step::Put(key, length)),
        3 => prop::collection::vec((0..20_u8, any::<u8>()), 1..30).prop_map(Step::PutAll),
        4 => (0..20_u8).prop_map(Step::Remove),
        1 => Just(Step::Clear),
        12 => any::<u8>().prop_map(Step::Deliver),
        2 => any::<u8>().prop_map(Step::Lose),
        2 => any::<u8>().prop_map(Step::Double),
        4 => Just(Step::Tick),
    ]
}

proptest! {
    #[test]
    fn a_copy_that_is_filled_beside_writes_ends_equal_whatever_happens_to_words(
        before in prop::collection::vec((0..20_u8, any::<u8>()), 0..40),
        steps in prop::collection::vec(step(), 0..200),
        batch in 20_usize..400,
        log in 200_usize..4_000,
    ) {
        let config = ReplicaConfig { batch_bytes: batch, log_bytes: log, window: 3, resend: Duration::from_millis(50), ..ReplicaConfig::default() };
        let mut bench = Bench::new(2, config, u64::MAX);
        bench.install(&record(1, 1, &[holder(1, 1)], &[]));
        let mut model = BTreeMap::new();
        for (key, length) in before {
            let text = "x".repeat(usize::from(length));
            bench.put(1, &key.to_string(), &text);
            model.insert(key.to_string(), text);
        }
        bench.install(&record(2, 1, &[holder(1, 1)], &[holder(2, 2)]));
        for step in steps {
            let count = bench.under_way.len();
            let at = |at: u8| usize::from(at).checked_rem(count);
            match step {
                Step::Put(key, length) => {
                    let text = "y".repeat(usize::from(length));
                    bench.put(1, &key.to_string(), &text);
                    model.insert(key.to_string(), text);
                }
                Step::PutAll(entries) => {
                    let entries: Vec<_> = entries
                        .into_iter()
                        .map(|(key, length)| (key.to_string(), "z".repeat(usize::from(length))))
                        .collect();
                    bench.put_all(1, entries.iter().map(|(key, text)| (&key[..], &text[..])));
                    model.extend(entries);
                }
                Step::Remove(key) => {
                    bench.ask(1, Operation::Remove { map: MAP, key: key.to_string().into() });
                    model.remove(&key.to_string());
                }
                Step::Clear => {
                    bench.ask(1, Operation::Clear(MAP));
                    model.clear();
                }
                Step::Deliver(number) => if let Some(at) = at(number) {
                    bench.deliver(at);
                },
                Step::Lose(number) => if let Some(at) = at(number) {
                    bench.under_way.swap_remove(at);
                },
                Step::Double(number) => if let Some(at) = at(number) {
                    let word = bench.under_way[at].clone();
                    bench.under_way.push(word);
                },
                Step::Tick => {
                    bench.now += Duration::from_millis(30);
                    for id in [1, 2] {
                        bench.tick(id);
                        bench.with(id, |copy, out| {
                            if copy.wants_entries() {
                                copy.pull(out);
                            }
                        });
                    }
                }
            }
        }
        for _ in 0..40 {
            bench.calm();
        }
        prop_assert_eq!(bench.copies[&1].claims(0).len(), 1, "it is whole");
        let (first, second) = (bench.copies[&1].content(), bench.copies[&2].content());
        prop_assert_eq!(&first, &second);
        let content: BTreeMap<_, _> = first.iter().map(|parcel| (parcel.key.to_vec(), parcel.value.to_vec())).collect();
        let model: BTreeMap<_, _> = model.into_iter().map(|(key, text)| (key.into_bytes(), text.into_bytes())).collect();
        prop_assert_eq!(content, model);
        let refused = bench.answers.values().filter(|outcome| !matches!(outcome, Outcome::Answered(_))).count();
        prop_assert_eq!(refused, 0);
    }
}
