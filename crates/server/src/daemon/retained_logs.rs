//! Logs of jobs that have ended or that no host serves, from the files of this machine and from
//! other hosts.

use std::path::{Path, PathBuf};

use crate::leader::PastJob;
use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{Client, ClusterSettings, LogLines, LogQuery, MAX_LISTED_CONTAINERS};
use ardea_scheduler::{HOSTS, HostRecord, RetainedLogs};

/// Returns the folder of the runner for the scheduler `local`.
pub(crate) fn local_folder(directory: &Path) -> PathBuf {
    directory.join("local")
}

/// Returns the folder of a host's own runner.
pub(crate) fn host_folder(directory: &Path, host: &str) -> PathBuf {
    hosts_folder(directory).join(host)
}

fn hosts_folder(directory: &Path) -> PathBuf {
    directory.join("hosts")
}

/// The part of this machine's log files that a host reads for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileScope<'a> {
    /// All files, because no other host is queried.
    All,
    /// The files of some hosts, so that each file is served once. Each queried host serves its own
    /// files. Among the queried hosts that share this machine's folder, the first by name also
    /// serves the files of hosts that are not queried.
    Part {
        /// The host that reads.
        own: &'a str,
        /// The registered names of the queried hosts, in any order.
        asked: &'a [String],
    },
}

impl FileScope<'_> {
    /// Returns true if the files of `host` are read. `sharing` are the hosts with files in the same
    /// folder.
    fn has(self, host: &str, sharing: &[String]) -> bool {
        let FileScope::Part { own, asked } = self else {
            return true;
        };
        if asked.iter().any(|name| name == host) {
            return host == own;
        }
        let first = sharing.iter().filter(|name| asked.contains(name)).min();
        // If none is registered, this host is the only reader.
        first.is_none_or(|first| first == own)
    }
}

/// Returns the hosts with files on this machine. Blocks on disk I/O.
pub(crate) fn hosts_here(cluster: &ClusterSettings) -> Vec<String> {
    let hosts = std::fs::read_dir(hosts_folder(&cluster.directory));
    let hosts = hosts.into_iter().flatten().flatten();
    hosts
        .filter_map(|it| it.file_name().into_string().ok())
        .collect()
}

/// Returns this machine's log files of one submission of a job that uses `scheduler`. Blocks on
/// disk I/O.
pub(crate) fn local_logs(
    cluster: &ClusterSettings,
    job: &JobRef,
    scheduler: &str,
    reach: FileScope<'_>,
) -> Vec<RetainedLogs> {
    let directory = &cluster.directory;
    let mut folders = Vec::new();
    if reach == FileScope::All || scheduler != HOSTS {
        folders.extend([local_folder(directory), cluster.slurm_folder.clone()]);
    }
    let hosts = hosts_here(cluster);
    let looked_at = hosts.iter().filter(|host| reach.has(host, &hosts));
    folders.extend(looked_at.map(|host| host_folder(directory, host)));
    let found = folders.iter();
    let found = found.filter_map(|folder| RetainedLogs::find(folder, job));
    found.collect()
}

/// Requests the log lines of an ended job from other hosts, one after the other. Stops at the first
/// host with files if one host has all of them.
pub(crate) async fn remote_logs(
    others: &[(String, Client)],
    past: &PastJob,
    query: &LogQuery,
) -> RemoteLogs {
    let query = LogQuery {
        submission: Some(format!("{:x}", past.job.submission)),
        here: true,
        follow: false,
        ..query.clone()
    };
    let mut elsewhere = RemoteLogs::default();
    for (name, client) in others {
        match client.logs(&past.job.name, &query).await {
            Ok(lines) => elsewhere.found.push(lines),
            // The host has no files of the job or of the container.
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::NoSuchJob | ErrorCode::NoSuchContainer
                ) => {}
            Err(error) => elsewhere.silent.push(format!("{name}: {error}")),
        }
        if past.description.scheduler != HOSTS && !elsewhere.found.is_empty() {
            break;
        }
    }
    elsewhere
}

/// The responses of other hosts to a request for log lines.
#[derive(Debug, Default)]
pub(crate) struct RemoteLogs {
    /// The line streams of the hosts that have files of the job.
    pub(crate) found: Vec<LogLines>,
    /// The hosts that did not respond, with their errors.
    silent: Vec<String>,
}

impl RemoteLogs {
    /// Adds the machines on which the job ran and that have no registered host to the hosts that
    /// did not respond. This host's address `own` is left out.
    pub(crate) fn without_hosts(
        &mut self,
        past: &PastJob,
        own: &str,
        hosts: &[(String, HostRecord)],
    ) {
        let has_host =
            |machine: &&String| *machine == own || hosts.iter().any(|(_, it)| it.host == **machine);
        let machines = past.description.machines.iter();
        let away = machines.filter(|machine| !has_host(machine));
        let away = away.map(|machine| format!("{machine}: no host is registered there"));
        self.silent.extend(away);
    }

    /// Returns the error that lists the hosts that did not respond; `None` if all did. It follows
    /// the found lines, or replaces them if there are none.
    pub(crate) fn missing(&self) -> Option<Error> {
        if self.silent.is_empty() {
            return None;
        }
        let what = "the logs of some hosts are missing";
        let error = Error::new(ErrorCode::ReadFailed, what).because(self.silent.join("; "));
        Some(error.hint("try again when these hosts are up, or read their files"))
    }
}

/// Returns the requested containers with their log files, ordered by container id. Blocks on disk
/// I/O.
pub(crate) fn wanted(
    kept: &[RetainedLogs],
    container: Option<ContainerId>,
) -> Result<Vec<(ContainerId, RetainedLogs)>> {
    let mut found = Vec::new();
    for output in kept {
        let ids = output.containers()?.into_iter();
        let ids = ids.filter(|id| container.is_none_or(|wanted| wanted == *id));
        found.extend(ids.map(|id| (id, output.clone())));
    }
    found.sort_by_key(|(id, _)| *id);
    Ok(found)
}

/// Returns the error for an ended job, or one of its containers, without log files.
pub(crate) fn nothing_kept(
    cluster: &ClusterSettings,
    past: &PastJob,
    container: Option<ContainerId>,
) -> Error {
    let ended = past.description.summary.ended();
    let folder = match past.description.scheduler.as_str() {
        // Any host: the shell expands the pattern.
        HOSTS => host_folder(&cluster.directory, "*"),
        "slurm" => cluster.slurm_folder.clone(),
        _ => local_folder(&cluster.directory),
    };
    let machines = match &past.description.machines[..] {
        [] => "the machines that it ran on".to_string(),
        machines => machines.join(", "),
    };
    let kept = format!(
        "is kept for a day on {machines}, in {}",
        RetainedLogs::place(&folder, &past.job).display()
    );
    let ended = ended.message();
    match container {
        None => {
            let what = format!("{ended}, and its logs can't be found");
            Error::new(ErrorCode::NoSuchJob, what).hint(format!("its output {kept}"))
        }
        Some(id) => {
            let what = format!("{ended}, and no logs of a container {id} can be found");
            let had = containers_of(past);
            Error::new(ErrorCode::NoSuchContainer, what)
                .hint(format!("it had {had} at its end; their output {kept}"))
        }
    }
}

/// Returns the last containers of an ended job as text, with their ids if they are known and few.
fn containers_of(past: &PastJob) -> String {
    match (
        past.description.summary.container_count,
        &past.container_ids[..],
    ) {
        (0, _) => "no container".to_string(),
        (1, [only]) => format!("container {only}"),
        (1, _) => "one container".to_string(),
        (count, []) => format!("{count} containers"),
        (count, [first, .., last]) if count as usize > MAX_LISTED_CONTAINERS => {
            format!("{count} containers, from {first} to {last},")
        }
        (_, all) => {
            let numbers: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("containers {}", numbers.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_config::{Resolver, Schema};
    use ardea_rest::CLUSTER_SETTINGS;

    fn past(scheduler: &str) -> PastJob {
        let job = JobRef {
            cluster: "local".into(),
            name: "relay".into(),
            submission: 0x2a,
        };
        let description = serde_json::json!({
            "name": "relay", "submission": "2a", "ending": "finished", "has_run": true,
            "submitted_ms": 1, "ended_ms": 2, "container_count": 1, "instance_count": 1,
            "version": "0", "packing": "round-robin", "scheduler": scheduler, "problems": [],
            "notes": [], "machines": ["10.0.0.7"],
        });
        let json = serde_json::json!({ "job": job, "description": description });
        serde_json::from_value(json).unwrap()
    }

    fn cluster(folder: &Path) -> ClusterSettings {
        let schema = Schema::of(CLUSTER_SETTINGS);
        let resolved = Resolver::new(&schema).resolve().unwrap();
        ClusterSettings::from_settings(&resolved, Some(folder)).unwrap()
    }

    #[test]
    fn each_file_is_told_of_by_one_host_and_those_of_hosts_that_are_down_by_whoever_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = cluster(folder.path());
        let job = "jobs/relay-000000000000002a/container-1";
        for host in ["a", "b", "down"] {
            let host = host_folder(&cluster.directory, host);
            std::fs::create_dir_all(host.join(job)).unwrap();
        }
        let past = past(HOSTS);
        let kept = |reach: FileScope<'_>| {
            let kept = local_logs(&cluster, &past.job, HOSTS, reach);
            let hosts = kept.iter().map(|it| {
                let host = it.folder().parent().and_then(Path::parent).unwrap();
                host.file_name().unwrap().to_str().unwrap().to_string()
            });
            let mut hosts: Vec<_> = hosts.collect();
            hosts.sort();
            hosts
        };
        let part = |own, asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
            kept(FileScope::Part { own, asked: &asked })
        };
        assert_eq!(kept(FileScope::All), ["a", "b", "down"]);
        assert_eq!(part("b", &["b", "a", "far"]), ["b"]);
        assert_eq!(part("a", &["b", "a", "far"]), ["a", "down"]);
        // A host of another machine has no part in this one's files.
        assert_eq!(part("b", &["b", "Far"]), ["a", "b", "down"]);
        // This host is not registered at the moment, so a registered one that shares the folder
        // serves the files.
        assert_eq!(part("a", &["b"]), [""; 0]);
        assert_eq!(part("b", &["b"]), ["a", "b", "down"]);
        assert_eq!(part("a", &["far"]), ["a", "b", "down"]);
        assert_eq!(part("a", &[]), ["a", "b", "down"]);
        let all = local_logs(&cluster, &past.job, HOSTS, FileScope::All);
        let one = wanted(&all, None).unwrap();
        assert_eq!(one.len(), 3);
    }

    #[test]
    fn the_machine_that_was_looked_at_needs_no_host_that_is_registered() {
        let missing = |own| {
            let mut elsewhere = RemoteLogs::default();
            elsewhere.without_hosts(&past(HOSTS), own, &[]);
            elsewhere.missing().map(|error| error.to_string())
        };
        assert_eq!(missing("10.0.0.7"), None);
        let text = missing("10.0.0.8").unwrap();
        assert!(text.contains("10.0.0.7: no host"), "{text}");
    }

    #[test]
    fn what_is_not_to_be_found_is_said_to_have_been_where() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = cluster(folder.path());
        let error = nothing_kept(&cluster, &past("local"), None);
        let text = error.to_string();
        for part in [
            "relay",
            "ended at",
            "10.0.0.7",
            "local/jobs/relay-000000000000002a",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains('…'), "{text}");
        let text = nothing_kept(&cluster, &past(HOSTS), None).to_string();
        let any_host = "hosts/*/jobs/relay-000000000000002a";
        assert!(text.contains(any_host), "{text}");
    }

    #[test]
    fn the_containers_of_a_job_that_is_gone_are_told_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let mut past = past("local");
        let mut had = |count, ids: &[u32]| {
            past.description.summary.container_count = count;
            past.container_ids = ids.iter().copied().map(ContainerId).collect();
            nothing_kept(&cluster(folder.path()), &past, Some(ContainerId(9))).to_string()
        };
        for (count, ids, told) in [
            (1, &[4][..], "it had container 4 at"),
            (2, &[1, 4], "it had containers 1, 4 at"),
            // Too many to be stored.
            (1, &[], "it had one container at"),
            (3, &[], "it had 3 containers at"),
        ] {
            let text = had(count, ids);
            assert!(text.contains(told), "{text}");
        }
        let many: Vec<u32> = (2..=40).collect();
        let text = had(39, &many);
        assert!(
            text.contains("it had 39 containers, from 2 to 40, at"),
            "{text}"
        );
    }
}
