//! The job, and its expected output.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::files;
use ardea_core::{Clock, Instance, Parallelism, Result, Source, Timestamp, Unbounded, supplier};
use ardea_operators::WindowResult;
use ardea_pipeline::{Combine, Pipeline, Stream, Timed, WatermarkPolicy, Window};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::events::{ADS, AdEvents};
use super::json::{AdView, CYCLE, CampaignTable, JsonAd, JsonAds};
#[cfg(all(feature = "kafka", feature = "redis"))]
use super::servers;
use crate::cluster::BenchJob;
use crate::load::due;
use crate::long_running::accounts::as_many;
use crate::long_running::published::Verdict;
use crate::long_running::source::{SignalledSourceP, Task};
use crate::long_running::watch::ResultObserver;
use crate::rows::EventRows;

/// Event time between watermarks.
const STRIDE: Duration = Duration::from_millis(10);

/// The form of the events.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum YsbInput {
    /// JSON texts, generated ahead in memory
    Json,
    /// Rows, generated in place
    Rows,
}

impl YsbInput {
    /// Returns the value of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            YsbInput::Json => "json",
            YsbInput::Rows => "rows",
        }
    }
}

/// The place at which views are combined.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum YsbCombine {
    /// Chosen by the engine
    Auto,
    /// Before the exchange by campaign
    On,
    /// After the exchange by campaign
    Off,
}

impl YsbCombine {
    /// Returns the value of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            YsbCombine::Auto => "auto",
            YsbCombine::On => "on",
            YsbCombine::Off => "off",
        }
    }

    fn combine(self) -> Combine {
        match self {
            YsbCombine::Auto => Combine::Auto,
            YsbCombine::On => Combine::BeforeExchange,
            YsbCombine::Off => Combine::AfterExchange,
        }
    }
}

/// A topic of Kafka.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KafkaTopic {
    pub(super) brokers: String,
    pub(super) name: String,
}

/// A hash in Redis.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RedisHash {
    pub(super) url: String,
    pub(super) key: String,
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
    pub(crate) input: YsbInput,
    pub(crate) combine: YsbCombine,
    /// The topic with the events, which are JSON texts; `None` to generate them in the job.
    pub(crate) kafka: Option<KafkaTopic>,
    /// The hash for the results; `None` to write them to files.
    pub(crate) redis: Option<RedisHash>,
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
        let cycle = match self.input {
            YsbInput::Json => Some(CYCLE),
            YsbInput::Rows => None,
        };
        AdEvents::new(self.campaigns, cycle)
    }

    /// Returns the campaign of each advertisement.
    fn table(&self) -> Arc<[u64]> {
        (0..self.campaigns * ADS).map(|ad| ad / ADS).collect()
    }

    /// Returns the job of a container, and the handle by which the bench controls it.
    pub(crate) fn job(&self) -> Result<BenchJob> {
        let (pipeline, watch) = self.pipeline()?;
        Ok((Box::new(pipeline), watch))
    }

    /// Returns the job and its observer.
    pub(super) fn pipeline(&self) -> Result<(Pipeline, Arc<ResultObserver>)> {
        let watch = ResultObserver::new(true)?;
        let p = Pipeline::new("ysb");
        let campaigns = match (&self.kafka, self.input) {
            #[cfg(all(feature = "kafka", feature = "redis"))]
            (Some(topic), _) => servers::campaigns(self, &p, topic, &watch),
            (_, YsbInput::Json) => self.campaigns_of_json(&p, &watch),
            (_, YsbInput::Rows) => self.campaigns_of_rows(&p, &watch),
        };
        let (sees, clock) = (Arc::clone(&watch), Clock::system());
        let counted = campaigns
            .key_by(|campaign| *campaign)
            .combine(self.combine.combine())
            .window(Window::tumbling(self.window))
            .aggregate("views", count())
            .parallelism(as_many(self.instances));
        let seen = counted.rebalance().parallelism(Parallelism::ONE).map(
            move |views: WindowResult<u64, u64>| {
                sees.record_results(clock.wall(), [views.end].into_iter());
                views
            },
        );
        #[cfg(all(feature = "kafka", feature = "redis"))]
        if let Some(hash) = &self.redis {
            servers::write_results(seen, hash);
            return Ok((p, watch));
        }
        let told =
            seen.map(|views| format!("{} {} {}", views.key, views.end.as_millis(), views.value));
        let sink = files::write_lines(self.out.join("views.txt")).rotate_with_epochs();
        told.write_to(sink.build());
        Ok((p, watch))
    }

    /// Returns a source that emits events when they are due.
    pub(super) fn source<R: EventRows>(
        &self,
        events: R,
        watch: &Arc<ResultObserver>,
    ) -> Source<R::Row, Unbounded> {
        let (task, reads) = (self.task(), Arc::clone(watch));
        let make =
            supplier(move || SignalledSourceP::new(events.clone(), task, Arc::clone(&reads)));
        Source::new("events", make).parallelism(as_many(self.instances))
    }

    /// Decodes the events, and returns the campaigns of the views among them.
    fn campaigns_of_json(
        &self,
        p: &Pipeline,
        watch: &Arc<ResultObserver>,
    ) -> Stream<u64, Unbounded, Timed> {
        let table = CampaignTable::new(self.campaigns);
        p.read_from(self.source(JsonAds::new(self.campaigns), watch))
            .filter_map(move |event: JsonAd| table.view(event.as_bytes()))
            .with_timestamps(
                |view: &AdView| view.time,
                WatermarkPolicy::in_order().stride(STRIDE),
            )
            .map(|view: AdView| view.campaign)
    }

    /// Returns the campaigns of the views among the events.
    fn campaigns_of_rows(
        &self,
        p: &Pipeline,
        watch: &Arc<ResultObserver>,
    ) -> Stream<u64, Unbounded, Timed> {
        let table = self.table();
        p.read_from(self.source(self.events(), watch))
            .with_source_time()
            .filter(|event| event.kind == 0)
            .map(move |event| table[event.ad as usize])
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
            input: YsbInput::Rows,
            combine: YsbCombine::Auto,
            kafka: None,
            redis: None,
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
