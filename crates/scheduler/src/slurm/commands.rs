//! Slurm's commands: `sbatch`, `squeue`, `scancel`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ardea_coordination::control::ContainerRequest;
use ardea_core::{Error, ErrorCode, Result};
use tokio::process::Command;

use super::SlurmConfig;

/// The timeout of a command. Slurm's timeout for an unreachable controller is shorter.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The prefix of the names of all Slurm jobs of this scheduler.
const PREFIX: &str = "ardea/";

/// The `sbatch` options that a container may set, by its attributes `slurm.OPTION`.
const OPTIONS: [&str; 8] = [
    "account",
    "constraint",
    "exclude",
    "nodelist",
    "partition",
    "qos",
    "reservation",
    "time",
];

/// Parses the `sbatch` options of a job's setting [`SLURM_OPTIONS`](super::SLURM_OPTIONS): words
/// separated by blanks.
///
/// # Errors
/// A description of the invalid option, for users. An option must begin with two hyphens and have
/// its value after `=`. Options that conflict with one Slurm job and a fixed script for each
/// container are refused.
pub fn slurm_options(text: &str) -> std::result::Result<Vec<String>, String> {
    let words = text.split_whitespace().map(|word| {
        let name = word.split('=').next().unwrap_or_default();
        match name.strip_prefix("--") {
            Some("") | None => Err(format!(
                "{word:?} is no option of sbatch: write each as --NAME or --NAME=VALUE, without blanks in it"
            )),
            Some("array" | "wrap" | "help" | "usage" | "version" | "test-only" | "wait") => {
                Err(format!("{name} is not permitted: a container is one Slurm job with a fixed script"))
            }
            Some(_) => Ok(word.to_string()),
        }
    });
    words.collect()
}

/// A Slurm job in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Queued {
    /// The Slurm job id.
    pub(super) number: String,
    /// The state of the Slurm job.
    pub(super) state: QueueState,
    /// The reason why the Slurm job waits, or Slurm's name of its state.
    pub(super) reason: String,
}

/// The state of a Slurm job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueState {
    /// Waiting to be scheduled.
    Waiting,
    /// Running.
    Running,
    /// Ending.
    Ending,
}

/// Returns the name of a container's Slurm job: cluster, job and submission, container.
pub(super) fn name_of(cluster: &str, job_folder: &Path, container: u32) -> String {
    let job = job_folder.file_name().unwrap_or_default().to_string_lossy();
    let cluster: String = cluster
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    format!("{PREFIX}{cluster}/{job}/container-{container}")
}

/// Returns all Slurm jobs of this user that are containers, by the name of the Slurm job.
pub(super) async fn queue(config: &SlurmConfig) -> Result<BTreeMap<String, Queued>> {
    // The name comes last, since it may contain any character.
    let arguments = ["--me", "--noheader", "--format=%A|%T|%r|%j"].map(String::from);
    let listed = run(config, "squeue", &arguments).await?;
    Ok(listed.lines().filter_map(entry).collect())
}

fn entry(line: &str) -> Option<(String, Queued)> {
    let mut fields = line.trim().splitn(4, '|');
    let (number, state, reason) = (fields.next()?, fields.next()?, fields.next()?);
    let name = fields.next().filter(|name| name.starts_with(PREFIX))?;
    let queued = Queued {
        number: number.to_string(),
        reason: match reason {
            "None" => state.to_string(),
            reason => reason.to_string(),
        },
        state: match state {
            "RUNNING" | "STOPPED" | "SUSPENDED" => QueueState::Running,
            "PENDING" | "CONFIGURING" | "REQUEUED" | "RESIZING" | "SPECIAL_EXIT" => {
                QueueState::Waiting
            }
            _ => QueueState::Ending,
        },
    };
    Some((name.to_string(), queued))
}

/// Submits the Slurm job of a container.
pub(super) async fn submit(
    config: &SlurmConfig,
    name: &str,
    request: &ContainerRequest,
    options: &[String],
    folder: &Path,
    script: &[String],
) -> Result<()> {
    // Later options override earlier ones, so the options that must not be overridden follow.
    let mut arguments = config.options.clone();
    arguments.extend_from_slice(options);
    arguments.extend([
        "--parsable".to_string(),
        format!("--job-name={name}"),
        format!("--output={}", percent_doubled(&folder.join("slurm.log"))),
        "--open-mode=append".to_string(),
        // The environment of this process is not passed on.
        "--export=PATH,HOME,USER,LANG".to_string(),
        "--requeue".to_string(),
        "--nodes=1".to_string(),
        "--ntasks=1".to_string(),
        format!("--chdir={}", folder.display()),
    ]);
    let milli = request.required.cpu.0;
    if milli > 0 {
        arguments.push(format!("--cpus-per-task={}", milli.div_ceil(1000)));
    }
    let bytes = request.required.memory_bytes;
    if bytes > 0 {
        arguments.push(format!("--mem={}M", bytes.div_ceil(1 << 20)));
    }
    for (name, value) in &request.attributes {
        if let Some(option) = name
            .strip_prefix("slurm.")
            .filter(|name| OPTIONS.contains(name))
        {
            arguments.push(format!("--{option}={value}"));
        }
    }
    arguments.extend_from_slice(script);
    run(config, "sbatch", &arguments).await.map(|_| ())
}

/// Cancels Slurm jobs, with all their processes. `numbers` are the Slurm job ids.
pub(super) async fn cancel(config: &SlurmConfig, numbers: Vec<String>) -> Result<()> {
    match numbers.is_empty() {
        true => Ok(()),
        false => run(config, "scancel", &numbers).await.map(|_| ()),
    }
}

/// Sends a signal to the processes of a Slurm step. Failures are ignored, because the caller checks
/// the effect.
pub(super) async fn signal_step(config: &SlurmConfig, step: &str, signal: &str) {
    let arguments = [format!("--signal={signal}"), step.to_string()];
    let _ = run(config, "scancel", &arguments).await;
}

/// Returns the path with doubled percent signs, because Slurm expands percent signs in file names.
fn percent_doubled(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

async fn run(config: &SlurmConfig, program: &str, arguments: &[String]) -> Result<String> {
    let failed = |why: String| {
        Error::new(ErrorCode::SchedulerUnavailable, format!("Slurm's {program} failed"))
            .because(why)
            .hint("check that Slurm's commands are installed here and its controller runs (`scontrol ping`)")
    };
    let mut command = Command::new(program);
    // Slurm reads options from environment variables, and a process within a Slurm job has many of
    // them.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_setting = name == "SLURM_CONF";
        let prefixes = ["SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_"];
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) && !is_setting {
            command.env_remove(name);
        }
    }
    let running = command
        .args(arguments)
        .envs(&config.environment)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(COMMAND_TIMEOUT, running).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed(format!("no answer in {COMMAND_TIMEOUT:?}"))),
    };
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    match output.status.success() {
        true => Ok(said(&output.stdout)),
        false => Err(failed(said(&output.stderr).replace('\n', "; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_with_two_hyphens_and_leave_a_container_one_slurm_job() {
        let options = slurm_options("  --partition=long --exclusive\t--time=1-0 ");
        assert_eq!(
            options,
            Ok(["--partition=long", "--exclusive", "--time=1-0"]
                .map(String::from)
                .to_vec())
        );
        assert_eq!(slurm_options(" "), Ok(Vec::new()));
        for wrong in [
            "long",
            "-p long",
            "--partition long",
            "--",
            "--=x",
            "--array=1-3",
            "--wrap=ls",
        ] {
            let why = slurm_options(wrong).expect_err(wrong);
            assert!(
                why.contains("is not permitted") || why.contains("is no option"),
                "{why}"
            );
        }
    }

    #[test]
    fn jobs_of_others_are_not_looked_at_and_names_may_have_anything_in_them() {
        let (name, queued) =
            entry("17|PENDING|Resources|ardea/prod/a|b/container-3").expect("ours");
        assert_eq!(name, "ardea/prod/a|b/container-3");
        assert_eq!(
            (queued.number.as_str(), queued.state),
            ("17", QueueState::Waiting)
        );
        assert_eq!(queued.reason, "Resources");
        let (_, queued) = entry("18|COMPLETING|None|ardea/x").expect("ours");
        assert_eq!(
            (queued.state, queued.reason.as_str()),
            (QueueState::Ending, "COMPLETING")
        );
        for line in [
            "",
            "19|RUNNING|None|simulation",
            "20|RUNNING",
            "x|y|z|ardea",
        ] {
            assert!(entry(line).is_none(), "{line}");
        }
    }
}
