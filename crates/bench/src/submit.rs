//! How long it takes from submitting a job until its first record is through, and where that time goes.
//!
//! A try brings a job whose program was never stored before to a cluster that is up, so that it is packed, stored and fetched each time.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::JobDescription;
use serde_json::json;

use crate::bounds::{check_rate, refused};
use crate::cluster::{Gathering, Ground, Load, Sample};
use crate::noise;
use crate::pulse::PulseLoad;
use crate::report::{Field, Report, machine_of, rounded, seconds};
use crate::usage::{Meanwhile, monotonic_nanos};

/// How long a job may take until its first record is through.
const WITHIN: Duration = Duration::from_secs(60);

/// How often it is asked whether it is.
const LOOK: Duration = Duration::from_millis(2);

/// What `ardea bench submit` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct SubmitParams {
    /// How many containers the job has.
    pub containers: u32,
    /// How many hosts the cluster has, all of them on this machine.
    pub hosts: u32,
    /// Records a second.
    pub rate: u64,
    /// Whether the cluster has the job's program already, as it has when a job is submitted again.
    pub stored: bool,
}

impl Default for SubmitParams {
    fn default() -> Self {
        SubmitParams {
            containers: 2,
            hosts: 1,
            rate: 10_000,
            stored: false,
        }
    }
}

/// Submits a job, waits for its first record, and ends it. `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; what keeps the cluster or the job from running.
pub fn run(params: &SubmitParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    if params.containers == 0 || params.hosts == 0 {
        return Err(refused("without containers and hosts nothing runs"));
    }
    check_rate(params.rate, "records")?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(1, noise::LONG_ENOUGH)?;
    progress("starting a cluster");
    let containers = format!("job.containers={}", params.containers);
    let ground = Ground::new(params.hosts as usize, &[containers, "threads=1".into()])?;
    let gathering = Gathering::in_folder(ground.folder())?;
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
    let (meanwhile, hosts_before) = (Meanwhile::begin(), ground.host_cpu_time());
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
            json!(everywhere(&samples).map(since)),
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
        parameters: vec![
            ("containers", json!(params.containers)),
            ("hosts", json!(params.hosts)),
            ("rate", json!(params.rate)),
            ("stored", json!(params.stored)),
        ],
        figures,
    })
}

/// When each container has seen a record, if all have.
fn everywhere(samples: &[Sample]) -> Option<u64> {
    let moments: Option<Vec<u64>> = samples.iter().map(|it| it.moment("first")).collect();
    moments?.into_iter().max()
}

/// Waits until a bolt has seen a record in every container that began after `since`.
fn first_record(gathering: &Gathering, since: u64) -> Result<Vec<Sample>> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let mut samples = gathering.samples(false);
        samples.retain(|sample| sample.count("up") >= since);
        if !samples.is_empty() && everywhere(&samples).is_some() {
            return Ok(samples);
        }
        if Instant::now() >= deadline {
            let what = format!("no record is through after {} s", WITHIN.as_secs());
            return Err(Error::new(ErrorCode::LimitReached, what));
        }
        thread::sleep(LOOK);
    }
}

/// The time of day, in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// How many milliseconds after `since_ms` the master noted this last; its notes are exact to a millisecond.
pub(crate) fn noted_ms(described: &JobDescription, text: &str, since_ms: u64) -> Option<u64> {
    let notes = described.notes.iter().rev();
    let mut noted = notes.filter(|note| note.at_ms >= since_ms && note.text.contains(text));
    noted.next().map(|note| note.at_ms - since_ms)
}
