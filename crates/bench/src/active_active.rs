//! Latency seen by a reader of the file that two active-active replicas write, when one of them is
//! killed.

mod follow;
mod load;

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_config::parse_count;
use ardea_connectors::active_active::replicas;
use ardea_core::{Error, ErrorCode, Result};
use serde_json::json;

use crate::bounds::{check_duration, check_rate, refused};
use crate::copies::Copies;
use crate::flags::time;
use crate::noise;
use crate::report::{Field, Report, Unit, fields, latency, machine_of, rounded, seconds};
use crate::usage::Spent;

use follow::Follower;
use load::Load;
pub use load::run_replica;

/// Delay from starting the replicas until the first record is due.
const STARTS_WITHIN: Duration = Duration::from_secs(2);
/// Poll interval of the file with results.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Timeout for the last results.
const LAST_RESULTS_TIMEOUT: Duration = Duration::from_secs(10);

/// The parameters of `ardea bench active-active`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct ActiveActiveParams {
    /// Records per second
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100000")]
    pub rate: u64,
    /// Length of windows
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10ms")]
    pub window: Duration,
    /// Duration of the measurement; a replica is killed in the middle of it
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "3s")]
    pub warmup: Duration,
    /// Checkpoint interval of each replica
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub checkpoint_interval: Duration,
}

impl ActiveActiveParams {
    fn check(&self) -> Result<()> {
        check_rate(self.rate, "records")?;
        check_duration(self.duration)?;
        if self.window < Duration::from_millis(1) {
            return Err(refused("windows of less than 1ms are not measured")
                .hint("give --window at least 1ms"));
        }
        let records = u128::from(self.rate) * self.window.as_micros();
        if !records.is_multiple_of(1_000_000) {
            let what = "--rate and --window don't give each window the same number of records";
            return Err(refused(what).hint("give a --rate that does, such as 100000 with 10ms"));
        }
        Ok(())
    }

    fn fields(&self) -> Vec<Field> {
        fields!(self; rate, window, duration, warmup, checkpoint_interval)
    }
}

/// Runs a windowed job as two replicas, kills the replica that mostly wins, and measures the
/// latency of results before and after. `progress` receives status texts.
///
/// The latency of a result is the time from the end of its window until it can be read in the file.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; errors of starting and running the
/// replicas.
pub fn run(params: &ActiveActiveParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, params.duration)?;
    let folder = tempfile::Builder::new().prefix("ardea-bench-").tempdir();
    let folder = folder.map_err(|error| {
        Error::new(
            ErrorCode::WriteFailed,
            "cannot make a folder for the results",
        )
        .because(error)
        .hint("check the free space and permissions of the folder for temporary files (TMPDIR)")
    })?;
    progress("starting two replicas");
    let load = Load::new(params, folder.path(), now_micros() + micros(STARTS_WITHIN));
    let from = load.since + micros(params.warmup);
    let (middle, until) = (
        from + micros(params.duration / 2),
        from + micros(params.duration),
    );
    let arguments = (0..2).map(|number| load.to_argument(number));
    let mut running = Copies::start("active-active", "a replica of the job", arguments)?;
    let mut follower = Follower::new(&load, [from, middle, until])?;
    follow_until(&mut follower, &mut running, from)?;
    progress("measuring with both replicas");
    let (begun, cpu_before) = (Instant::now(), running.cpu_time());
    follow_until(&mut follower, &mut running, middle)?;
    let cpu_both = running.cpu_time().saturating_sub(cpu_before);
    let killed = replicas(&load.path)?
        .into_iter()
        .max_by_key(|twin| twin.first);
    let killed =
        killed.ok_or_else(|| Error::new(ErrorCode::LimitReached, "there is no replica to kill"))?;
    progress("killing the replica that was first more often");
    let killed_at = now_micros();
    running.kill(killed.process);
    let cpu_one = running.cpu_time();
    follow_until(&mut follower, &mut running, until)?;
    let spent = Spent {
        wall: begun.elapsed(),
        cpu: cpu_both + running.cpu_time().saturating_sub(cpu_one),
    };
    follow_to_end(&mut follower, &mut running)?;
    drop(running);
    let mut figures: Vec<Field> = vec![("duration_s", json!(seconds(spent.wall)))];
    figures.extend(run_figures(&follower, killed.first, killed.met, killed_at));
    figures.extend(machine_of(spent, None, noise));
    Ok(Report {
        bench: "active-active",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the figures of the run.
fn run_figures(follower: &Follower, first: u64, met: u64, killed_at: i64) -> Vec<Field> {
    let [both, one] = follower.latencies();
    let max_ms = |nanos: u64| nanos as f64 / 1e6;
    let after = follower.worst_after(killed_at);
    let later = (max_ms(after) - max_ms(both.max())).max(0.0);
    let renamed = |(name, value): Field| match name {
        "p50_ms" => ("alone_p50_ms", value),
        "p99_ms" => ("alone_p99_ms", value),
        "p9999_ms" => ("alone_p9999_ms", value),
        "max_ms" => ("alone_max_ms", value),
        other => (other, value),
    };
    let alone = latency(one, Unit::Millis).into_iter().map(renamed);
    let alone = alone.filter(|(name, _)| name.starts_with("alone_"));
    let share = first as f64 / (first + met).max(1) as f64;
    let mut figures = latency(both, Unit::Millis);
    figures.extend(alone);
    figures.extend([
        ("killed_was_first", json!(rounded(share, 1e3))),
        ("killed_max_ms", json!(rounded(max_ms(after), 1e4))),
        ("spike_ms", json!(rounded(later, 1e4))),
        ("results", json!(follower.results())),
        ("lost", json!(follower.lost())),
        ("duplicated", json!(follower.duplicated())),
    ]);
    figures
}

fn follow_until(follower: &mut Follower, running: &mut Copies, until: i64) -> Result<()> {
    while now_micros() < until {
        follower.read(now_micros)?;
        running.check()?;
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Follows the file until all measured results are there, or until the timeout.
fn follow_to_end(follower: &mut Follower, running: &mut Copies) -> Result<()> {
    let deadline = Instant::now() + LAST_RESULTS_TIMEOUT;
    while !follower.is_done() && Instant::now() < deadline {
        follower.read(now_micros)?;
        running.check()?;
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the current time of day in microseconds.
fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, micros)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
