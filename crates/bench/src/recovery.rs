//! Time to recover from a killed worker, for a job with at-least-once delivery.

use std::thread;
use std::time::{Duration, Instant};

use ardea_config::parse_count;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::JobDescription;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::bounds::{MOST_PROCESSES, check_range, check_rate};
use crate::cluster::{Load, Sample, TestCluster, WorkerConnections};
use crate::flags::time;
use crate::noise;
use crate::replayed_numbers::PulseLoad;
use crate::report::{Field, Report, fields, machine_of, rounded, seconds};
use crate::submit::{noted_ms, wall_ms};
use crate::usage::{Stopwatch, monotonic_nanos};

/// Timeout for the job to run, and to run again.
const WITHIN: Duration = Duration::from_secs(60);

/// Poll interval of the wait for the job to run.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The parameters of `ardea bench recovery`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct RecoveryParams {
    /// Number of containers of the job
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub containers: u32,
    /// Records per second
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100000")]
    pub rate: u64,
    /// Running time of the job before a worker is killed
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "3s")]
    pub warmup: Duration,
}

/// Kills the worker of a job's last container with SIGKILL, and waits until all containers of the
/// job run again. `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; errors of the cluster or the job.
pub fn run(params: &RecoveryParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    check_range("--containers", params.containers, 2..=MOST_PROCESSES)
        .map_err(|error| error.hint("a worker must survive the kill"))?;
    check_rate(params.rate, "records")?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, noise::LONG_ENOUGH)?;
    progress("starting a cluster");
    let containers = format!("job.containers={}", params.containers);
    let ground = TestCluster::new(1, &[containers, "threads=1".into()])?;
    let gathering = WorkerConnections::in_folder(ground.folder())?;
    let pulse = PulseLoad {
        instances: params.containers,
        rate: params.rate,
    };
    let load = Load::pulse(gathering.path().to_path_buf(), pulse);
    let submission = ground.submit("killed", &load)?;
    ground.wait_until_running(&submission.job, WITHIN)?;
    gathering.wait_for(params.containers as usize, WITHIN)?;
    progress("warming up");
    thread::sleep(params.warmup);
    let killed = gathering.samples(false).pop();
    let killed = killed.ok_or_else(|| Error::new(ErrorCode::LimitReached, "no worker is left"))?;
    progress("killing a worker");
    let meanwhile = Stopwatch::begin();
    let (at, at_ms) = (monotonic_nanos(), wall_ms());
    kill(killed.pid)?;
    let samples = wait_until_recovered(&gathering, &killed, params.containers as usize)?;
    let spent = meanwhile.spent();
    ground.wait_until_running(&submission.job, WITHIN)?;
    let described = ground.describe(&submission.job)?;
    ground.kill(&submission.job)?;
    let mut figures: Vec<Field> = vec![("duration_s", json!(seconds(spent.wall)))];
    figures.extend(moments(&described, &samples, (at, at_ms)));
    figures.extend(machine_of(spent, None, noise));
    Ok(Report {
        bench: "recovery",
        parameters: fields!(params; containers, rate, warmup),
        figures,
    })
}

/// Returns the times of the steps of recovery after the signal. The signal was sent at `at` of the
/// monotonic clock and at `at_ms` of the time of day.
fn moments(described: &JobDescription, samples: &[Sample], (at, at_ms): (u64, u64)) -> Vec<Field> {
    let since = |nanos: u64| rounded(nanos.saturating_sub(at) as f64 / 1e6, 1e3);
    let noted = |text: &str| json!(noted_ms(described, text, at_ms));
    let again = samples.iter().filter_map(|it| it.moment("again")).min();
    let new_life = |name: &str| json!(samples.last().and_then(|it| it.moment(name)).map(since));
    let failed: u64 = samples.iter().map(|it| it.count("failed")).sum();
    vec![
        ("detected_ms", noted("was given up")),
        ("joined_ms", noted("has joined")),
        ("running_ms", noted("the job is running")),
        ("replayed_ms", json!(again.map(since))),
        ("process_up_ms", new_life("up")),
        ("deployed_ms", new_life("opened")),
        ("first_record_ms", new_life("first")),
        ("failed", json!(failed)),
    ]
}

fn kill(pid: u32) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let gone = || {
        Error::new(
            ErrorCode::LimitReached,
            "the worker to kill has already ended",
        )
    };
    kill_process(pid.ok_or_else(gone)?, Signal::KILL).map_err(|error| gone().because(error))
}

/// Waits until the container's new worker has processed a record, and any worker has processed a
/// replayed record.
fn wait_until_recovered(
    gathering: &WorkerConnections,
    killed: &Sample,
    containers: usize,
) -> Result<Vec<Sample>> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let samples = gathering.samples(false);
        let lives = samples.last().is_some_and(|it| {
            let is_new = it.container == killed.container && it.incarnation > killed.incarnation;
            is_new && it.moment("first").is_some()
        });
        let is_replayed = samples.iter().any(|it| it.moment("again").is_some());
        if samples.len() == containers && lives && is_replayed {
            return Ok(samples);
        }
        if Instant::now() >= deadline {
            let what = format!("the job has not recovered after {} s", WITHIN.as_secs());
            return Err(Error::new(ErrorCode::LimitReached, what));
        }
        thread::sleep(POLL_INTERVAL);
    }
}
