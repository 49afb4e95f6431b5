//! Cost of an idle job, and its wake-up latency.

mod push;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ardea_connectors::for_each::for_each;
use ardea_core::{Clock, Error, ErrorCode, Result, Source, Unbounded, supplier};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig, allowed_cores, pin_to};
use ardea_pipeline::Pipeline;
use hdrhistogram::Histogram;
use serde_json::json;

use crate::bounds::{check_duration, check_positive};
use crate::flags::time;
use crate::report::{Field, Report, Unit, fields, latency, machine, rounded, seconds};
use crate::usage::{Spent, Stopwatch, reset_peak};
use crate::{nanoseconds, noise};

use push::{PushP, PushQueue};

/// The parameters of `ardea bench wakeup`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct WakeupParams {
    /// Mean time between two records; each gap is 0.5 to 1.5 times as long
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20ms")]
    pub gap: Duration,
    /// Duration of each of the two measurements: of idleness, and of wakeups
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub warmup: Duration,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub spin: Duration,
}

impl WakeupParams {
    fn check(&self) -> Result<()> {
        check_duration(self.duration)?;
        check_positive("--gap", self.gap)
    }

    fn fields(&self) -> Vec<Field> {
        fields!(self; gap, duration, warmup, spin)
    }
}

/// Runs the benchmark; `progress` receives status texts.
///
/// A job of one source and one step runs on one thread. First there are no records: the CPU time of
/// the process is the cost of an idle job. Then another thread, on another core if there is one,
/// pushes single records at long gaps and wakes the source. Latency counts from just before the
/// push until the job's function receives the record.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; the job's own failure.
pub fn run(params: &WakeupParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, params.duration)?;
    let node = Node::start(NodeConfig {
        spin: params.spin,
        ..NodeConfig::with_threads(1)
    })?;
    let door = Arc::new(PushQueue::default());
    let waits = Waits::new()?;
    let job = start(&node, &door, &waits)?;
    progress("warming up");
    push_for(params.warmup, params.gap, &door, node.clock())?;
    progress("measuring an idle job");
    let idle = Stopwatch::begin();
    thread::sleep(params.duration);
    let idle = idle.spent();
    waits.clear();
    progress("measuring wake-ups");
    let waking = Stopwatch::begin();
    let pushed = push_for(params.duration, params.gap, &door, node.clock())?;
    let waking = waking.spent();
    door.close();
    job.join()?;
    let mut figures = cost(pushed, idle, waking);
    figures.extend(latency(&waits.nanos(), Unit::Micros));
    figures.extend(machine(waking, noise));
    Ok(Report {
        bench: "wakeup",
        parameters: params.fields(),
        figures,
    })
}

fn start(node: &Node, door: &Arc<PushQueue>, waits: &Waits) -> Result<JobHandle> {
    let p = Pipeline::new("wakeup");
    let (door, waits, clock) = (Arc::clone(door), waits.clone(), node.clock().clone());
    let source = supplier(move || PushP::new(Arc::clone(&door)));
    p.read_from(Source::<Duration, Unbounded>::new("push", source))
        .write_to(for_each(move |pushed_at: Duration| {
            waits.record(clock.now().saturating_sub(pushed_at));
        }));
    p.submit(node, JobConfig::default())
}

/// Pushes single records for `duration`, from the core that the job is least likely to use. Returns
/// their number.
fn push_for(
    duration: Duration,
    gap: Duration,
    door: &Arc<PushQueue>,
    clock: &Clock,
) -> Result<u64> {
    let (door, clock) = (Arc::clone(door), clock.clone());
    let pusher = thread::spawn(move || {
        if let Some(&core) = allowed_cores().first() {
            // Without permission to pin threads, the kernel chooses a core.
            let _ = pin_to(core);
        }
        let end = clock.now() + duration;
        let mut pushed = 0;
        loop {
            let pause = uneven(gap, pushed);
            if clock.now() + pause >= end {
                return pushed;
            }
            thread::sleep(pause);
            door.push(clock.now());
            pushed += 1;
        }
    });
    pusher
        .join()
        .map_err(|_| Error::new(ErrorCode::Internal, "the thread that pushes records failed"))
}

/// Returns a gap between a half and one and a half of `gap`, evenly distributed (a Weyl sequence of
/// the golden ratio). So the pushes do not synchronize with periodic work of the job.
fn uneven(gap: Duration, index: u64) -> Duration {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let fraction = index.wrapping_mul(GOLDEN) as f64 / u64::MAX as f64;
    gap.mul_f64(0.5 + fraction)
}

fn cost(pushed: u64, idle: Spent, waking: Spent) -> Vec<Field> {
    let idle_share = idle.cpu.as_secs_f64() / idle.wall.as_secs_f64();
    // Excludes the CPU time of an idle job.
    let for_waking = (waking.cpu.as_secs_f64() - idle_share * waking.wall.as_secs_f64()).max(0.0);
    let each = (pushed > 0).then(|| rounded(for_waking * 1e6 / pushed as f64, 1e1));
    vec![
        ("duration_s", json!(seconds(waking.wall))),
        ("events", json!(pushed)),
        ("idle_cpu_percent", json!(rounded(idle_share * 100.0, 1e3))),
        ("cpu_us_per_event", json!(each)),
    ]
}

/// The waiting times of records, in nanoseconds.
#[derive(Clone)]
struct Waits(Arc<Mutex<Histogram<u64>>>);

impl Waits {
    fn new() -> Result<Self> {
        let nanos = nanoseconds()?;
        Ok(Waits(Arc::new(Mutex::new(nanos))))
    }

    /// Records a waiting time. The lock is cheap: there is one record at a time.
    fn record(&self, wait: Duration) {
        self.nanos().saturating_record(wait.as_nanos() as u64);
    }

    fn clear(&self) {
        self.nanos().reset();
    }

    fn nanos(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_push_is_measured_and_idleness_has_a_price() {
        let params = WakeupParams {
            gap: Duration::from_millis(4),
            duration: Duration::from_millis(200),
            warmup: Duration::from_millis(20),
            ..WakeupParams::default()
        };
        let report = run(&params, &mut |_| {}).unwrap();
        assert_eq!(report.figure("latencies"), report.figure("events"));
        assert!(report.figure("idle_cpu_percent").is_number(), "{report:?}");
    }

    #[test]
    fn gaps_vary_around_their_mean() {
        let gap = Duration::from_millis(10);
        let gaps: Vec<Duration> = (0..1_000).map(|index| uneven(gap, index)).collect();
        let within = Duration::from_millis(5)..=Duration::from_millis(15);
        assert!(gaps.iter().all(|gap| within.contains(gap)));
        let mean = gaps.iter().sum::<Duration>() / 1_000;
        assert!(mean.abs_diff(gap) < Duration::from_micros(100), "{mean:?}");
    }

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut WakeupParams);
        let wrong: [Set; 2] = [
            |params| params.gap = Duration::ZERO,
            |params| params.duration = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = WakeupParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
