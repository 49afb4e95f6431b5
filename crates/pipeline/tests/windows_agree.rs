//! Any chunking, thread count and interleaving gives the same windowed results, and they are those of the definition.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use ardea_aggregate::{collect_list, count, max, sum};
use ardea_connect::collections::items;
use ardea_core::Timestamp;
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
use proptest::prelude::*;

/// Key, second, amount.
type Sale = (u8, i64, i64);

/// Window start, end, key, and what was computed.
type Row<R> = (i64, i64, u8, R);

fn sales() -> impl Strategy<Value = Vec<Sale>> {
    prop::collection::vec((0u8..5, -50i64..50, -9i64..9), 0..120)
}

fn nodes() -> impl Strategy<Value = NodeConfig> {
    (1u32..4, 1usize..9, 1usize..4, any::<bool>()).prop_map(|(threads, chunk, queue, fuse)| {
        NodeConfig {
            chunk_records: NonZeroUsize::new(chunk).unwrap(),
            queue_chunks: NonZeroUsize::new(queue).unwrap(),
            fuse,
            pin: false,
            ..NodeConfig::with_threads(threads)
        }
    })
}

/// The sliding windows by their definition: each record counts in each window that holds its time.
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
        let mut by_key: BTreeMap<u8, Vec<i64>> = BTreeMap::new();
        sales.iter().for_each(|sale| by_key.entry(sale.0).or_default().push(sale.1));
        let mut expected: Vec<Row<u64>> = Vec::new();
        for (key, mut times) in by_key {
            times.sort_unstable();
            let first = expected.len();
            for time in times {
                match expected[first..].last_mut() {
                    Some((_, end, _, records)) if time < *end => (*end, *records) = (time + gap, *records + 1),
                    _ => expected.push((time, time + gap, key, 1)),
                }
            }
        }
        expected.sort_unstable();
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
    // 100,000 windows close under one watermark. The second stage gets to see time pass between them, or it would hold
    // every window's results at once.
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
    most.write_to(ardea_connect::null::sink());
    p.run_with(NodeConfig::with_threads(1)).unwrap();
    let told = watermarks.load(std::sync::atomic::Ordering::Relaxed);
    assert!(told > 1_000, "{told} watermarks");
}

/// Swallows records and counts watermarks.
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
