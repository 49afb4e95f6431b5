//! Tests of session windows against a plain computation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{collect_list, sum};
use ardea_core::Timestamp;
use proptest::prelude::*;

use crate::FoldOne;
use crate::window::test_driver::{Step, drive, late, untimed};
use crate::window::*;

const GAP: i64 = 10;

type Session = WindowResult<u64, i128>;

fn spec(lateness: i64) -> SessionSpec {
    let gap = SessionSpec::gap(Duration::from_micros(GAP as u64)).unwrap();
    gap.allowed_lateness(Duration::from_micros(lateness as u64))
}

fn sessions(lateness: i64) -> SessionWindowP<impl crate::KeyedFold<Key = u64, Out = i128>> {
    let fold = FoldOne::new(|value: &u64| value % 3, sum(|value: &u64| *value));
    SessionWindowP::new(spec(lateness), Arc::new(fold))
}

/// Computes the results and late records of a script with one list of sessions that is searched
/// each time.
fn plain(steps: &[Result<Vec<(u64, i64)>, i64>], lateness: i64) -> (Vec<Session>, Vec<(u64, i64)>) {
    struct Plain {
        key: u64,
        first: i64,
        last: i64,
        sum: i128,
        shown: bool,
        changed: bool,
    }
    let (mut kept, mut now): (Vec<Plain>, i128) = (Vec::new(), i128::MIN);
    // Per key that has not been removed.
    let mut final_until = [None; 3];
    let (mut results, mut late) = (Vec::new(), Vec::new());
    for step in steps.iter().chain(&[Err(i64::MAX)]) {
        match step {
            Ok(rows) => {
                for (value, time) in rows {
                    let key = value % 3;
                    if final_until[key as usize].is_some_and(|until| *time < until) {
                        late.push((*value, *time));
                        continue;
                    }
                    let reached = kept.extract_if(.., |s| {
                        s.key == key && s.first < time + GAP && *time < s.last + GAP
                    });
                    let reached: Vec<_> = reached.collect();
                    if reached.is_empty() && i128::from(time + GAP + lateness) <= now {
                        late.push((*value, *time));
                        continue;
                    }
                    let begins = i64::try_from(now).map_or(i64::MIN, |now| now - GAP - lateness);
                    final_until[key as usize].get_or_insert(begins);
                    kept.push(Plain {
                        key,
                        first: reached
                            .iter()
                            .map(|s| s.first)
                            .min()
                            .unwrap_or(*time)
                            .min(*time),
                        last: reached
                            .iter()
                            .map(|s| s.last)
                            .max()
                            .unwrap_or(*time)
                            .max(*time),
                        sum: reached.iter().map(|s| s.sum).sum::<i128>() + i128::from(*value),
                        shown: reached.iter().any(|s| s.shown),
                        changed: true,
                    });
                }
            }
            Err(watermark) => {
                let before = now;
                now = now.max(i128::from(*watermark));
                kept.sort_by_key(|s| (s.last, s.key));
                for s in &mut kept {
                    let end = s.last + GAP;
                    if s.changed && i128::from(end) <= now {
                        let is_update = s.shown || i128::from(end) <= before;
                        (s.changed, s.shown) = (false, true);
                        results.push(WindowResult {
                            start: Timestamp::from_micros(s.first),
                            end: Timestamp::from_micros(end),
                            key: s.key,
                            value: s.sum,
                            firing: if is_update {
                                Firing::Update
                            } else {
                                Firing::OnTime
                            },
                        });
                    }
                }
                kept.retain(|s| {
                    let is_final = i128::from(s.last + GAP + lateness) <= now;
                    if is_final {
                        let until = &mut final_until[s.key as usize];
                        *until = (*until).max(Some(s.last.saturating_add(GAP)));
                    }
                    !is_final
                });
                for (key, until) in final_until.iter_mut().enumerate() {
                    let is_over =
                        |until: i64| i128::from(until) + i128::from(GAP + lateness) <= now;
                    if until.is_some_and(is_over) && kept.iter().all(|s| s.key != key as u64) {
                        *until = None;
                    }
                }
            }
        }
    }
    (results, late)
}

/// The input of a window: records with their times, or a watermark.
type Script = Vec<Result<Vec<(u64, i64)>, i64>>;

/// Records around the watermark, which advances by up to 30 at a time.
fn scripts() -> impl Strategy<Value = Script> {
    let steps = prop::collection::vec(
        prop_oneof![
            3 => prop::collection::vec((0u64..9, -40i64..30), 1..8).prop_map(Ok),
            2 => (0i64..30).prop_map(Err),
        ],
        0..25,
    );
    steps.prop_map(|steps| {
        let mut now = -50;
        let step = |step| match step {
            Ok(rows) => {
                let rows = Vec::<(u64, i64)>::into_iter(rows);
                Ok(rows.map(|(value, time)| (value, now + time)).collect())
            }
            Err(ahead) => {
                now += ahead;
                Err(now)
            }
        };
        steps.into_iter().map(step).collect()
    })
}

/// Returns the steps of a script, with records in chunks of this size, up to the end of time.
fn steps_of(script: &Script, chunk: usize) -> Vec<Step> {
    let steps = script.iter().flat_map(|step| match step {
        Ok(rows) => rows.chunks(chunk).map(Step::rows).collect(),
        Err(watermark) => vec![Step::Watermark(*watermark)],
    });
    steps.chain([Step::End]).collect()
}

/// Returns the sessions of all `records` as a batch job computes them: end and sum by key and
/// start.
fn batch(mut records: Vec<(u64, i64)>) -> BTreeMap<(u64, i64), (i64, i128)> {
    records.sort_by_key(|(value, time)| (value % 3, *time));
    let mut sessions: Vec<(u64, i64, i64, i128)> = Vec::new();
    for (value, time) in records {
        let key = value % 3;
        match sessions.last_mut() {
            Some((same, _, end, sum)) if *same == key && time < *end => {
                (*end, *sum) = (time + GAP, *sum + i128::from(value));
            }
            _ => sessions.push((key, time, time + GAP, value.into())),
        }
    }
    let rows = sessions.into_iter();
    rows.map(|(key, start, end, sum)| ((key, start), (end, sum)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn sessions_are_what_the_plainest_computation_gives(
        script in scripts(),
        lateness in prop_oneof![Just(0i64), 0i64..40],
        room in 1usize..4,
        chunk in 1usize..9,
    ) {
        let (expected, expected_late) = plain(&script, lateness);
        let script = steps_of(&script, chunk);
        let mut out = drive(sessions(lateness), &script, room);
        prop_assert_eq!(out.take_timed::<u64>(1), expected_late.clone());
        prop_assert_eq!(late(&out), expected_late.len() as u64);
        prop_assert!(out.watermarks().is_sorted());
        let mut results = untimed(out.timed::<Session>(0));
        results.chunk_by_mut(|a, b| a.end == b.end).for_each(|ends| ends.sort());
        let mut expected = expected;
        expected.chunk_by_mut(|a, b| a.end == b.end).for_each(|ends| ends.sort());
        prop_assert_eq!(results, expected);
    }

    #[test]
    fn a_table_kept_from_the_changes_is_the_batch_result_of_all_records_that_were_not_late(
        script in scripts(),
        lateness in prop_oneof![Just(0i64), 0i64..40],
        room in 1usize..4,
        chunk in 1usize..9,
    ) {
        let steps = steps_of(&script, chunk);
        let mut out = drive(sessions(lateness).changes(), &steps, room);
        let mut records: Vec<_> = script.into_iter().flatten().flatten().collect();
        for late in out.take_timed::<u64>(1) {
            let at = records.iter().position(|record| *record == late).unwrap();
            records.remove(at);
        }
        let mut table = BTreeMap::new();
        for change in untimed(out.timed::<WindowChange<u64, i128>>(0)) {
            let row = (*change.key(), change.start().as_micros());
            match change {
                WindowChange::Upsert(result) => {
                    table.insert(row, (result.end.as_micros(), result.value));
                }
                WindowChange::Delete { end, .. } => {
                    let deleted = table.remove(&row).map(|(deleted_end, _)| deleted_end);
                    prop_assert_eq!(deleted, Some(end.as_micros()), "a row is deleted as it was");
                }
            }
        }
        prop_assert_eq!(table, batch(records));
    }
}

#[test]
fn a_record_within_a_final_session_is_late_though_its_own_would_be_open() {
    let steps = [
        Step::rows(&[(3, 0), (4, 11)]),
        Step::Watermark(11),
        Step::rows(&[(3, 6), (3, 9), (3, 10)]),
        Step::End,
    ];
    let mut out = drive(sessions(0), &steps, 9);
    assert_eq!(late(&out), 2);
    assert_eq!(out.take_timed::<u64>(1), [(3, 6), (3, 9)]);
    let results = untimed(out.timed::<Session>(0));
    let bounds = results
        .iter()
        .map(|r| (r.key, r.start.as_micros(), r.end.as_micros()));
    assert_eq!(
        bounds.collect::<Vec<_>>(),
        [(0, 0, 10), (0, 10, 20), (1, 11, 21)]
    );
}

#[test]
fn a_session_that_joins_emitted_ones_deletes_them_before_its_own_result() {
    let steps = [
        Step::rows(&[(3, 0), (3, 15)]),
        Step::Watermark(26),
        Step::rows(&[(3, 8)]),
        Step::Watermark(27),
        Step::End,
    ];
    let out = drive(sessions(30).changes(), &steps, 1);
    let changes = out.timed::<WindowChange<u64, i128>>(0);
    let seen = changes.into_iter().map(|(change, time)| match change {
        WindowChange::Upsert(r) => {
            let is_update = r.firing == Firing::Update;
            (
                r.start.as_micros(),
                r.end.as_micros(),
                Some((r.value, is_update)),
                time,
            )
        }
        WindowChange::Delete { start, end, .. } => (start.as_micros(), end.as_micros(), None, time),
    });
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            (0, 10, Some((3, false)), 9),
            (15, 25, Some((3, false)), 24),
            (0, 10, None, 24),
            (15, 25, None, 24),
            (0, 25, Some((9, true)), 24),
        ]
    );
}

#[test]
fn a_key_without_sessions_is_forgotten_once_all_older_records_are_late() {
    let mut window = sessions(5);
    let steps = [Step::rows(&[(3, 0)]), Step::Watermark(24)];
    crate::window::test_driver::run(&mut window, &steps, 9);
    assert_eq!(window.agenda_len(), 1);
    crate::window::test_driver::run(&mut window, &[Step::Watermark(25)], 9);
    assert_eq!(window.agenda_len(), 0);
}

#[test]
fn a_record_exactly_a_gap_later_starts_a_session_of_its_own() {
    let steps = [Step::rows(&[(3, 0), (3, GAP), (3, 2 * GAP - 1)]), Step::End];
    let results = untimed(drive(sessions(0), &steps, 9).timed::<Session>(0));
    let bounds: Vec<_> = results
        .iter()
        .map(|r| (r.start.as_micros(), r.end.as_micros()))
        .collect();
    assert_eq!(bounds, [(0, 10), (10, 29)]);
}

#[test]
fn a_record_between_two_sessions_joins_them() {
    let fold = FoldOne::new(|_: &u64| (), collect_list());
    let steps = [Step::rows(&[(1u64, 0), (2, 18), (3, 9)]), Step::End];
    let out = drive(SessionWindowP::new(spec(0), Arc::new(fold)), &steps, 9);
    let results = untimed(out.timed::<WindowResult<(), Vec<u64>>>(0));
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].value.len(), 3);
}

#[test]
fn a_watermark_looks_only_at_keys_with_something_to_close() {
    let mut window = sessions(0);
    let rows: Vec<_> = (0..1000).map(|n| (n % 3, n as i64)).collect();
    let out = crate::window::test_driver::run(
        &mut window,
        &[Step::rows(&rows), Step::Watermark(900)],
        100,
    );
    assert!(out.timed::<Session>(0).is_empty());
    assert_eq!(
        window.agenda_len(),
        3,
        "one entry a key, however long the session goes on"
    );
}

#[test]
fn a_gap_of_nothing_is_refused() {
    let error = SessionSpec::gap(Duration::from_nanos(999)).unwrap_err();
    assert!(error.to_string().contains("999ns"), "{error}");
}
