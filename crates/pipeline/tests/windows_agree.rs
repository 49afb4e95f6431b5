//! Tests that windowed results do not depend on chunking, threads and interleaving, and match the
//! definition.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use ardea_aggregate::{collect_list, count, max, sum};
use ardea_connectors::collections::items;
use ardea_core::Timestamp;
use ardea_engine::{ExecutionMode, MicroBatchConfig, NodeConfig};
use ardea_pipeline::{Pipeline, WatermarkPolicy, Weekday, Window, WindowChange};
use proptest::prelude::*;

/// A key, a second and an amount.
type Sale = (u8, i64, i64);

/// A window's start and end, the key, and the result.
type Row<R> = (i64, i64, u8, R);

fn sales() -> impl Strategy<Value = Vec<Sale>> {
    prop::collection::vec((0u8..5, -50i64..50, -9i64..9), 0..120)
}

fn nodes() -> impl Strategy<Value = NodeConfig> {
    // The records of a micro-batch, if the job runs in micro-batches.
    let batch = prop::option::of(1u64..60);
    let numbers = (1u32..4, 1usize..9, 1usize..4, any::<bool>(), batch);
    numbers.prop_map(|(threads, chunk, queue, fuse, batch)| NodeConfig {
        mode: batch.map_or(ExecutionMode::Continuous, |_| ExecutionMode::MicroBatch),
        micro_batch: MicroBatchConfig {
            epoch: Duration::from_millis(1),
            records: batch.and_then(NonZeroU64::new),
            ..MicroBatchConfig::default()
        },
        chunk_records: NonZeroUsize::new(chunk).unwrap(),
        queue_chunks: NonZeroUsize::new(queue).unwrap(),
        fuse,
        pin: false,
        ..NodeConfig::with_threads(threads)
    })
}

/// Computes sliding windows by definition: each record counts in each window that contains its
/// time.
fn naive(sales: &[Sale], length: i64, slide: i64) -> BTreeMap<(i64, u8), Vec<Sale>> {
    let mut windows: BTreeMap<(i64, u8), Vec<Sale>> = BTreeMap::new();
    for sale in sales {
        let last = sale.1.div_euclid(slide) * slide;
        for start in (0..length / slide).map(|back| last - back * slide) {
            windows.entry((start, sale.0)).or_default().push(*sale);
        }
    }
    windows
}

/// Computes sessions by definition, with the number of their records.
fn sessions_of(sales: &[Sale], gap: i64) -> Vec<Row<u64>> {
    let mut by_key: BTreeMap<u8, Vec<i64>> = BTreeMap::new();
    sales
        .iter()
        .for_each(|sale| by_key.entry(sale.0).or_default().push(sale.1));
    let mut expected: Vec<Row<u64>> = Vec::new();
    for (key, mut times) in by_key {
        times.sort_unstable();
        let first = expected.len();
        for time in times {
            match expected[first..].last_mut() {
                Some((_, end, _, records)) if time < *end => {
                    (*end, *records) = (time + gap, *records + 1)
                }
                _ => expected.push((time, time + gap, key, 1)),
            }
        }
    }
    expected.sort_unstable();
    expected
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn sliding_windows_are_those_of_the_definition(sales in sales(), node in nodes(), slices in 1i64..6, slide in 1i64..8) {
        let p = Pipeline::new("sliding");
        let disorder = WatermarkPolicy::out_of_order(Duration::from_secs(200));
        let window = Window::sliding(Duration::from_secs((slices * slide) as u64), Duration::from_secs(slide as u64));
        let amounts = (count(), sum(|sale: &Sale| sale.2), max(|sale: &Sale| sale.2));
        let out = p
            .read_from(items(sales.clone()))
            .with_timestamps(|sale| Timestamp::from_secs(sale.1), disorder)
            .rebalance()
            .key_by(|sale| sale.0)
            .window(window)
            .aggregate("amounts", amounts)
            .map(|w| (w.start.as_millis() / 1000, w.end.as_millis() / 1000, w.key, w.value))
            .collect();
        p.run_with(node).unwrap();
        let expected: Vec<Row<(u64, i128, Option<i64>)>> = naive(&sales, slices * slide, slide)
            .into_iter()
            .map(|((start, key), sales)| {
                let amounts = sales.iter().map(|sale| sale.2);
                let total = amounts.clone().map(i128::from).sum();
                (start, start + slices * slide, key, (sales.len() as u64, total, amounts.max()))
            })
            .collect();
        prop_assert_eq!(out.take_sorted(), expected);
    }

    #[test]
    fn sessions_end_where_a_gap_begins(sales in sales(), node in nodes(), gap in 1i64..8) {
        let p = Pipeline::new("sessions");
        let disorder = WatermarkPolicy::out_of_order(Duration::from_secs(200));
        let out = p
            .read_from(items(sales.clone()))
            .with_timestamps(|sale| Timestamp::from_secs(sale.1), disorder)
            .rebalance()
            .key_by(|sale| sale.0)
            .window(Window::session(Duration::from_secs(gap as u64)))
            .aggregate("sessions", count())
            .map(|w| (w.start.as_millis() / 1000, w.end.as_millis() / 1000, w.key, w.value))
            .collect();
        p.run_with(node).unwrap();
        prop_assert_eq!(out.take_sorted(), sessions_of(&sales, gap));
    }

    #[test]
    fn a_table_kept_from_the_changes_of_sessions_holds_those_of_all_records_in_time(
        sales in sales(), node in nodes(), gap in 1i64..8, lag in 0u64..20, lateness in 0u64..80,
    ) {
        let p = Pipeline::new("changes");
        let window = Window::session(Duration::from_secs(gap as u64));
        let (changes, late) = p
            .read_from(items(sales.clone()))
            .with_timestamps(|sale| Timestamp::from_secs(sale.1), WatermarkPolicy::out_of_order(Duration::from_secs(lag)))
            .rebalance()
            .key_by(|sale| sale.0)
            .window(window.allowed_lateness(Duration::from_secs(lateness)))
            .changes_and_late("changes", count());
        let (changes, late) = (changes.collect(), late.collect());
        p.run_with(node).unwrap();
        let mut in_time = sales;
        for sale in late.take() {
            let at = in_time.iter().position(|other| *other == sale).unwrap();
            in_time.remove(at);
        }
        let mut table = BTreeMap::new();
        for change in changes.take() {
            let row = (*change.key(), change.start().as_millis() / 1000);
            match change {
                WindowChange::Upsert(w) => table.insert(row, (w.end.as_millis() / 1000, w.value)),
                WindowChange::Delete { .. } => table.remove(&row),
            };
        }
        let rows = table.into_iter().map(|((key, start), (end, records))| (start, end, key, records));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable();
        prop_assert_eq!(rows, sessions_of(&in_time, gap));
    }

    #[test]
    fn days_of_a_time_zone_hold_the_records_of_their_dates(
        hours in prop::collection::vec(0i64..24 * 30, 0..120), node in nodes(), weekly in any::<bool>(), lateness in 0u64..2,
    ) {
        // From 1 March in Berlin: the clock changes on the 31st, a Sunday.
        let first = 1_709_247_600;
        let hours: Vec<i64> = hours.into_iter().map(|hour| hour + 24 * 15).collect();
        let window = match weekly {
            true => Window::weekly("Europe/Berlin", Weekday::Saturday),
            false => Window::daily("Europe/Berlin"),
        };
        let p = Pipeline::new("days");
        let out = p
            .read_from(items(hours.clone()))
            .with_timestamps(move |hour| Timestamp::from_secs(first + hour * 3600), WatermarkPolicy::out_of_order(Duration::MAX))
            .rebalance()
            .key_by(|_| ())
            .window(window.allowed_lateness(Duration::from_secs(lateness)))
            .aggregate("hours", count())
            .map(move |w| ((w.start.as_millis() / 1000 - first) / 3600, (w.end.as_millis() / 1000 - first) / 3600, w.value))
            .collect();
        p.run_with(node).unwrap();
        // At two in the morning of the 31st.
        let set_at = 24 * 30 + 2;
        let start_of = |day: i64| day * 24 - i64::from(day * 24 > set_at);
        let mut expected: BTreeMap<(i64, i64), u64> = BTreeMap::new();
        for hour in hours {
            let day = (hour + i64::from(hour >= set_at)).div_euclid(24);
            // 2 March was a Saturday.
            let (from, days) = if weekly { (day - (day - 1).rem_euclid(7), 7) } else { (day, 1) };
            *expected.entry((start_of(from), start_of(from + days))).or_default() += 1;
        }
        let expected: Vec<_> = expected.into_iter().map(|((start, end), records)| (start, end, records)).collect();
        prop_assert_eq!(out.take_sorted(), expected);
    }

    #[test]
    fn windowed_joins_give_every_pair_once(left in sales(), right in sales(), node in nodes(), length in 1i64..20) {
        let p = Pipeline::new("pairs");
        let timed = |sales: Vec<Sale>| {
            p.read_from(items(sales))
                .with_timestamps(|sale: &Sale| Timestamp::from_secs(sale.1), WatermarkPolicy::out_of_order(Duration::MAX))
                .key_by(|sale: &Sale| sale.0)
        };
        let out = timed(left.clone())
            .window(Window::tumbling(Duration::from_secs(length as u64)))
            .join("pairs", timed(right.clone()), |one, two| (*one, *two))
            .collect();
        p.run_with(node).unwrap();
        let mut expected = Vec::new();
        for one in &left {
            let meets = |two: &&Sale| one.0 == two.0 && one.1.div_euclid(length) == two.1.div_euclid(length);
            expected.extend(right.iter().filter(meets).map(|two| (*one, *two)));
        }
        expected.sort_unstable();
        prop_assert_eq!(out.take_sorted(), expected);
    }

    #[test]
    fn groups_over_many_threads_are_complete(sales in sales(), node in nodes()) {
        let p = Pipeline::new("groups");
        let out = p
            .read_from(items(sales.clone()))
            .rebalance()
            .key_by(|sale| sale.0)
            .aggregate("all", collect_list())
            .map(|(key, mut sales): (u8, Vec<Sale>)| {
                sales.sort_unstable();
                (key, sales)
            })
            .collect();
        p.run_with(node).unwrap();
        let mut expected: BTreeMap<u8, Vec<Sale>> = BTreeMap::new();
        sales.iter().for_each(|sale| expected.entry(sale.0).or_default().push(*sale));
        expected.values_mut().for_each(|sales| sales.sort_unstable());
        prop_assert_eq!(out.take_sorted(), expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn windows_of_windows_close_one_by_one_at_the_end_of_a_file() {
    // One watermark closes 100,000 windows. The second stage receives intermediate watermarks;
    // otherwise it would buffer the results of all windows at once.
    let p = Pipeline::new("windows of windows");
    let watermarks = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = std::sync::Arc::clone(&watermarks);
    let most = p
        .read_from(items((0..1_000i64).collect::<Vec<_>>()))
        .with_timestamps(
            |second| Timestamp::from_secs(*second),
            WatermarkPolicy::out_of_order(Duration::MAX),
        )
        .key_by(|second| second % 7)
        .window(Window::sliding(
            Duration::from_secs(1_000),
            Duration::from_millis(20),
        ))
        .aggregate("counts", count())
        .custom::<u64, _>("watermarks", move |_| {
            CountWatermarks(std::sync::Arc::clone(&seen))
        });
    most.write_to(ardea_connectors::null::sink());
    p.run_with(NodeConfig::with_threads(1)).unwrap();
    let told = watermarks.load(std::sync::atomic::Ordering::Relaxed);
    assert!(told > 1_000, "{told} watermarks");
}

/// Drops records and counts watermarks.
struct CountWatermarks(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl ardea_core::Processor for CountWatermarks {
    fn process(
        &mut self,
        _: ardea_core::Ordinal,
        inbox: &mut ardea_core::Inbox,
        _: &mut ardea_core::Outbox,
    ) -> ardea_core::Result<()> {
        inbox
            .rows::<ardea_pipeline::WindowResult<i64, u64>>()?
            .clear();
        Ok(())
    }

    fn on_watermark(
        &mut self,
        watermark: ardea_core::Watermark,
        outbox: &mut ardea_core::Outbox,
    ) -> ardea_core::Result<ardea_core::Progress> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        outbox.watermark(watermark);
        Ok(ardea_core::Progress::DONE)
    }
}

#[test]
fn a_record_within_a_session_that_was_emitted_is_late() {
    let p = Pipeline::new("sessions");
    let (on_time, late) = p
        .read_from(items(vec![("a", 0), ("b", 6), ("a", 3), ("b", 30)]))
        .with_timestamps(
            |record| Timestamp::from_secs(record.1),
            WatermarkPolicy::in_order(),
        )
        .key_by(|record| record.0)
        .window(Window::session(Duration::from_secs(5)))
        .aggregate_and_late("visits", count());
    let seconds = |time: Timestamp| time.as_millis() / 1000;
    let visits = on_time
        .map(move |w| (w.key, seconds(w.start), seconds(w.end), w.value))
        .collect();
    let late = late.collect();
    p.run_with(NodeConfig {
        chunk_records: NonZeroUsize::MIN,
        ..NodeConfig::default()
    })
    .unwrap();
    assert_eq!(
        visits.take_sorted(),
        [("a", 0, 5, 1), ("b", 6, 11, 1), ("b", 30, 35, 1)]
    );
    assert_eq!(late.take(), [("a", 3)]);
}
