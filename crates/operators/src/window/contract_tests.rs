//! Windows, groups and rolling aggregates under the schedules of the test kit.

use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{Aggregate, co_aggregate, collect_list, count, max};
use ardea_core::Timestamp;
use ardea_testkit::{Expected, ProcessorTest, TestInput};

use super::*;
use crate::{EarlyFiring, FoldOne, FoldTwo, GroupCombineP, GroupP, KeyedFold, Partial, RollingP};

type Counted = WindowResult<String, u64>;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn by_word<A>(aggregate: A) -> Arc<impl KeyedFold<Key = String, Out = A::Out, Acc = A::Acc>>
where
    A: Aggregate<String>,
{
    Arc::new(FoldOne::new(|word: &String| word.clone(), aggregate))
}

/// Words with their times. The word `late` is late for windows of up to four seconds.
fn words() -> TestInput<String> {
    let record = |word: &str, secs| (word.to_string(), at(secs));
    TestInput::new()
        .records([record("to", 1), record("be", 2), record("to", 3)])
        .watermark(at(3))
        .records([record("or", 4), record("not", 3), record("to", 7)])
        .watermark(at(6))
        .records([record("late", 1), record("be", 9)])
}

fn result<V>(start: i64, end: i64, key: &str, value: V) -> WindowResult<String, V> {
    let (start, end, key) = (at(start), at(end), key.to_string());
    WindowResult {
        start,
        end,
        key,
        value,
        firing: Firing::OnTime,
    }
}

#[test]
fn sliding_windows_keep_the_contract_with_and_without_deducting() {
    let spec = WindowSpec::sliding(Duration::from_secs(4), Duration::from_secs(2)).unwrap();
    let counts: Vec<(i64, &str, u64)> = vec![
        (-2, "to", 1),
        (0, "to", 2),
        (0, "be", 1),
        (0, "not", 1),
        (2, "be", 1),
        (2, "to", 1),
        (2, "or", 1),
        (2, "not", 1),
        (4, "or", 1),
        (4, "to", 1),
        (6, "to", 1),
        (6, "be", 1),
        (8, "be", 1),
    ];
    let lengths = counts.clone();
    let counts = counts
        .into_iter()
        .map(|(start, key, n)| result(start, start + 4, key, n));
    ProcessorTest::new(move || SlidingWindowP::new(spec, by_word(count())))
        .input::<String>(words())
        .output::<Counted>(Expected::unordered(counts))
        .output::<String>(["late".to_string()])
        .expect_late(1)
        .run();
    let longest = lengths.into_iter();
    let longest = longest.map(|(start, key, _)| result(start, start + 4, key, Some(key.len())));
    ProcessorTest::new(move || SlidingWindowP::new(spec, by_word(max(|word: &String| word.len()))))
        .input::<String>(words())
        .output::<WindowResult<String, Option<usize>>>(Expected::unordered(longest))
        .output::<String>(["late".to_string()])
        .expect_late(1)
        .run();
}

#[test]
fn windows_with_early_results_corrections_and_two_inputs_keep_the_contract() {
    let spec = WindowSpec::sliding(Duration::from_secs(4), Duration::from_secs(2)).unwrap();
    let spec = spec.allowed_lateness(Duration::from_secs(10));
    let word = |word: &String| word.clone();
    let early = EarlyFiring::each_records(2).unwrap();
    let fold = Arc::new(FoldOne::new(word, count()).early(early));
    ProcessorTest::new(move || SlidingWindowP::new(spec, Arc::clone(&fold)))
        .input::<String>(words())
        .output::<Counted>(Expected::anything())
        .expect_late(0)
        .run();
    let fold = Arc::new(FoldTwo::new(word, word, co_aggregate(count(), count())));
    ProcessorTest::new(move || SlidingWindowP::new(spec, Arc::clone(&fold)))
        .input::<String>(words())
        .input::<String>(words())
        .output::<WindowResult<String, (u64, u64)>>(Expected::anything())
        .expect_late(0)
        .run();
}

#[test]
fn a_first_stage_keeps_the_contract() {
    let spec = WindowSpec::tumbling(Duration::from_secs(4)).unwrap();
    let partials = [
        ("to", 2),
        ("be", 1),
        ("not", 1),
        ("or", 1),
        ("to", 1),
        ("be", 1),
    ];
    let partials = partials.map(|(key, acc)| Partial {
        key: key.to_string(),
        acc,
    });
    ProcessorTest::new(move || SliceCombineP::new(spec, by_word(count())))
        .input::<String>(words())
        .output::<Partial<String, u64>>(Expected::unordered(partials))
        .output::<String>(["late".to_string()])
        .expect_late(1)
        .run();
}

#[test]
fn sessions_keep_the_contract() {
    let spec = SessionSpec::gap(Duration::from_secs(3)).unwrap();
    let all = Arc::new(FoldOne::new(|_: &String| (), collect_list()));
    let sessions = [
        (1, 7, vec!["to", "be", "to", "or", "not", "late"]),
        (7, 12, vec!["to", "be"]),
    ];
    ProcessorTest::new(move || SessionWindowP::new(spec, Arc::clone(&all)))
        .input::<String>(words())
        .output(Expected::<WindowResult<(), Vec<String>>>::check(
            move |results| {
                let results = results.iter().map(|(result, _)| result);
                let seen: Vec<_> = results.map(|r| (r.start, r.end, r.value.clone())).collect();
                let expected = sessions.iter().map(|(start, end, words)| {
                    let words: Vec<_> = words.iter().map(|word| word.to_string()).collect();
                    (at(*start), at(*end), words)
                });
                if seen.iter().cloned().eq(expected) {
                    Ok(())
                } else {
                    Err(format!("{seen:?}"))
                }
            },
        ))
        .run();
}

#[test]
fn groups_and_rolling_aggregates_keep_the_contract() {
    let counts = [("to", 3u64), ("be", 2), ("or", 1), ("not", 1), ("late", 1)];
    let counts = counts.map(|(word, n)| (word.to_string(), n));
    let partials = counts.clone().map(|(key, acc)| Partial { key, acc });
    ProcessorTest::new(|| GroupP::new(by_word(count())))
        .input::<String>(words())
        .output::<(String, u64)>(counts)
        .expect_watermarks([])
        .run();
    ProcessorTest::new(|| GroupCombineP::new(by_word(count())))
        .input::<String>(words())
        .output::<Partial<String, u64>>(partials)
        .expect_watermarks([])
        .run();
    let running = [1u64, 1, 2, 1, 1, 3, 1, 2];
    let words_in_order = ["to", "be", "to", "or", "not", "to", "late", "be"];
    let running = words_in_order
        .into_iter()
        .zip(running)
        .map(|(word, n)| (word.to_string(), n));
    let running: Vec<_> = running.collect();
    ProcessorTest::new(|| RollingP::new(by_word(count())).ttl(Duration::from_secs(60)))
        .input::<String>(words())
        .output::<(String, u64)>(running)
        .run();
}
