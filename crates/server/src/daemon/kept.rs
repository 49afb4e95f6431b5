//! What jobs without a scheduler, gone or without hosts, have written: whose files this machine has, and who else may have some.

use std::path::{Path, PathBuf};

use crate::leader::PastJob;
use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{Client, ClusterSettings, LogLines, LogQuery, MOST_NUMBERS};
use ardea_scheduler::{HOSTS, HostRecord, KeptOutput};

/// The folder of the runner for containers of the scheduler `local`.
pub(crate) fn local_folder(directory: &Path) -> PathBuf {
    directory.join("local")
}

/// The folder of a host's own runner.
pub(crate) fn host_folder(directory: &Path, host: &str) -> PathBuf {
    hosts_folder(directory).join(host)
}

fn hosts_folder(directory: &Path) -> PathBuf {
    directory.join("hosts")
}

/// Which files of this machine are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach<'a> {
    /// All: nobody else is asked.
    All,
    /// A part, so that each file is told of once: each of the hosts that are asked tells of its own, and the first of those that share this
    /// machine's folder, by name, also of those of hosts that are not asked.
    Part {
        /// The host that looks.
        own: &'a str,
        /// The hosts that are asked, as they are registered, in any order.
        asked: &'a [String],
    },
}

impl Reach<'_> {
    /// Whether files of that host are looked at, where hosts of these names have or had theirs in one folder.
    fn has(self, host: &str, sharing: &[String]) -> bool {
        let Reach::Part { own, asked } = self else {
            return true;
        };
        if asked.iter().any(|name| name == host) {
            return host == own;
        }
        let first = sharing.iter().filter(|name| asked.contains(name)).min();
        // Without one that is registered, whoever looks is the only one who does.
        first.is_none_or(|first| first == own)
    }
}

/// The hosts that have or had their files on this machine. Waits for the disk.
pub(crate) fn hosts_here(cluster: &ClusterSettings) -> Vec<String> {
    let hosts = std::fs::read_dir(hosts_folder(&cluster.directory));
    let hosts = hosts.into_iter().flatten().flatten();
    hosts
        .filter_map(|it| it.file_name().into_string().ok())
        .collect()
}

/// What this machine has of what one submission of a job has written, of a job with that scheduler. Waits for the disk.
pub(crate) fn kept_here(
    cluster: &ClusterSettings,
    job: &JobRef,
    scheduler: &str,
    reach: Reach<'_>,
) -> Vec<KeptOutput> {
    let directory = &cluster.directory;
    let mut folders = Vec::new();
    if reach == Reach::All || scheduler != HOSTS {
        folders.extend([local_folder(directory), cluster.slurm_folder.clone()]);
    }
    let hosts = hosts_here(cluster);
    let looked_at = hosts.iter().filter(|host| reach.has(host, &hosts));
    folders.extend(looked_at.map(|host| host_folder(directory, host)));
    let found = folders.iter();
    let found = found.filter_map(|folder| KeptOutput::find(folder, job));
    found.collect()
}

/// What other hosts have of what a job has written, asked of all of them at once or, where one has all there is, of one after the other.
pub(crate) async fn kept_elsewhere(
    others: &[(String, Client)],
    past: &PastJob,
    query: &LogQuery,
) -> Elsewhere {
    let query = LogQuery {
        submission: Some(format!("{:x}", past.job.submission)),
        here: true,
        follow: false,
        ..query.clone()
    };
    let mut elsewhere = Elsewhere::default();
    for (name, client) in others {
        match client.logs(&past.job.name, &query).await {
            Ok(lines) => elsewhere.found.push(lines),
            // It has nothing of the job, or of the container.
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::NoSuchJob | ErrorCode::NoSuchContainer
                ) => {}
            Err(error) => elsewhere.silent.push(format!("{name}: {error}")),
        }
        if past.scheduler != HOSTS && !elsewhere.found.is_empty() {
            break;
        }
    }
    elsewhere
}

/// What other hosts have answered.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// What some of them have.
    pub(crate) found: Vec<LogLines>,
    /// Who could not say what it has, and why.
    silent: Vec<String>,
}

impl Elsewhere {
    /// What is on machines that the job ran on, and of which neither the one that looked, at its address, nor one of these hosts tells, is
    /// out of reach as well.
    pub(crate) fn without_hosts(
        &mut self,
        past: &PastJob,
        own: &str,
        hosts: &[(String, HostRecord)],
    ) {
        let has_host =
            |machine: &&String| *machine == own || hosts.iter().any(|(_, it)| it.host == **machine);
        let away = past.machines.iter().filter(|machine| !has_host(machine));
        let away = away.map(|machine| format!("{machine}: no host is registered there"));
        self.silent.extend(away);
    }

    /// What has to be told behind all that was found, or in place of it.
    pub(crate) fn missing(&self) -> Option<Error> {
        if self.silent.is_empty() {
            return None;
        }
        let what = "what some hosts have kept is missing here";
        let error = Error::new(ErrorCode::ReadFailed, what).because(self.silent.join("; "));
        Some(error.hint("ask again when these hosts are up, or look at their files"))
    }
}

/// The containers of which something is wanted, each with the output that has it, by number. Waits for the disk.
pub(crate) fn wanted(
    kept: &[KeptOutput],
    container: Option<ContainerId>,
) -> Result<Vec<(ContainerId, KeptOutput)>> {
    let mut found = Vec::new();
    for output in kept {
        let ids = output.containers()?.into_iter();
        let ids = ids.filter(|id| container.is_none_or(|wanted| wanted == *id));
        found.extend(ids.map(|id| (id, output.clone())));
    }
    found.sort_by_key(|(id, _)| *id);
    Ok(found)
}

/// That a job is gone, and what it wrote is not to be found, or what a container of it did: of which numbers it had some, nobody knows.
pub(crate) fn nothing_kept(
    cluster: &ClusterSettings,
    past: &PastJob,
    container: Option<ContainerId>,
) -> Error {
    let ended = crate::daemon::remembered::summary(past).ended();
    let folder = match past.scheduler.as_str() {
        // Whichever host it was: a shell finds it.
        HOSTS => host_folder(&cluster.directory, "*"),
        "slurm" => cluster.slurm_folder.clone(),
        _ => local_folder(&cluster.directory),
    };
    let machines = match &past.machines[..] {
        [] => "the machines that it ran on".to_string(),
        machines => machines.join(", "),
    };
    let kept = format!(
        "is kept for a day on {machines}, in {}",
        KeptOutput::place(&folder, &past.job).display()
    );
    let ended = ended.message();
    match container {
        None => {
            let what = format!("{ended}, and what it wrote is not to be found");
            Error::new(ErrorCode::NoSuchJob, what).hint(format!("it {kept}"))
        }
        Some(id) => {
            let what = format!("{ended}, and nothing of a container {id} is to be found");
            let had = containers_of(past);
            Error::new(ErrorCode::NoSuchContainer, what)
                .hint(format!("it had {had} at its end; what they wrote {kept}"))
        }
    }
}

/// The containers that a job had last: their numbers, as far as they are remembered and fill no screen.
fn containers_of(past: &PastJob) -> String {
    match (past.containers, &past.container_ids[..]) {
        (0, _) => "no container".to_string(),
        (1, [only]) => format!("container {only}"),
        (1, _) => "one container".to_string(),
        (count, []) => format!("{count} containers"),
        (count, [first, .., last]) if count as usize > MOST_NUMBERS => {
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
        let json = serde_json::json!({
            "job": job, "finished": true, "started": true, "submitted_ms": 1, "ended_ms": 2,
            "packing": "round-robin", "scheduler": scheduler, "version": "0", "containers": 1,
            "instances": 1, "problems": [], "notes": [], "machines": ["10.0.0.7"],
        });
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
        let kept = |reach: Reach<'_>| {
            let kept = kept_here(&cluster, &past.job, HOSTS, reach);
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
            kept(Reach::Part { own, asked: &asked })
        };
        assert_eq!(kept(Reach::All), ["a", "b", "down"]);
        assert_eq!(part("b", &["b", "a", "far"]), ["b"]);
        assert_eq!(part("a", &["b", "a", "far"]), ["a", "down"]);
        // One that is on another machine has nothing to say of this one.
        assert_eq!(part("b", &["b", "Far"]), ["a", "b", "down"]);
        // One that is not registered at the moment, and whose files others tell of if they can.
        assert_eq!(part("a", &["b"]), [""; 0]);
        assert_eq!(part("b", &["b"]), ["a", "b", "down"]);
        assert_eq!(part("a", &["far"]), ["a", "b", "down"]);
        assert_eq!(part("a", &[]), ["a", "b", "down"]);
        let all = kept_here(&cluster, &past.job, HOSTS, Reach::All);
        let one = wanted(&all, None).unwrap();
        assert_eq!(one.len(), 3);
    }

    #[test]
    fn the_machine_that_was_looked_at_needs_no_host_that_is_registered() {
        let missing = |own| {
            let mut elsewhere = Elsewhere::default();
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
            past.containers = count;
            past.container_ids = ids.iter().copied().map(ContainerId).collect();
            nothing_kept(&cluster(folder.path()), &past, Some(ContainerId(9))).to_string()
        };
        for (count, ids, told) in [
            (1, &[4][..], "it had container 4 at"),
            (2, &[1, 4], "it had containers 1, 4 at"),
            // As masters of earlier versions remembered it.
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
