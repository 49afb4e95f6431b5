//! One run of a topology on a layout.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_rest::TrafficView;
use serde_json::{Value, json};

use super::params::{HostLayout, LayoutPacking, LayoutTransport, TopologyKind, TopologyParams};
use super::staged_job::StagedLoad;
use crate::cluster::{DistributedRun, HostNamespaces, Kind, Load, Sample, TestCluster, merged};
use crate::noise;
use crate::report::{Field, Report, Unit, fields, latency, machine_of, rounded, seconds};

/// The number of windows in a row that must agree before instances move.
const WINDOWS: u32 = 3;

/// A topology on a layout, and the rate of its messages.
pub(super) struct LayoutRun<'a> {
    pub(super) topology: TopologyKind,
    pub(super) layout: HostLayout,
    pub(super) transport: LayoutTransport,
    pub(super) packing: LayoutPacking,
    /// Messages a second, over all spouts.
    pub(super) rate: u64,
    /// The time at about which instances move by the measured traffic.
    pub(super) reassign: Option<Duration>,
    pub(super) params: &'a TopologyParams,
}

/// The results of a run.
pub(super) struct LayoutResult {
    pub(super) report: Report,
    /// The mean latency of the messages that were due in each second, in milliseconds.
    pub(super) seconds: Vec<(f64, f64)>,
    /// The seconds after the start at which instances moved.
    pub(super) moved_at: Vec<f64>,
}

impl LayoutRun<'_> {
    /// Returns the parameters of the run as fields.
    fn fields(&self) -> Vec<Field> {
        let mut fields = fields!(
            self; topology = self.topology.name(), layout = self.layout.to_string(),
            hosts = self.layout.hosts, workers = self.layout.workers,
            transport = self.transport.name(), packing = self.packing.name(), rate, reassign
        );
        fields.extend(
            fields!(self.params; parallelism, layers, bytes, delay, latency, threads, duration, warmup),
        );
        fields
    }

    fn settings(&self) -> Vec<String> {
        let params = self.params;
        let mut settings = vec![
            format!("job.containers={}", self.layout.workers),
            format!("threads={}", params.threads),
            format!("latency={}", format_duration(params.latency)),
            "pin=off".into(),
            "cluster.scheduler=hosts".into(),
            format!("cluster.packing={}", self.packing.name()),
            format!("worker.transport={}", self.transport.name()),
        ];
        if let Some(at) = self.reassign {
            let window = Duration::from_secs((at / WINDOWS).as_secs().max(1));
            settings.extend([
                "placement.mode=apply".into(),
                format!("placement.window={}", format_duration(window)),
                "placement.cooldown=1h".into(),
                "placement.move_cost=0".into(),
            ]);
        }
        settings
    }

    /// Returns the result of a run that cannot be made, with the reason.
    pub(super) fn skipped(&self, why: &str) -> LayoutResult {
        LayoutResult {
            report: Report {
                bench: "layouts",
                parameters: self.fields(),
                figures: vec![("skipped", json!(why))],
            },
            seconds: Vec::new(),
            moved_at: Vec::new(),
        }
    }

    /// Runs the topology. Latencies are complete with `is_whole`: all messages are awaited.
    pub(super) fn measure(
        &self,
        bench: &'static str,
        namespaces: Option<&HostNamespaces>,
        is_whole: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<LayoutResult> {
        let params = self.params;
        let noise = noise::measure_noise(params.threads, Duration::from_secs(1))?;
        let load = StagedLoad::of(self.topology, params, self.rate);
        let namespaces = namespaces.filter(|_| self.layout.hosts > 1);
        let hosts = self.layout.hosts as usize;
        let cluster = TestCluster::on(hosts, namespaces, &self.settings())?;
        let given = load.clone();
        let run = DistributedRun::start_on(cluster, bench, self.layout.workers, |socket| {
            Load::new(socket, Kind::Staged(given))
        })?;
        let began_ms = now_ms();
        run.warm_up(params.warmup, params.duration, progress);
        let measured = run.measure(params.duration)?;
        let traffic = run.traffic()?;
        let moved = run.events("instances move")?;
        let last = match is_whole {
            true => run.end()?,
            false => run.end_now()?,
        };
        let spent = measured.spent();
        let counted = measured.count("counted") as f64;
        let mut figures = vec![
            ("duration_s", json!(seconds(spent.wall))),
            (
                "tuples_per_s",
                json!((counted / spent.wall.as_secs_f64()).round()),
            ),
            ("offered_per_s", json!(self.rate * load.tuples_of_message())),
        ];
        let totals = Totals(&last);
        figures.push(("mean_ms", json!(totals.mean_ms("whole"))));
        figures.extend(latency(&merged(&last)?, Unit::Millis));
        figures.push(("source_ms", json!(totals.mean_ms("source"))));
        let stages = load.stages().enumerate().map(|(index, name)| {
            let mean = totals.mean_ms(&format!("between_{index}"));
            (name.to_string(), json!(mean))
        });
        figures.push(("stage_ms", Value::Object(stages.collect())));
        figures.extend(shares(&traffic, self.layout));
        if is_whole {
            let lost = totals.sum("emitted").abs_diff(totals.sum("counted"));
            figures.push(("lost", json!(lost)));
        }
        let peaks: Option<Vec<f64>> = last.iter().map(|sample| sample.rss_mb).collect();
        let rss_mb = peaks.map(|peaks| rounded(peaks.iter().sum(), 10.0));
        figures.extend(machine_of(spent, rss_mb, noise));
        let after = |at: u64| at.saturating_sub(began_ms) as f64 / 1e3;
        let moved_at: Vec<f64> = moved.into_iter().map(after).collect();
        let by_second = totals.seconds();
        if self.reassign.is_some() {
            figures.extend(around_move(&by_second, moved_at.first().copied()));
        }
        Ok(LayoutResult {
            seconds: by_second,
            moved_at,
            report: Report {
                bench,
                parameters: self.fields(),
                figures,
            },
        })
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Returns the second at which instances moved, the mean latency of the seconds before and after,
/// and that of the worst second from then on. All are `null` if none moved.
fn around_move(seconds: &[(f64, f64)], moved_at: Option<f64>) -> [Field; 4] {
    let moved_at_second = moved_at.map(f64::floor);
    let mean = |is_in: &dyn Fn(f64, f64) -> bool| {
        let moved = moved_at_second?;
        let inside = seconds.iter().filter(|(second, _)| is_in(*second, moved));
        let values: Vec<f64> = inside.map(|(_, mean)| *mean).collect();
        let sum: f64 = values.iter().sum();
        (!values.is_empty()).then(|| rounded(sum / values.len() as f64, 1e4))
    };
    let later = seconds
        .iter()
        .filter(|(second, _)| moved_at_second.is_some_and(|moved| *second >= moved));
    let worst = later.map(|(_, mean)| *mean).max_by(f64::total_cmp);
    [
        ("moved_at_s", json!(moved_at)),
        (
            "before_move_ms",
            json!(mean(&|second, moved| second < moved)),
        ),
        (
            "after_move_ms",
            json!(mean(&|second, moved| second > moved + 1.0)),
        ),
        ("worst_second_ms", json!(worst)),
    ]
}

/// Returns the shares of the traffic between workers that stay on their host: measured, and
/// expected if each worker sends as much to each other one.
fn shares(traffic: &TrafficView, layout: HostLayout) -> Vec<Field> {
    let percent = |share: f64| rounded(share * 100.0, 1e2);
    let measured = traffic.inside_hosts.zip(traffic.inside_containers);
    let between = measured.and_then(|(hosts, containers)| {
        (containers < 1.0).then(|| (hosts - containers) / (1.0 - containers))
    });
    vec![
        (
            "inside_workers_percent",
            json!(traffic.inside_containers.map(percent)),
        ),
        ("inside_hosts_percent", json!(between.map(percent))),
        (
            "expected_inside_hosts_percent",
            json!(layout.inside_hosts().map(percent)),
        ),
    ]
}

/// The sums over the samples of all workers.
struct Totals<'a>(&'a [Sample]);

impl Totals<'_> {
    fn sum(&self, name: &str) -> u64 {
        self.0.iter().map(|sample| sample.count(name)).sum()
    }

    fn mean_ms(&self, name: &str) -> Option<f64> {
        let count = self.sum(&format!("{name}_count"));
        let nanos = self.sum(&format!("{name}_ns"));
        (count > 0).then(|| rounded(nanos as f64 / count as f64 / 1e6, 1e4))
    }

    /// Returns the seconds with messages, and the mean latency of each in milliseconds.
    fn seconds(&self) -> Vec<(f64, f64)> {
        let names = self.0.iter().flat_map(|sample| sample.numbers.keys());
        let seconds = names.filter_map(|name| {
            let second = name.strip_prefix("second_")?.strip_suffix("_count")?;
            second.parse::<u32>().ok()
        });
        let seconds: BTreeMap<u32, ()> = seconds.map(|second| (second, ())).collect();
        let means = seconds.into_keys().filter_map(|second| {
            let mean = self.mean_ms(&format!("second_{second}"))?;
            Some((f64::from(second), mean))
        });
        means.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_inside_hosts_is_of_the_traffic_between_workers() {
        let layout = "2N4W".parse().unwrap();
        let traffic = TrafficView {
            inside_containers: Some(0.25),
            inside_hosts: Some(0.5),
            ..TrafficView::default()
        };
        let told = shares(&traffic, layout);
        assert_eq!(told[1], ("inside_hosts_percent", json!(33.33)));
        assert_eq!(told[2], ("expected_inside_hosts_percent", json!(33.33)));
        let none = shares(&TrafficView::default(), layout);
        assert!(none[0].1.is_null() && none[1].1.is_null());
    }

    #[test]
    fn latencies_before_and_after_a_move_leave_out_its_seconds() {
        let seconds = [(0.0, 4.0), (1.0, 6.0), (2.0, 90.0), (3.0, 9.0), (4.0, 2.0)];
        let figures = around_move(&seconds, Some(2.5)).map(|(_, value)| value);
        assert_eq!(figures, [json!(2.5), json!(5.0), json!(2.0), json!(90.0)]);
        let none = around_move(&seconds, None);
        assert!(none.iter().all(|(_, value)| value.is_null()));
    }

    #[test]
    fn means_are_over_all_workers() {
        let sample = |numbers: &[(&str, u64)]| Sample {
            numbers: numbers
                .iter()
                .map(|(name, number)| (name.to_string(), *number))
                .collect(),
            ..Sample::default()
        };
        let samples = [
            sample(&[("second_3_ns", 1_000_000), ("second_3_count", 1)]),
            sample(&[("second_3_ns", 5_000_000), ("second_3_count", 2)]),
        ];
        assert_eq!(Totals(&samples).seconds(), [(3.0, 2.0)]);
        assert_eq!(Totals(&samples).mean_ms("whole"), None);
    }
}
