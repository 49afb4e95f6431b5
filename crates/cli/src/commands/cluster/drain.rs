//! `ardea cluster drain` and `undrain`: moves all containers off a host, and allows containers on
//! it again.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_core::{Error, ErrorCode};
use ardea_rest::HostView;

use crate::args::{DrainArgs, UndrainArgs};

/// The poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Drains the host, and waits until it is empty.
pub fn run(args: &DrainArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.place, context)?;
    let host = &args.host;
    cluster.wait_for(cluster.client.drain(host))?;
    if args.detach {
        return context.print_outcome("host", host, "is being drained");
    }
    wait(&cluster, host, context)?;
    context.print_outcome("host", host, "is drained: no container is there")
}

/// Undrains the host.
pub fn run_undrain(args: &UndrainArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.place, context)?;
    cluster.wait_for(cluster.client.undrain(&args.host))?;
    context.print_outcome("host", &args.host, "is no longer drained")
}

/// The time for which the host has to be empty: hosts report once a second, and a container may
/// just have been placed on this host.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The state of a host that is being drained.
#[derive(Clone, PartialEq, Eq, Debug)]
enum DrainProgress {
    /// The host is empty.
    Empty,
    /// The host still has these containers.
    Containers(String),
    /// The host is not up.
    NotUp,
    /// The host was undrained.
    Undrained,
}

impl DrainProgress {
    fn of(hosts: &[HostView], name: &str) -> Self {
        match hosts.iter().find(|host| host.name == name) {
            None => DrainProgress::NotUp,
            Some(host) if !host.drained => DrainProgress::Undrained,
            Some(host) if host.holds == 0 => DrainProgress::Empty,
            Some(host) => DrainProgress::Containers(in_words(host)),
        }
    }
}

/// Lists the containers of a host, job by job: `word-count 1 3, bids 2`.
fn in_words(host: &HostView) -> String {
    let mut jobs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for there in &host.containers {
        let numbers = jobs.entry(&there.job).or_default();
        numbers.push(there.container.to_string());
    }
    let jobs = jobs.iter();
    let jobs = jobs.map(|(job, numbers)| format!("{job} {}", numbers.join(" ")));
    jobs.collect::<Vec<_>>().join(", ")
}

/// Waits until the host is empty, at most for `cluster.patience`; prints what remains whenever it
/// changes.
fn wait(cluster: &ClusterConnection, host: &str, context: &Context) -> Result<(), Failure> {
    let patience = cluster.settings.patience;
    let deadline = Instant::now() + patience;
    let (mut told, mut empty_since) = (String::new(), None);
    loop {
        let hosts = cluster.wait_for(cluster.client.hosts())?;
        let left = DrainProgress::of(&hosts, host);
        let now = Instant::now();
        let waits_for = match &left {
            DrainProgress::Empty => {
                let since = *empty_since.get_or_insert(now);
                if now >= since + SETTLE_TIME {
                    return Ok(());
                }
                thread::sleep(POLL_INTERVAL);
                continue;
            }
            DrainProgress::Undrained => {
                let what = format!(
                    "host {host} is not drained any more: another command has undrained it"
                );
                return Err(Error::new(ErrorCode::WrongState, what).into());
            }
            DrainProgress::NotUp => {
                format!("host {host} is not up, and its containers are not known")
            }
            DrainProgress::Containers(which) => {
                let mut text = format!("host {host} still has containers: {which}");
                for reason in reasons(cluster, &hosts, host)? {
                    text += &format!("; {reason}");
                }
                text
            }
        };
        if now >= deadline {
            let what = format!("{waits_for}, after {} s", patience.as_secs_f64());
            let hint = "the drain goes on: `ardea cluster status` and `ardea describe JOB` show its progress, and the reason for waiting";
            let error = Error::new(ErrorCode::StateUnavailable, what).hint(hint);
            return Err(error.into());
        }
        if told != waits_for && !context.quiet && !context.json {
            print_error(&format!("{waits_for}\n"));
        }
        (told, empty_since) = (waits_for, None);
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the reasons why jobs on the host `name` are waiting.
fn reasons(
    cluster: &ClusterConnection,
    hosts: &[HostView],
    name: &str,
) -> Result<Vec<String>, Failure> {
    let there = hosts.iter().filter(|host| host.name == name);
    let there: BTreeSet<&str> = there
        .flat_map(|host| &host.containers)
        .map(|container| container.job.as_str())
        .collect();
    let mut jobs = cluster.wait_for(cluster.client.list())?;
    jobs.retain(|job| there.contains(job.name.as_str()));
    let told = jobs
        .into_iter()
        .filter_map(|job| Some(format!("{}: {}", job.name, job.reason?)));
    Ok(told.collect())
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::Resources;
    use ardea_rest::HostedContainer;

    use super::*;

    fn host(name: &str, drained: bool, containers: &[(&str, u32)]) -> HostView {
        let containers = containers.iter().map(|(job, container)| HostedContainer {
            job: job.to_string(),
            container: *container,
            process: None,
        });
        HostView {
            name: name.into(),
            address: String::new(),
            api: String::new(),
            pid: 1,
            version: String::new(),
            total: Resources::ZERO,
            free: Resources::ZERO,
            holds: containers.len() as u32,
            containers: containers.collect(),
            leads: Vec::new(),
            drained,
        }
    }

    #[test]
    fn a_host_is_waited_for_until_no_container_is_there() {
        let there = [("words", 1), ("bids", 2), ("words", 3)];
        let hosts = [
            host("a", true, &there),
            host("b", true, &[]),
            host("c", false, &[]),
        ];
        let containers = DrainProgress::Containers("bids 2, words 1 3".to_string());
        assert_eq!(DrainProgress::of(&hosts, "a"), containers);
        assert_eq!(DrainProgress::of(&hosts, "b"), DrainProgress::Empty);
        assert_eq!(DrainProgress::of(&hosts, "c"), DrainProgress::Undrained);
        assert_eq!(DrainProgress::of(&hosts, "d"), DrainProgress::NotUp);
    }
}
