//! The events, the job, and its expected output.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::files;
use ardea_core::{Clock, Instance, Parallelism, Result, Source, Timestamp, Unbounded, supplier};
use ardea_operators::WindowResult;
use ardea_pipeline::{Pipeline, Window};
use serde::{Deserialize, Serialize};

use crate::cluster::BenchJob;
use crate::load::due;
use crate::long_running::accounts::as_many;
use crate::long_running::published::Verdict;
use crate::long_running::source::{SignalledSourceP, Task};
use crate::long_running::watch::ResultObserver;
use crate::rows::EventRows;

/// The number of advertisements of a campaign.
const ADS: u64 = 10;

/// The number of event types, one of which is a view.
const KINDS: u64 = 3;

/// Event time between watermarks.
const STRIDE: Duration = Duration::from_millis(10);

/// A user's interaction with an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AdEvent {
    ad: u64,
    /// The type of the event; zero for a view.
    kind: u8,
}

/// The events of `campaigns` campaigns.
#[derive(Clone, Copy, Debug)]
struct AdEvents {
    campaigns: u64,
    instance: Instance,
}

impl AdEvents {
    fn event(&self, index: u64) -> AdEvent {
        let instance = u64::from(self.instance.index) << 40;
        let mixed = (index ^ instance).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let random = mixed >> 32;
        AdEvent {
            ad: random % (self.campaigns * ADS),
            kind: (mixed % (1 << 31) % KINDS) as u8,
        }
    }
}

impl EventRows for AdEvents {
    type Row = AdEvent;

    fn of_instance(&self, instance: Instance) -> Self {
        AdEvents { instance, ..*self }
    }

    fn fill(
        &self,
        run: Range<u64>,
        _: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<AdEvent>,
        times: &mut Vec<Timestamp>,
    ) {
        rows.extend(run.clone().map(|index| self.event(index)));
        times.extend(run.map(time));
    }
}

/// The parameters of a run, sent to each container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AdsLoad {
    pub(crate) campaigns: u64,
    /// Events a second over all sources.
    pub(crate) rate: u64,
    /// The time for which events are due.
    pub(crate) long: Duration,
    pub(crate) window: Duration,
    /// The number of sources, and of counting instances.
    pub(crate) instances: u32,
    /// The folder in which the job publishes.
    pub(crate) out: PathBuf,
}

/// Views by campaign and end of window, in milliseconds.
type Views = BTreeMap<(u64, i64), u64>;

impl AdsLoad {
    fn task(&self) -> Task {
        Task::at_rate(self.rate, self.long, STRIDE)
    }

    fn events(&self) -> AdEvents {
        AdEvents {
            campaigns: self.campaigns,
            instance: Instance::ONLY,
        }
    }

    /// Returns the campaign of each advertisement.
    fn table(&self) -> Arc<[u64]> {
        (0..self.campaigns * ADS).map(|ad| ad / ADS).collect()
    }

    /// Returns the job of a container, and the handle by which the bench controls it.
    pub(crate) fn job(&self) -> Result<BenchJob> {
        let watch = ResultObserver::new(true)?;
        let (events, task, many) = (self.events(), self.task(), as_many(self.instances));
        let (reads, sees) = (Arc::clone(&watch), Arc::clone(&watch));
        let make = supplier(move || SignalledSourceP::new(events, task, Arc::clone(&reads)));
        let source = Source::<AdEvent, Unbounded>::new("events", make).parallelism(many);
        let (table, clock) = (self.table(), Clock::system());
        let p = Pipeline::new("ysb");
        let counted = p
            .read_from(source)
            .with_source_time()
            .filter(|event| event.kind == 0)
            .map(move |event| table[event.ad as usize])
            .key_by(|campaign| *campaign)
            .window(Window::tumbling(self.window))
            .aggregate("views", count())
            .parallelism(many);
        let told = counted.rebalance().parallelism(Parallelism::ONE).map(
            move |views: WindowResult<u64, u64>| {
                sees.record_results(clock.wall(), [views.end].into_iter());
                format!("{} {} {}", views.key, views.end.as_millis(), views.value)
            },
        );
        let sink = files::write_lines(self.out.join("views.txt")).rotate_with_epochs();
        told.write_to(sink.build());
        Ok((Box::new(p), watch))
    }

    /// Returns the expected output of a job that starts at `start`.
    fn expected(&self, start: Timestamp) -> Views {
        let (task, table) = (self.task(), self.table());
        let window = (self.window.as_micros() as i64).max(1);
        let mut views = Views::new();
        for index in 0..self.instances {
            let instance = Instance {
                index,
                parallelism: self.instances,
            };
            let (own, rows) = (
                task.of_instance(instance),
                self.events().of_instance(instance),
            );
            for index in 0..own.count {
                let event = rows.event(index);
                if event.kind == 0 {
                    let time = due(start, own.rate, index).as_micros();
                    let end = (time.div_euclid(window) + 1) * window / 1_000;
                    *views.entry((table[event.ad as usize], end)).or_default() += 1;
                }
            }
        }
        views
    }

    /// Compares the output with the expected one; `published` has triples of campaign, end of
    /// window and views.
    pub(crate) fn verdict(&self, start: Timestamp, published: &[(u64, i64, u64)]) -> Verdict {
        let mut expected = self.expected(start);
        let mut verdict = Verdict::default();
        for (campaign, end, views) in published {
            // All views of a repeated window are duplicates.
            let wanted = expected.remove(&(*campaign, *end)).unwrap_or(0);
            verdict.lost += wanted.saturating_sub(*views);
            verdict.duplicated += views.saturating_sub(wanted);
        }
        verdict.lost += expected.values().sum::<u64>();
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> AdsLoad {
        AdsLoad {
            campaigns: 7,
            rate: 1_000,
            long: Duration::from_secs(3),
            window: Duration::from_secs(1),
            instances: 2,
            out: PathBuf::new(),
        }
    }

    #[test]
    fn one_event_in_three_is_a_view_and_all_campaigns_have_some() {
        let views = load().expected(Timestamp::from_secs(10));
        let sum: u64 = views.values().sum();
        assert!((900..1_100).contains(&sum), "{sum}");
        assert_eq!(views.len(), 7 * 3);
        let ends: Vec<i64> = views.keys().map(|(_, end)| *end).collect();
        assert!(
            ends.iter()
                .all(|end| [11_000, 12_000, 13_000].contains(end))
        );
    }

    #[test]
    fn views_that_are_missing_and_those_that_are_too_many_are_counted() {
        let (load, start) = (load(), Timestamp::from_secs(10));
        let whole: Vec<(u64, i64, u64)> = load
            .expected(start)
            .into_iter()
            .map(|((campaign, end), views)| (campaign, end, views))
            .collect();
        assert_eq!(load.verdict(start, &whole), Verdict::default());
        let mut wrong = whole.clone();
        wrong[0].2 -= 1;
        wrong[1].2 += 2;
        wrong.push(whole[2]);
        let verdict = load.verdict(start, &wrong);
        assert_eq!((verdict.lost, verdict.duplicated), (1, 2 + whole[2].2));
        let missing = load.verdict(start, &whole[1..]);
        assert_eq!((missing.lost, missing.duplicated), (whole[0].2, 0));
    }
}
