//! Tests of sliding and tumbling windows as a whole against a plain computation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{Aggregate, co_aggregate, collect_list, count, sum};
use ardea_core::{ErrorCode, Processor, Timestamp};
use proptest::prelude::*;

use crate::window::test_driver::{Step, drive, late, run, try_run, untimed};
use crate::window::*;
use crate::{FoldOne, FoldPartials, FoldThree, FoldTwo, KeyedFold, Partial};

type Row = (u64, i64);
type Results = Vec<WindowResult<u64, i128>>;

/// An aggregate whose ability to deduct is hidden.
struct Undeducted<A>(A);

impl<T, A: Aggregate<T>> Aggregate<T> for Undeducted<A> {
    type Acc = A::Acc;
    type Out = A::Out;

    fn create(&self) -> A::Acc {
        self.0.create()
    }
    fn accumulate(&self, acc: &mut A::Acc, record: &T) {
        self.0.accumulate(acc, record);
    }
    fn combine(&self, acc: &mut A::Acc, other: &A::Acc) {
        self.0.combine(acc, other);
    }
    fn finish(&self, acc: &A::Acc) -> A::Out {
        self.0.finish(acc)
    }
}

/// A trigger that never fires.
struct Silent;

impl<T> Trigger<T> for Silent {
    type State = ();
    fn on_record(&self, _: &mut (), _: &T, _: Timestamp) -> Decision {
        Decision::Wait
    }
}

fn key(value: &u64) -> u64 {
    value % 7
}

fn sums() -> Arc<impl KeyedFold<Key = u64, Acc = i128, Out = i128, State = ()>> {
    Arc::new(FoldOne::new(key, sum(|value: &u64| *value)))
}

fn undeducted() -> Arc<impl KeyedFold<Key = u64, Acc = i128, Out = i128, State = ()>> {
    Arc::new(FoldOne::new(key, Undeducted(sum(|value: &u64| *value))))
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The parameters and input of a test.
#[derive(Clone, Debug)]
struct Case {
    slide: i64,
    slices: i64,
    offset: i64,
    lateness: i64,
    /// Records, or a watermark.
    steps: Vec<Result<Vec<Row>, i64>>,
}

impl Case {
    fn spec(&self) -> WindowSpec {
        let (slide, length) = (us(self.slide as u64), us((self.slide * self.slices) as u64));
        let spec = WindowSpec::sliding(length, slide).unwrap();
        spec.offset(us(self.offset as u64))
            .allowed_lateness(us(self.lateness as u64))
    }

    fn steps(&self) -> Vec<Step> {
        let steps = self.steps.iter().map(|step| match step {
            Ok(rows) => Step::rows(rows),
            Err(watermark) => Step::Watermark(*watermark),
        });
        steps.chain([Step::End]).collect()
    }

    /// Returns the ends of the windows that contain `time`.
    fn ends(&self, time: i64) -> impl Iterator<Item = i64> {
        let first = (time - self.offset).div_euclid(self.slide) + 1;
        let (slide, offset) = (self.slide, self.offset);
        (first..first + self.slices).map(move |end| end * slide + offset)
    }

    /// Computes the results and late records by adding every record to every window.
    fn plain(&self) -> (Results, Vec<Row>) {
        let mut sums: BTreeMap<(i64, u64), i128> = BTreeMap::new();
        let mut changed: BTreeSet<(i64, u64)> = BTreeSet::new();
        let (mut results, mut late, mut now) = (Vec::new(), Vec::new(), i128::MIN);
        let end = [Err(i64::MAX)];
        for step in self.steps.iter().chain(&end) {
            match step {
                Ok(rows) => {
                    for (value, time) in rows {
                        let kept = |end: &i64| i128::from(end + self.lateness) > now;
                        let ends: Vec<_> = self.ends(*time).filter(kept).collect();
                        if ends.is_empty() {
                            late.push((*value, *time));
                        }
                        for end in ends {
                            *sums.entry((end, key(value))).or_default() += i128::from(*value);
                            changed.insert((end, key(value)));
                        }
                    }
                }
                Err(watermark) => {
                    let before = now;
                    now = i128::from(*watermark).max(now);
                    let due = changed.extract_if(.., |(end, _)| i128::from(*end) <= now);
                    let mut due: Vec<_> = due.collect();
                    due.sort_by_key(|(end, key)| (i128::from(*end) > before, *end, *key));
                    results.extend(due.into_iter().map(|(end, key)| WindowResult {
                        start: Timestamp::from_micros(end - self.slide * self.slices),
                        end: Timestamp::from_micros(end),
                        key,
                        value: sums[&(end, key)],
                        firing: match i128::from(end) > before {
                            true => Firing::OnTime,
                            false => Firing::Update,
                        },
                    }));
                }
            }
        }
        (results, late)
    }
}

/// Sorts consecutive results of the same window by key.
fn in_order_of_keys(mut results: Results) -> Results {
    results
        .chunk_by_mut(|a, b| (a.end, a.firing) == (b.end, b.firing))
        .for_each(|window| window.sort());
    results
}

fn cases() -> impl Strategy<Value = Case> {
    let rows = prop::collection::vec((0u64..30, -20i64..20), 1..12);
    let step = prop_oneof![3 => rows.prop_map(Ok), 2 => (0i64..25).prop_map(Err)];
    let lateness = prop_oneof![Just(0i64), 0i64..40];
    let steps = prop::collection::vec(step, 0..25);
    (1i64..6, 1i64..7, 0i64..6, lateness, steps).prop_map(
        |(slide, slices, offset, lateness, steps)| {
            // Times are relative to the watermark, which never decreases.
            let mut now = -30;
            let steps = steps.into_iter().map(|step| match step {
                Ok(rows) => Ok(rows
                    .into_iter()
                    .map(|(value, time)| (value, now + time))
                    .collect()),
                Err(ahead) => {
                    now += ahead;
                    Err(now)
                }
            });
            Case {
                slide,
                slices,
                offset: offset % slide,
                lateness,
                steps: steps.collect(),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn windows_are_what_the_plainest_computation_gives(case in cases(), room in 1usize..5) {
        let (expected, expected_late) = case.plain();
        let expected = in_order_of_keys(expected);
        let early = FoldOne::new(key, sum(|value: &u64| *value)).early(Silent);
        let undeducted_early = FoldOne::new(key, Undeducted(sum(|value: &u64| *value))).early(Silent);
        let processors: [Box<dyn Processor>; 4] = [
            Box::new(SlidingWindowP::new(case.spec(), sums())),
            Box::new(SlidingWindowP::new(case.spec(), undeducted())),
            Box::new(SlidingWindowP::new(case.spec(), Arc::new(early))),
            Box::new(SlidingWindowP::new(case.spec(), Arc::new(undeducted_early))),
        ];
        for mut processor in processors {
            let mut out = run(&mut *processor, &case.steps(), room);
            prop_assert_eq!(out.take_timed::<u64>(1), expected_late.clone());
            prop_assert_eq!(late(&out), expected_late.len() as u64);
            prop_assert!(out.watermarks().is_sorted());
            let timed = out.timed::<WindowResult<u64, i128>>(0);
            prop_assert!(timed.iter().all(|(result, time)| result.end.as_micros() - 1 == *time));
            prop_assert_eq!(in_order_of_keys(untimed(timed)), expected.clone());
        }
    }

    #[test]
    fn any_chunking_gives_the_same_results(case in cases(), size in 1usize..5) {
        let early = || FoldOne::new(key, sum(|value: &u64| *value))
            .early(EarlyFiring::each_records(3).unwrap());
        let whole = drive(SlidingWindowP::new(case.spec(), Arc::new(early())), &case.steps(), 9);
        let chunked = Case {
            steps: case.steps.iter().flat_map(|step| match step {
                Ok(rows) => rows.chunks(size).map(|rows| Ok(rows.to_vec())).collect(),
                Err(watermark) => vec![Err(*watermark)],
            }).collect(),
            ..case.clone()
        };
        let chunked = drive(SlidingWindowP::new(case.spec(), Arc::new(early())), &chunked.steps(), 2);
        prop_assert_eq!(
            whole.timed::<WindowResult<u64, i128>>(0),
            chunked.timed::<WindowResult<u64, i128>>(0)
        );
    }

    #[test]
    fn two_stages_give_what_one_gives(
        case in cases(),
        instances in 1usize..4,
        keys_max in prop_oneof![Just(usize::MAX), 0usize..6],
        room in 1usize..5,
    ) {
        let (expected, expected_late) = case.plain();
        let expected = in_order_of_keys(expected);
        let mut firsts: Vec<_> = (0..instances)
            .map(|_| SliceCombineP::new(case.spec(), sums()).keys_max(keys_max))
            .collect();
        let fold = Arc::new(FoldPartials::new(sums()));
        let mut second = SlidingWindowP::new(case.spec(), fold);
        let (mut results, mut late) = (Vec::new(), Vec::new());
        for (number, step) in case.steps().into_iter().enumerate() {
            let whole = matches!(step, Step::Rows(..));
            let mut partials = Vec::new();
            for (instance, first) in firsts.iter_mut().enumerate() {
                if !whole || number % instances == instance {
                    let mut out = run(first, std::slice::from_ref(&step), room);
                    late.extend(out.take_timed::<u64>(1));
                    partials.push(Step::rows_on(0, &out.timed::<Partial<u64, i128>>(0)));
                }
            }
            if !whole {
                partials.push(step);
            }
            results.extend(untimed(run(&mut second, &partials, room).timed(0)));
        }
        prop_assert_eq!(late, expected_late);
        prop_assert_eq!(in_order_of_keys(results), expected);
    }
}

#[test]
fn a_record_late_for_some_of_its_windows_counts_for_the_others() {
    let spec = WindowSpec::sliding(us(20), us(10)).unwrap();
    let steps = [
        Step::Watermark(20),
        Step::rows(&[(1, 15), (1, 9)]),
        Step::End,
    ];
    let mut out = drive(SlidingWindowP::new(spec, sums()), &steps, 9);
    assert_eq!(out.take_timed::<u64>(1), [(1, 9)]);
    let results = untimed(out.timed::<WindowResult<u64, i128>>(0));
    let windows: Vec<_> = results
        .iter()
        .map(|r| (r.start.as_micros(), r.firing))
        .collect();
    assert_eq!(windows, [(10, Firing::OnTime)]);
}

#[test]
fn centuries_without_records_cost_nothing() {
    let spec = WindowSpec::sliding(Duration::from_secs(10), Duration::from_millis(10)).unwrap();
    let day = 86_400_000_000i64;
    for fold in [0, 1] {
        let steps = [
            Step::rows(&[(1, -100_000 * day), (2, 0)]),
            Step::Watermark(-100_000 * day + 1),
            Step::Watermark(day),
            Step::rows(&[(3, 100_000 * day)]),
            Step::Watermark(200_000 * day),
            Step::End,
        ];
        let out = match fold {
            0 => drive(SlidingWindowP::new(spec, sums()), &steps, 1000),
            _ => drive(SlidingWindowP::new(spec, undeducted()), &steps, 1000),
        };
        assert_eq!(out.timed::<WindowResult<u64, i128>>(0).len(), 3 * 1000);
    }
}

#[test]
fn windows_at_the_ends_of_time_do_not_overflow() {
    for (length, slide) in [
        (4, 2),
        (1, 1),
        (i64::MAX as u64, i64::MAX as u64),
        (1 << 40, 1 << 38),
    ] {
        let spec = WindowSpec::sliding(us(length), us(slide)).unwrap();
        for offset in [0, 1] {
            let spec = spec.offset(us(offset)).allowed_lateness(us(offset));
            let rows: Vec<Row> = vec![(1, i64::MIN + 1), (2, i64::MAX - 2), (3, i64::MAX - 1)];
            let steps = [
                Step::Watermark(i64::MIN),
                Step::rows(&rows),
                Step::Watermark(i64::MIN + 5),
                Step::Watermark(i64::MAX - 1),
                Step::End,
            ];
            let out = drive(SlidingWindowP::new(spec, sums()), &steps, 9);
            let results = untimed(out.timed::<WindowResult<u64, i128>>(0));
            for r in &results {
                assert!(r.start < r.end, "{r:?}");
                assert_eq!(r.firing, Firing::OnTime, "{r:?}");
            }
            for (value, time) in rows {
                let time = Timestamp::from_micros(time);
                assert!(
                    results
                        .iter()
                        .any(|r| r.key == value && r.start <= time && time < r.end)
                );
            }
        }
    }
}

#[test]
fn every_window_of_the_last_record_of_all_comes_before_the_end_of_time() {
    for slide in [2, 3] {
        // More windows than fit between two intermediate watermarks.
        let spec = WindowSpec::sliding(us(200 * slide), us(slide)).unwrap();
        let steps = [Step::rows(&[(1u64, i64::MAX - 1)]), Step::End];
        let mut out = drive(SlidingWindowP::new(spec, sums()), &steps, 9);
        let results = untimed(out.take_timed::<WindowResult<u64, i128>>(0));
        let starts: BTreeSet<Timestamp> = results.iter().map(|r| r.start).collect();
        assert_eq!(starts.len(), 200);
        let end = results.iter().filter(|r| r.end == Timestamp::MAX);
        assert!(end.count() > 150);
        let ends = out.watermarks().into_iter().filter(|at| *at == i64::MAX);
        assert_eq!(ends.count(), 1);
    }
}

#[test]
fn a_record_whose_windows_have_no_number_is_refused_and_the_one_before_it_has_them_all() {
    let spec = WindowSpec::sliding(us(4), us(1)).unwrap();
    let last = i64::MAX - 4;
    let steps = [Step::rows(&[(1u64, last)]), Step::End];
    let out = drive(SlidingWindowP::new(spec, sums()), &steps, 9);
    assert_eq!(out.timed::<WindowResult<u64, i128>>(0).len(), 4);
    let steps = [Step::rows(&[(1u64, last), (2, last + 1)])];
    let mut window = SlidingWindowP::new(spec, sums());
    let error = try_run(&mut window, &steps, 9).err().unwrap();
    assert_eq!(error.record(), Some((0, 1)));
    assert!(error.to_string().contains("the end of time"), "{error}");
}

#[test]
fn a_record_without_time_is_an_error_that_says_what_to_do() {
    let spec = WindowSpec::tumbling(us(10)).unwrap();
    let steps = [
        Step::rows(&[(1u64, 5), (2, 5)]),
        Step::rows(&[(3u64, 5), (4, i64::MIN)]),
    ];
    let mut window = SlidingWindowP::new(spec, sums());
    let error = try_run(&mut window, &steps, 9).err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert_eq!(error.record(), Some((0, 3)));
    assert!(error.to_string().contains("with_timestamps"), "{error}");
}

#[test]
fn the_end_of_all_time_is_in_no_window() {
    let spec = WindowSpec::tumbling(us(10)).unwrap();
    let steps = [
        Step::rows(&[(1u64, i64::MAX - 1)]),
        Step::rows(&[(2u64, i64::MAX - 1), (3, i64::MAX)]),
    ];
    let mut window = SlidingWindowP::new(spec, sums());
    let error = try_run(&mut window, &steps, 9).err().unwrap();
    assert_eq!(error.record(), Some((0, 2)));
}

#[test]
fn a_record_without_time_is_refused_in_the_first_window_of_all_too() {
    let spec = WindowSpec::tumbling(us(10)).unwrap();
    let steps = [Step::rows(&[(1u64, i64::MIN + 1), (2, i64::MIN)])];
    let mut window = SlidingWindowP::new(spec, sums());
    let error = try_run(&mut window, &steps, 9).err().unwrap();
    assert_eq!(error.record(), Some((0, 1)));
}

#[test]
fn an_ungrouped_stream_has_one_result_a_window() {
    let spec = WindowSpec::tumbling(us(10)).unwrap();
    let fold = Arc::new(FoldOne::new(|_: &u64| (), count()));
    let steps = [Step::rows(&[(1u64, 5), (2, 7), (3, 25)]), Step::End];
    let out = drive(SlidingWindowP::new(spec, fold), &steps, 9);
    let results = untimed(out.timed::<WindowResult<(), u64>>(0));
    let window = |start: i64, value| WindowResult {
        start: Timestamp::from_micros(start),
        end: Timestamp::from_micros(start + 10),
        key: (),
        value,
        firing: Firing::OnTime,
    };
    assert_eq!(results, [window(0, 2), window(20, 1)]);
}

#[test]
fn two_and_three_inputs_meet_in_a_window() {
    let spec = WindowSpec::tumbling(us(10)).unwrap();
    let name = |person: &(u64, &'static str)| person.0;
    let two = FoldTwo::new(
        name,
        |seller: &u64| *seller,
        co_aggregate(collect_list(), count()),
    );
    let steps = [
        Step::rows_on(0, &[((1u64, "ann"), 3), ((2, "bob"), 12)]),
        Step::rows_on(1, &[(1u64, 9), (1, 10), (1, 1)]),
        Step::Watermark(20),
        Step::rows_on(1, &[(9u64, 19)]),
        Step::End,
    ];
    let mut out = drive(SlidingWindowP::new(spec, Arc::new(two)), &steps, 1);
    assert_eq!(
        out.take_timed::<u64>(2),
        [(9, 19)],
        "late records of input 1 go to output 2"
    );
    type Met = WindowResult<u64, (Vec<(u64, &'static str)>, u64)>;
    let met: Vec<_> = untimed(out.timed::<Met>(0))
        .into_iter()
        .map(|r| (r.key, r.value))
        .collect();
    assert_eq!(
        met,
        [
            (1, (vec![(1, "ann")], 2)),
            (2, (vec![(2, "bob")], 0)),
            (1, (vec![], 1))
        ]
    );

    let co = ardea_aggregate::co_aggregate3(count(), count(), sum(|n: &u32| *n));
    let three = FoldThree::new(|_: &u8| (), |_: &u16| (), |_: &u32| (), co);
    let steps = [
        Step::rows_on(2, &[(5u32, 1), (6, 2)]),
        Step::rows_on(0, &[(1u8, 3)]),
        Step::rows_on(1, &[(1u16, 4)]),
        Step::End,
    ];
    let out = drive(SlidingWindowP::new(spec, Arc::new(three)), &steps, 1);
    let met = untimed(out.timed::<WindowResult<(), (u64, u64, i128)>>(0));
    assert_eq!(met[0].value, (1, 1, 11));
    let two = FoldTwo::new(|v: &u64| *v, |v: &u64| *v, co_aggregate(count(), count()));
    let mut window = SlidingWindowP::new(spec, Arc::new(two));
    let error = try_run(&mut window, &[Step::rows_on(2, &[(1u64, 1)])], 9)
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::UnexpectedInput);
}

#[test]
fn early_results_come_after_so_many_records_of_a_key_for_every_open_window() {
    let spec = WindowSpec::sliding(us(20), us(10)).unwrap();
    let fold =
        FoldOne::new(key, sum(|value: &u64| *value)).early(EarlyFiring::each_records(2).unwrap());
    let steps = [
        Step::rows(&[(1, 5), (2, 5), (1, 15)]),
        Step::Watermark(10),
        Step::rows(&[(1, 16), (1, 17)]),
        Step::End,
    ];
    let out = drive(SlidingWindowP::new(spec, Arc::new(fold)), &steps, 1);
    let results = untimed(out.timed::<WindowResult<u64, i128>>(0));
    let results: Vec<_> = results
        .iter()
        .map(|r| (r.firing, r.end.as_micros(), r.key, r.value))
        .collect();
    use Firing::{Early, OnTime};
    assert_eq!(
        results,
        [
            (Early, 10, 1, 1),
            (Early, 20, 1, 2),
            (Early, 30, 1, 1),
            (OnTime, 10, 1, 1),
            (OnTime, 10, 2, 2),
            (Early, 20, 1, 4),
            (Early, 30, 1, 3),
            (OnTime, 20, 1, 4),
            (OnTime, 20, 2, 2),
            (OnTime, 30, 1, 3),
        ]
    );
}

#[test]
fn early_results_come_once_a_period_for_keys_with_new_records() {
    let spec = WindowSpec::tumbling(us(100)).unwrap();
    let period = EarlyFiring::every(Duration::from_secs(1)).unwrap();
    let fold = FoldOne::new(key, sum(|value: &u64| *value)).early(period);
    let second = Step::Advance(Duration::from_secs(1));
    let steps = [
        Step::rows(&[(1, 5), (2, 5), (1, 15)]),
        Step::Advance(Duration::from_millis(999)),
        Step::Advance(Duration::from_millis(1)),
        second.clone(),
        Step::rows(&[(2, 6)]),
        second.clone(),
        Step::Watermark(100),
        second,
        Step::End,
    ];
    let out = drive(SlidingWindowP::new(spec, Arc::new(fold)), &steps, 1);
    let results = untimed(out.timed::<WindowResult<u64, i128>>(0));
    let results: Vec<_> = results.iter().map(|r| (r.firing, r.key, r.value)).collect();
    use Firing::{Early, OnTime};
    assert_eq!(
        results,
        [
            (Early, 1, 2),
            (Early, 2, 2),
            (Early, 2, 4),
            (OnTime, 1, 2),
            (OnTime, 2, 4)
        ]
    );
}
