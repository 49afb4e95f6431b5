//! Guarantees of the history: growth through restarts, folding, limits.

use super::*;
use crate::{Buckets, InstanceCounters, ProcessReading, Value};
use ardea_core::MetricsSnapshot;
use proptest::prelude::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_secs(second)
}

fn process(container: u32) -> Labels {
    Labels::of([("job", "a"), ("container", &container.to_string())])
}

fn batch(container: u32, started: i64, now: i64) -> Batch {
    Batch::new(process(container), at(started), at(now))
}

fn counter(container: u32, instance: u32, started: i64, now: i64, number: f64) -> Batch {
    let mut batch = batch(container, started, now);
    let labels = Labels::of([
        ("vertex", "v".to_string()),
        ("instance", instance.to_string()),
    ]);
    batch.push("made_total", &labels, Value::Counter(number));
    batch
}

fn total(history: &History) -> f64 {
    let latest = history.latest(&Selector::of("made_total"));
    latest.iter().map(|latest| latest.value).sum()
}

#[test]
fn a_counter_grows_on_through_restarts_of_its_process_and_is_never_negative() {
    let mut history = History::new(HistoryConfig::default(), at(100));
    // The process is as old as the history: its first value is growth.
    history.take(&counter(1, 0, 100, 101, 10.0), at(101));
    history.take(&counter(1, 0, 100, 102, 30.0), at(102));
    // Restarted, with a faster counter: the whole value is growth.
    history.take(&counter(1, 0, 103, 104, 50.0), at(104));
    // Only the instance has restarted.
    history.take(&counter(1, 0, 103, 105, 5.0), at(105));
    assert_eq!(total(&history), 85.0);
    let rates = history.range(
        &Selector::of("made_total"),
        Resolution::Seconds,
        at(100),
        at(110),
    );
    let values: Vec<f64> = rates[0].points.iter().map(|point| point.value).collect();
    // A value reported at the start of a second belongs to the previous one. The newest second
    // isn't over.
    assert_eq!(values, [10.0, 20.0, 50.0, 5.0]);
}

#[test]
fn what_a_counter_said_before_the_history_began_is_no_growth() {
    let mut history = History::new(HistoryConfig::default(), at(1_000));
    history.take(&counter(1, 0, 10, 1_001, 5_000.0), at(1_001));
    history.take(&counter(1, 0, 10, 1_002, 5_003.0), at(1_002));
    assert_eq!(total(&history), 3.0);
    // An instance that starts in a known process begins at zero.
    history.take(&counter(1, 1, 10, 1_003, 7.0), at(1_003));
    assert_eq!(total(&history), 10.0);
}

#[test]
fn clocks_of_other_hosts_do_not_matter() {
    let mut history = History::new(HistoryConfig::default(), at(1_000));
    history.take(&counter(1, 0, 500_000, 500_001, 4.0), at(1_001));
    history.take(&counter(1, 0, 500_000, 500_002, 6.0), at(1_002));
    assert_eq!(total(&history), 6.0);
    let curves = history.range(
        &Selector::of("made_total"),
        Resolution::TenSeconds,
        at(0),
        at(2_000),
    );
    assert!(curves.is_empty(), "ten seconds are not over yet");
    history.take(&counter(1, 0, 500_000, 500_020, 8.0), at(1_020));
    let curves = history.range(
        &Selector::of("made_total"),
        Resolution::TenSeconds,
        at(0),
        at(2_000),
    );
    assert_eq!(
        curves[0].points,
        [
            // The growth within the cell, not per second.
            Point {
                at: at(1_000),
                value: 7.0
            },
            Point {
                at: at(1_010),
                value: 1.0
            }
        ]
    );
}

fn levels(history: &mut History, now: i64, levels: &[(u32, f64)]) {
    for (container, level) in levels {
        let mut batch = batch(*container, 0, now);
        let labels = Labels::of([
            ("vertex", "v".to_string()),
            ("instance", container.to_string()),
        ]);
        batch.push("ardea_watermark_seconds", &labels, Value::Gauge(*level));
        batch.push("held", &labels, Value::Gauge(*level));
        history.take(&batch, at(now));
    }
}

#[test]
fn gauges_of_a_vertex_become_one_as_the_catalogue_says_folded_or_not() {
    for most_series in [100, 2] {
        let config = HistoryConfig {
            most_series,
            ..HistoryConfig::default()
        };
        let mut history = History::new(config, at(0));
        for now in 1..4 {
            levels(&mut history, now, &[(1, 10.0), (2, 20.0), (3, 40.0)]);
        }
        assert_eq!(history.report().is_folded, most_series == 2);
        let newest = |name: &str| {
            let curves = history.sum_by(
                &Selector::of(name),
                &["vertex"],
                Resolution::Seconds,
                at(0),
                at(9),
            );
            assert_eq!(curves.len(), 1);
            assert_eq!(curves[0].labels.get("vertex"), Some("v"));
            curves[0].points.last().map(|point| (point.at, point.value))
        };
        assert_eq!(newest("held"), Some((at(3), 70.0)));
        assert_eq!(newest("ardea_watermark_seconds"), Some((at(3), 10.0)));
    }
}

#[test]
fn who_is_silent_is_no_longer_part_of_the_latest_and_of_the_sum() {
    let config = HistoryConfig {
        most_series: 2,
        ..HistoryConfig::default()
    };
    let mut history = History::new(config, at(0));
    levels(&mut history, 1, &[(1, 10.0), (2, 20.0)]);
    assert_eq!(history.latest(&Selector::of("held"))[0].value, 30.0);
    for now in [20, 40, 60] {
        levels(&mut history, now, &[(2, 25.0)]);
    }
    assert_eq!(history.latest(&Selector::of("held"))[0].value, 25.0);
    // It reports again.
    levels(&mut history, 61, &[(1, 1.0), (2, 25.0)]);
    assert_eq!(history.latest(&Selector::of("held"))[0].value, 26.0);
}

#[test]
fn a_counter_that_was_silent_goes_on_from_where_it_was() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    history.take(&counter(1, 0, 0, 1, 100.0), at(1));
    for now in (10..=600).step_by(10) {
        history.take(&batch(2, 0, now), at(now));
    }
    assert_eq!(history.latest(&Selector::of("made_total")), []);
    history.take(&counter(1, 0, 0, 601, 130.0), at(601));
    assert_eq!(total(&history), 130.0);
    // After more than an hour its value is forgotten: the next one is a start value.
    for now in (610..=5_000).step_by(10) {
        history.take(&batch(2, 0, now), at(now));
    }
    assert_eq!(history.report().numbers, 0);
    history.take(&counter(1, 0, 0, 5_001, 500.0), at(5_001));
    assert_eq!(total(&history), 0.0);
}

#[test]
fn a_series_is_let_go_of_an_hour_after_it_was_told() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    history.take(&counter(1, 0, 0, 1, 1.0), at(1));
    history.take(&counter(2, 0, 0, 2, 1.0), at(2));
    for now in (10..3_700).step_by(10) {
        history.take(&counter(2, 0, 0, now, 1.0), at(now));
    }
    let report = history.report();
    assert_eq!((report.series, report.numbers), (1, 1));
    // Its index is used again.
    history.take(&counter(3, 0, 3_690, 3_700, 1.0), at(3_700));
    assert_eq!(history.series.len(), 2);
    assert_eq!(total(&history), 2.0);
}

#[test]
fn what_has_been_counted_stays_counted_when_its_process_dies_and_is_forgotten() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    let exceptions = |started, now, number| {
        let mut batch = batch(1, started, now);
        let labels = Labels::of([("vertex", "v"), ("instance", "0"), ("code", "ARD-301")]);
        let name = catalogue::EXCEPTIONS.name;
        batch.push(name, &labels, Value::Counter(number));
        batch
    };
    let of_vertex = Selector::of(catalogue::EXCEPTIONS.name).with("vertex", "v");
    let grown = |history: &History| {
        let grown = history.grown(&of_vertex, &["vertex"]);
        grown.iter().map(|one| one.value).collect::<Vec<_>>()
    };
    history.take(&exceptions(0, 1, 4.0), at(1));
    // The next process has none, so it does not report any.
    for now in (10..=60).step_by(10) {
        history.take(&batch(1, 9, now), at(now));
        assert_eq!(grown(&history), [4.0]);
    }
    // Not reported for more than an hour, and the series is removed; a new value is added.
    for now in (70..=4_000).step_by(10) {
        history.take(&batch(1, 9, now), at(now));
        assert_eq!(grown(&history), [4.0]);
    }
    assert_eq!(history.report().series, 0);
    history.take(&exceptions(9, 4_010, 1.0), at(4_010));
    assert_eq!(grown(&history), [5.0]);
    assert!(history.grown(&Selector::of("others"), &[]).is_empty());
}

#[test]
fn of_what_is_gone_only_counters_of_instances_are_kept_and_they_are_part_of_its_size() {
    let exceptions = |instance| Labels::of([("vertex", "v"), ("instance", instance)]);
    let told = [
        (catalogue::LINK_BYTES_IN.name, Labels::of([("peer", "2")])),
        (catalogue::CPU.name, Labels::none()),
        (catalogue::EXCEPTIONS.name, exceptions("0")),
        (catalogue::EXCEPTIONS.name, exceptions("1")),
    ];
    for most_series in [100, 3] {
        let config = HistoryConfig {
            most_series,
            ..HistoryConfig::default()
        };
        let mut history = History::new(config, at(0));
        let mut batch = batch(1, 0, 1);
        for (name, labels) in &told {
            batch.push(*name, labels, Value::Counter(4.0));
        }
        history.take(&batch, at(1));
        assert_eq!(history.report().is_folded, most_series == 3);
        for now in (10..=8_000).step_by(10) {
            history.take(&Batch::new(process(2), at(0), at(now)), at(now));
        }
        let report = history.report();
        assert_eq!((report.series, report.numbers), (0, 0));
        let grown = |name| {
            let grown = history.grown(&Selector::of(name), &[]);
            grown.iter().map(|one| one.value).sum::<f64>()
        };
        let names = [0, 1, 2].map(|index| told[index].0);
        assert_eq!(names.map(grown), [0.0, 0.0, 8.0]);
        let processes = history.processes.len() * size_of::<Process>();
        assert_eq!(report.bytes - processes, RemovedTotal::BYTES + 32);
    }
}

#[test]
fn a_histogram_is_as_many_series_as_it_has_lines() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    let mut latency = Buckets::new(&[0.1]);
    for now in 1..5 {
        latency.observe(0.05);
        latency.observe(0.5);
        let mut batch = batch(1, 0, now);
        batch.push("took", &Labels::none(), Value::Histogram(latency.clone()));
        history.take(&batch, at(now));
    }
    let quick = Selector::of("took_bucket").with("le", "0.1");
    assert_eq!(history.latest(&quick)[0].value, 4.0);
    let (all, time) = (Selector::of("took"), (at(0), at(9)));
    let quarter = history.quantile(0.25, &all, &["job"], Resolution::Seconds, time);
    assert_eq!(quarter.len(), 1);
    assert_eq!(quarter[0].labels, Labels::of([("job", "a")]));
    // Half of the first bucket is below its middle; the second that begins isn't over.
    assert!(
        quarter[0]
            .points
            .iter()
            .all(|point| (point.value - 0.05).abs() < 1e-9)
    );
    assert_eq!(quarter[0].points.len(), 4);
    let names: Vec<String> = history.names().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["took_bucket", "took_count", "took_sum"]);
}

#[test]
fn too_many_series_that_belong_to_no_instance_are_left_out_and_counted() {
    let config = HistoryConfig {
        most_series: 10,
        most_numbers: 15,
        ..HistoryConfig::default()
    };
    let mut history = History::new(config, at(0));
    let mut batch = batch(1, 0, 1);
    for user in 0..100 {
        let labels = Labels::of([("user", user.to_string())]);
        batch.push("clicks", &labels, Value::Gauge(1.0));
    }
    history.take(&batch, at(1));
    let report = history.report();
    assert_eq!((report.series, report.left_out), (10, 90));
}

/// 20,000 instances in 1,000 containers, with the samples that workers report.
#[test]
fn a_job_of_twenty_thousand_instances_fits() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    for now in 1..=2 {
        for container in 0..1_000 {
            let mut batch = batch(container, 0, now);
            ProcessReading::default().write(&mut batch);
            for instance in 0..20 {
                let counters = MetricsSnapshot {
                    records_in: 10 * now as u64,
                    watermark: at(now),
                    ..MetricsSnapshot::default()
                };
                let vertex = format!("v{}", instance % 10);
                let index = container * 2 + instance / 10;
                InstanceCounters::new(vertex, index, counters).write(&mut batch);
            }
            history.take(&batch, at(now));
        }
    }
    let report = history.report();
    assert!(report.is_folded, "{report:?}");
    assert_eq!(report.left_out, 0, "{report:?}");
    assert!(report.bytes < 64 << 20, "{report:?}");
    let latest = history.latest(&Selector::of("ardea_records_in_total"));
    assert_eq!(latest.len(), 10);
    assert!(
        latest.iter().all(|vertex| vertex.value == 2_000.0 * 20.0),
        "{latest:?}"
    );
}

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

#[test]
fn a_rate_is_the_same_however_often_metrics_are_told() {
    for every in [100i64, 1_000, 1_500, 2_000, 5_000, 60_000] {
        let mut history = History::new(HistoryConfig::default(), at(1_000));
        // 600 a second, reported at no round time; the first batch arrives at most a second after
        // the start.
        let began = 1_000_300;
        let mut now = began + every.min(1_000);
        let mut told = now;
        let end = began + 180_000;
        let selector = Selector::of("made_total");
        let mut looked = began + 3_000;
        while looked < end {
            while now <= looked {
                let batch = Batch::new(process(1), at_ms(began), at_ms(now));
                let mut batch = batch.every(Duration::from_millis(every as u64));
                let made = (now - began) as f64 * 0.6;
                let labels = Labels::of([("vertex", "v"), ("instance", "0")]);
                batch.push("made_total", &labels, Value::Counter(made.round()));
                history.take(&batch, at_ms(now));
                told = now;
                now += every;
            }
            let recent = history.recent(&selector, Duration::from_secs(5), at_ms(looked));
            let is_known = told > began + 2_000;
            assert!(!is_known || recent.len() == 1, "{every} ms, at {looked}");
            for point in recent.iter().flat_map(|curve| &curve.points).skip(1) {
                assert!((point.value - 600.0).abs() <= 1.0, "{every}: {point:?}");
            }
            looked += 730;
        }
        let tens = history.range(&selector, Resolution::TenSeconds, at(0), at(2_000));
        let tens = &tens[0].points;
        assert!(tens.len() >= 12, "{every}: {tens:?}");
        for point in &tens[1..] {
            assert!((point.value - 6_000.0).abs() <= 1.0, "{every}: {point:?}");
        }
        // A process that has ended has no rate.
        let later = at_ms(told + every + 6_000);
        let recent = history.recent(&selector, Duration::from_secs(5), later);
        assert_eq!(recent, [], "{every}");
    }
}

#[test]
fn who_tells_seldom_is_not_taken_for_silent() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    for now in 0..240 {
        if now % 60 == 1 {
            let mut batch = batch(1, 0, now).every(Duration::from_secs(60));
            batch.push("held", &Labels::none(), Value::Gauge(7.0));
            history.take(&batch, at(now));
        }
        // Others advance the time.
        history.take(&batch(2, 0, now), at(now));
        if now > 1 {
            assert_eq!(history.latest(&Selector::of("held")).len(), 1, "{now}");
        }
    }
}

#[test]
fn a_sum_has_no_second_that_only_some_have_told() {
    let mut history = History::new(HistoryConfig::default(), at(0));
    for now in 1..=20 {
        history.take(&counter(1, 0, 0, now, 10.0 * now as f64), at(now));
        if now % 5 == 0 {
            let seldom = counter(2, 1, 0, now, 10.0 * now as f64);
            history.take(&seldom.every(Duration::from_secs(5)), at(now));
        }
    }
    history.take(&counter(1, 0, 0, 23, 230.0), at(23));
    let made = Selector::of("made_total");
    let curves = history.sum_by(&made, &["vertex"], Resolution::Seconds, at(0), at(99));
    let values: Vec<f64> = curves[0].points.iter().map(|point| point.value).collect();
    assert_eq!(values, [20.0; 20]);
}

proptest! {
    /// For any restarts, moves and folding, the counted total is the produced total.
    #[test]
    fn nothing_made_is_lost_or_counted_twice(
        most_series in 1usize..8,
        steps in prop::collection::vec((0u32..3, 0u32..3, 1u32..100, 0u8..10), 1..100)
    ) {
        let config = HistoryConfig { most_series, ..HistoryConfig::default() };
        let mut history = History::new(config, at(0));
        let mut started = [0i64; 3];
        let mut made: HashMap<(u32, u32), f64> = HashMap::default();
        let mut sum = 0.0;
        for (step, (container, instance, more, chance)) in steps.into_iter().enumerate() {
            let now = step as i64 + 1;
            if chance == 0 {
                started[container as usize] = now;
                made.retain(|(of, _), _| *of != container);
            }
            let own = made.entry((container, instance)).or_default();
            *own += f64::from(more);
            sum += f64::from(more);
            let batch = counter(container, instance, started[container as usize], now, *own);
            history.take(&batch, at(now));
        }
        prop_assume!(history.report().left_out == 0);
        let cells = (0..=history.now.div_euclid(10)).flat_map(|slot| {
            let series = history.series.iter().flatten();
            series.filter_map(move |series| series.ring.get(Resolution::TenSeconds, slot))
        });
        // Integers are distributed as integers.
        prop_assert_eq!(cells.sum::<f64>(), sum);
        let all = Selector::of("made_total");
        prop_assert_eq!(history.grown(&all, &[])[0].value, sum);
        // When no more is reported, users see all of it.
        let over = history.now + 20;
        history.take(&batch(9, 0, over), at(over));
        let curves = history.sum_by(&all, &[], Resolution::TenSeconds, at(0), at(1_000));
        let shown = curves.iter().flat_map(|curve| &curve.points).map(|point| point.value);
        prop_assert_eq!(shown.sum::<f64>(), sum);
    }
}
