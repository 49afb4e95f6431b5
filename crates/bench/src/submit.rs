//! Time from submitting a job to its first processed record, split into its parts.
//!
//! Each run submits a program that the running cluster has not stored before, so that it is packed,
//! stored and fetched each time.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_config::parse_count;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::JobDescription;
use serde_json::json;

use crate::bounds::{MOST_PROCESSES, check_range, check_rate};
use crate::cluster::{Load, Sample, TestCluster, WorkerConnections};
use crate::noise;
use crate::replayed_numbers::PulseLoad;
use crate::report::{Field, Report, fields, machine_of, rounded, seconds};
use crate::usage::{Stopwatch, monotonic_nanos};

/// Timeout for the first record of a job.
const WITHIN: Duration = Duration::from_secs(60);

/// Poll interval of the wait for the first record.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The parameters of `ardea bench submit`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct SubmitParams {
    /// Number of containers of the job
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub containers: u32,
    /// Number of hosts of the cluster, all on this machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hosts: u32,
    /// Records per second
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10000")]
    pub rate: u64,
    /// Submit a program that is already in the cluster's package store
    #[arg(long)]
    pub stored: bool,
}

/// Submits a job, waits for its first record, and ends it. `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; errors of the cluster or the job.
pub fn run(params: &SubmitParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    check_range("--containers", params.containers, 1..=MOST_PROCESSES)?;
    check_range("--hosts", params.hosts, 1..=16)?;
    check_rate(params.rate, "records")?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, noise::LONG_ENOUGH)?;
    progress("starting a cluster");
    let containers = format!("job.containers={}", params.containers);
    let ground = TestCluster::new(params.hosts as usize, &[containers, "threads=1".into()])?;
    let gathering = WorkerConnections::in_folder(ground.folder())?;
    let pulse = PulseLoad {
        instances: params.containers,
        rate: params.rate,
    };
    let load = Load::pulse(gathering.path().to_path_buf(), pulse);
    if params.stored {
        progress("storing the program");
        let before = ground.submit("before", &load)?;
        first_record(&gathering, 0)?;
        ground.kill(&before.job)?;
    }
    progress("submitting");
    let (meanwhile, hosts_before) = (Stopwatch::begin(), ground.host_cpu_time());
    let (begun, begun_ms) = (monotonic_nanos(), wall_ms());
    let submission = ground.submit("submitted", &load)?;
    let samples = first_record(&gathering, begun)?;
    let (spent, hosts) = (meanwhile.spent(), ground.host_cpu_time());
    ground.wait_until_running(&submission.job, WITHIN)?;
    let described = ground.describe(&submission.job)?;
    ground.kill(&submission.job)?;
    let since = |nanos: u64| rounded(nanos.saturating_sub(begun) as f64 / 1e6, 1e3);
    let earliest = |name: &str| samples.iter().filter_map(|it| it.moment(name)).min();
    let latest = |name: &str| samples.iter().filter_map(|it| it.moment(name)).max();
    let millis = |time: Duration| rounded(time.as_secs_f64() * 1e3, 1e3);
    let noted = |text: &str| noted_ms(&described, text, begun_ms);
    let mut figures: Vec<Field> = vec![
        ("duration_s", json!(seconds(spent.wall))),
        ("first_record_ms", json!(earliest("first").map(since))),
        (
            "first_record_everywhere_ms",
            json!(last_first_record(&samples).map(since)),
        ),
        ("prepared_ms", json!(millis(submission.prepared))),
        ("stored_ms", json!(millis(submission.stored))),
        ("taken_ms", json!(millis(submission.taken))),
        ("planned_ms", json!(noted("plan 1 was made"))),
        ("process_up_ms", json!(latest("up").map(since))),
        ("joined_ms", json!(noted("has joined"))),
        ("deployed_ms", json!(latest("opened").map(since))),
        ("released_ms", json!(earliest("begun").map(since))),
        ("running_ms", json!(noted("the job is running"))),
    ];
    figures.push((
        "host_cpu_seconds",
        json!(seconds(hosts.saturating_sub(hosts_before))),
    ));
    figures.extend(machine_of(spent, None, noise));
    Ok(Report {
        bench: "submit",
        parameters: fields!(params; containers, hosts, rate, stored),
        figures,
    })
}

/// Returns the time at which the last container received its first record; `None` if one has not
/// yet.
fn last_first_record(samples: &[Sample]) -> Option<u64> {
    let moments: Option<Vec<u64>> = samples.iter().map(|it| it.moment("first")).collect();
    moments?.into_iter().max()
}

/// Waits until a bolt has received a record in every container that started after `since`.
fn first_record(gathering: &WorkerConnections, since: u64) -> Result<Vec<Sample>> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let mut samples = gathering.samples(false);
        samples.retain(|sample| sample.count("up") >= since);
        if !samples.is_empty() && last_first_record(&samples).is_some() {
            return Ok(samples);
        }
        if Instant::now() >= deadline {
            let what = format!("no record was processed after {} s", WITHIN.as_secs());
            return Err(Error::new(ErrorCode::LimitReached, what));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the current time of day, in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the milliseconds from `since_ms` until the leader's last note that contains `text`.
/// Notes are exact to a millisecond.
pub(crate) fn noted_ms(described: &JobDescription, text: &str, since_ms: u64) -> Option<u64> {
    let notes = described.notes.iter().rev();
    let mut noted = notes.filter(|note| note.at_ms >= since_ms && note.text.contains(text));
    noted.next().map(|note| note.at_ms - since_ms)
}
