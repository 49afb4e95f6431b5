//! What is seen of a job's death by whoever reads what it and its twin write together.

mod follow;
mod load;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_config::duration::format_duration;
use ardea_connectors::twins::copies;
use ardea_core::{Error, ErrorCode, Result};
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_times, refused};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds};
use crate::usage::{Spent, process_cpu_time};

use follow::Follower;
use load::Load;
pub use load::copy;

/// How long copies have until the first record is due.
const STARTS_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked what is new in the file.
const LOOK: Duration = Duration::from_micros(200);
/// How long the last results may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `ardea bench twins` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct TwinsParams {
    /// Records a second.
    pub rate: u64,
    /// How wide windows are, and slices of the file.
    pub window: Duration,
    /// How long is measured: half of it with both copies, half with one.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// How often each copy makes a snapshot.
    pub snapshot_interval: Duration,
}

impl Default for TwinsParams {
    fn default() -> Self {
        TwinsParams {
            rate: 100_000,
            window: Duration::from_millis(10),
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(3),
            snapshot_interval: Duration::from_secs(1),
        }
    }
}

impl TwinsParams {
    fn check(&self) -> Result<()> {
        check_rate(self.rate, "records")?;
        check_duration(self.duration)?;
        check_times(&[
            ("--window", self.window),
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--snapshot-interval", self.snapshot_interval),
        ])?;
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
        vec![
            ("rate", json!(self.rate)),
            ("window", json!(format_duration(self.window))),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            (
                "snapshot_interval",
                json!(format_duration(self.snapshot_interval)),
            ),
        ]
    }
}

/// Processes that end with the bench.
struct Copies(Vec<Child>);

impl Copies {
    fn start(load: &Load) -> Result<Self> {
        let mut copies = Copies(Vec::new());
        for number in 0..2 {
            let child = Command::new("/proc/self/exe")
                .args(["bench", "twins", "--copy", &load.told(number)?])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            let child = child.map_err(|error| {
                Error::new(ErrorCode::StartFailed, "a copy of the job can't be started")
                    .because(error)
            })?;
            copies.0.push(child);
        }
        Ok(copies)
    }

    /// # Errors
    /// [`ErrorCode::LimitReached`] if one has ended by itself.
    fn check(&mut self) -> Result<()> {
        for child in &mut self.0 {
            if let Ok(Some(status)) = child.try_wait() {
                let what = format!("a copy of the job ended by itself: {status}");
                return Err(Error::new(ErrorCode::LimitReached, what)
                    .hint("what it said is above, on standard error"));
            }
        }
        Ok(())
    }

    /// What they have used of the processors.
    fn cpu_time(&self) -> Duration {
        let times = self.0.iter().map(|child| process_cpu_time(child.id()));
        times.flatten().sum()
    }

    /// Kills this process, and forgets it.
    fn kill(&mut self, pid: u32) {
        let killed = self.0.iter().position(|child| child.id() == pid);
        if let Some(at) = killed {
            let mut child = self.0.remove(at);
            // SIGKILL. One that is gone already is no worse.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a job of windows twice, kills the copy whose results are mostly first, and measures how late results are before and after. `progress` is
/// told what is going on.
///
/// The latency of a result is the time from the end of its window until it can be read in the file.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; what keeps the copies from running.
pub fn run(params: &TwinsParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(1, params.duration)?;
    let folder = tempfile::Builder::new().prefix("ardea-bench-").tempdir();
    let folder = folder.map_err(|error| {
        Error::new(
            ErrorCode::WriteFailed,
            "cannot make a folder for the results",
        )
        .because(error)
        .hint("check the free space and permissions of the folder for temporary files (TMPDIR)")
    })?;
    progress("starting two copies");
    let load = Load::new(params, folder.path(), now_micros() + micros(STARTS_WITHIN));
    let from = load.since + micros(params.warmup);
    let (middle, until) = (
        from + micros(params.duration / 2),
        from + micros(params.duration),
    );
    let mut running = Copies::start(&load)?;
    let mut follower = Follower::new(&load, [from, middle, until])?;
    follow_until(&mut follower, &mut running, from)?;
    progress("measuring with both copies");
    let (begun, cpu_before) = (Instant::now(), running.cpu_time());
    follow_until(&mut follower, &mut running, middle)?;
    let cpu_both = running.cpu_time().saturating_sub(cpu_before);
    let killed = copies(&load.path)?
        .into_iter()
        .max_by_key(|twin| twin.first);
    let killed =
        killed.ok_or_else(|| Error::new(ErrorCode::LimitReached, "there is no copy to kill"))?;
    progress("killing the copy that was first more often");
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
    figures.extend(told(&follower, killed.first, killed.met, killed_at));
    figures.extend(machine_of(spent, None, noise));
    Ok(Report {
        bench: "twins",
        parameters: params.fields(),
        figures,
    })
}

/// What was seen.
fn told(follower: &Follower, first: u64, met: u64, killed_at: i64) -> Vec<Field> {
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
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Until all measured results are there.
fn follow_to_end(follower: &mut Follower, running: &mut Copies) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !follower.is_done() && Instant::now() < deadline {
        follower.read(now_micros)?;
        running.check()?;
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The time of day, in microseconds.
fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, micros)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
