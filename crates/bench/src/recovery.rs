//! How long a worker that is killed is missed, by a job that loses nothing.

use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::JobDescription;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::bounds::{check_rate, check_times, refused};
use crate::cluster::{Gathering, Ground, Load, Sample};
use crate::noise;
use crate::pulse::PulseLoad;
use crate::report::{Field, Report, machine_of, rounded, seconds};
use crate::submit::{noted_ms, wall_ms};
use crate::usage::{Meanwhile, monotonic_nanos};

/// How long a job may take to run, and to run again.
const WITHIN: Duration = Duration::from_secs(60);

/// How often it is asked whether it does.
const LOOK: Duration = Duration::from_millis(1);

/// What `ardea bench recovery` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct RecoveryParams {
    /// How many containers the job has.
    pub containers: u32,
    /// Records a second.
    pub rate: u64,
    /// How long the job runs before a worker is killed.
    pub warmup: Duration,
}

impl Default for RecoveryParams {
    fn default() -> Self {
        RecoveryParams {
            containers: 2,
            rate: 100_000,
            warmup: Duration::from_secs(3),
        }
    }
}

/// Kills the worker of a job's last container with SIGKILL, and waits until the job is whole again. `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; what keeps the cluster or the job from running.
pub fn run(params: &RecoveryParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    if params.containers < 2 {
        return Err(refused("of one container none is left when it is killed")
            .hint("give --containers at least 2"));
    }
    check_rate(params.rate, "records")?;
    check_times(&[("--warmup", params.warmup)])?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(1, noise::LONG_ENOUGH)?;
    progress("starting a cluster");
    let containers = format!("job.containers={}", params.containers);
    let ground = Ground::new(1, &[containers, "threads=1".into()])?;
    let gathering = Gathering::in_folder(ground.folder())?;
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
    let meanwhile = Meanwhile::begin();
    let (at, at_ms) = (monotonic_nanos(), wall_ms());
    kill(killed.pid)?;
    let samples = whole_again(&gathering, &killed, params.containers as usize)?;
    let spent = meanwhile.spent();
    ground.wait_until_running(&submission.job, WITHIN)?;
    let described = ground.describe(&submission.job)?;
    ground.kill(&submission.job)?;
    let mut figures: Vec<Field> = vec![("duration_s", json!(seconds(spent.wall)))];
    figures.extend(moments(&described, &samples, (at, at_ms)));
    figures.extend(machine_of(spent, None, noise));
    let warmup = ardea_config::duration::format_duration(params.warmup);
    Ok(Report {
        bench: "recovery",
        parameters: vec![
            ("containers", json!(params.containers)),
            ("rate", json!(params.rate)),
            ("warmup", json!(warmup)),
        ],
        figures,
    })
}

/// What happened when after the signal, which was sent at that moment of the monotonic clock and at that time of day.
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
            "the worker to kill is gone already",
        )
    };
    kill_process(pid.ok_or_else(gone)?, Signal::KILL).map_err(|error| gone().because(error))
}

/// Waits until the container has a new life that has seen a record, and a record that had got lost was seen anywhere.
fn whole_again(gathering: &Gathering, killed: &Sample, containers: usize) -> Result<Vec<Sample>> {
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
            let what = format!("the job is not whole again after {} s", WITHIN.as_secs());
            return Err(Error::new(ErrorCode::LimitReached, what));
        }
        thread::sleep(LOOK);
    }
}
