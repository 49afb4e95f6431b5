//! Session windows against a plain computation.

use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{collect_list, sum};
use ardea_core::Timestamp;
use proptest::prelude::*;

use super::drive::{Step, drive, late, untimed};
use super::*;
use crate::FoldOne;

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

/// The results and late records of a script, computed in the plainest way: one list of sessions, searched each time.
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
    let (mut results, mut late) = (Vec::new(), Vec::new());
    for step in steps.iter().chain(&[Err(i64::MAX)]) {
        match step {
            Ok(rows) => {
                for (value, time) in rows {
                    let key = value % 3;
                    let reached = kept.extract_if(.., |s| {
                        s.key == key && s.first < time + GAP && *time < s.last + GAP
                    });
                    let reached: Vec<_> = reached.collect();
                    if reached.is_empty() && i128::from(time + GAP + lateness) <= now {
                        late.push((*value, *time));
                        continue;
                    }
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
                kept.retain(|s| i128::from(s.last + GAP + lateness) > now);
            }
        }
    }
    (results, late)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn sessions_are_what_the_plainest_computation_gives(
        steps in prop::collection::vec(prop_oneof![
            3 => prop::collection::vec((0u64..9, -40i64..30), 1..8).prop_map(Ok),
            2 => (0i64..30).prop_map(Err),
        ], 0..25),
        lateness in prop_oneof![Just(0i64), 0i64..40],
        room in 1usize..4,
        chunk in 1usize..9,
    ) {
        let mut now = -50;
        let steps: Vec<_> = steps.into_iter().map(|step| match step {
            Ok(rows) => Ok(rows.into_iter().map(|(value, time)| (value, now + time)).collect::<Vec<_>>()),
            Err(ahead) => {
                now += ahead;
                Err(now)
            }
        }).collect();
        let (expected, expected_late) = plain(&steps, lateness);
        let script = steps.iter().flat_map(|step| match step {
            Ok(rows) => rows.chunks(chunk).map(Step::rows).collect(),
            Err(watermark) => vec![Step::Watermark(*watermark)],
        });
        let script: Vec<_> = script.chain([Step::End]).collect();
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
    let out = super::drive::run(&mut window, &[Step::rows(&rows), Step::Watermark(900)], 100);
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
