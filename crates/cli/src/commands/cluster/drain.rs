//! `ardea cluster drain` and `undrain`: has a host be left by all containers, and takes that back.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode};
use ardea_rest::HostView;
use serde_json::json;

use crate::args::{DrainArgs, UndrainArgs};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::Reached;
use crate::stdout;

/// How often the host is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(250);

/// Has the host be drained, and waits until it is empty.
pub fn run(args: &DrainArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of(&args.place, context)?;
    let host = &args.host;
    cluster.ask(cluster.client.drain(host))?;
    if args.detach {
        return tell(context, host, "is being drained");
    }
    wait(&cluster, host, context)?;
    tell(context, host, "is drained: no container is there")
}

/// Takes it back.
pub fn take_back(args: &UndrainArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of(&args.place, context)?;
    cluster.ask(cluster.client.undrain(&args.host))?;
    tell(context, &args.host, "is no longer drained")
}

/// For how long it has to be empty: hosts say once a second what they hold, and something may just have been placed there.
const SETTLED: Duration = Duration::from_secs(2);

/// How far a host is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Left {
    /// Nothing is there any more.
    Nothing,
    /// These are there.
    Containers(String),
    /// It is not up.
    NotUp,
    /// Somebody has taken it back.
    TakenBack,
}

impl Left {
    fn of(hosts: &[HostView], name: &str) -> Self {
        match hosts.iter().find(|host| host.name == name) {
            None => Left::NotUp,
            Some(host) if !host.drained => Left::TakenBack,
            Some(host) if host.holds == 0 => Left::Nothing,
            Some(host) => Left::Containers(in_words(host)),
        }
    }
}

/// The containers of a host, job by job: `word-count 1 3, bids 2`.
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

/// Waits until nothing is there any more, for as long as patience lasts; says what is waited for when that changes.
fn wait(cluster: &Reached, host: &str, context: &Context) -> Result<(), Failure> {
    let patience = cluster.settings.patience;
    let deadline = Instant::now() + patience;
    let (mut told, mut empty_since) = (String::new(), None);
    loop {
        let hosts = cluster.ask(cluster.client.hosts())?;
        let left = Left::of(&hosts, host);
        let now = Instant::now();
        let waits_for = match &left {
            Left::Nothing => {
                let since = *empty_since.get_or_insert(now);
                if now >= since + SETTLED {
                    return Ok(());
                }
                thread::sleep(LOOK);
                continue;
            }
            Left::TakenBack => {
                let what =
                    format!("host {host} is not drained any more: somebody has taken it back");
                return Err(Error::new(ErrorCode::WrongState, what).into());
            }
            Left::NotUp => format!("host {host} is not up, and what it has is not known"),
            Left::Containers(which) => {
                let mut text = format!("host {host} still has containers: {which}");
                for reason in reasons(cluster, &hosts, host)? {
                    text += &format!("; {reason}");
                }
                text
            }
        };
        if now >= deadline {
            let what = format!("{waits_for}, after {} s", patience.as_secs_f64());
            let hint = "it goes on: `ardea cluster status` and `ardea describe JOB` tell how far it is, and what it waits for";
            let error = Error::new(ErrorCode::StateUnavailable, what).hint(hint);
            return Err(error.into());
        }
        if told != waits_for && !context.quiet && !context.json {
            print_error(&format!("{waits_for}\n"));
        }
        (told, empty_since) = (waits_for, None);
        thread::sleep(LOOK);
    }
}

/// What the jobs of a host wait for, as far as they say so.
fn reasons(cluster: &Reached, hosts: &[HostView], name: &str) -> Result<Vec<String>, Failure> {
    let there = hosts.iter().filter(|host| host.name == name);
    let there: BTreeSet<&str> = there
        .flat_map(|host| &host.containers)
        .map(|container| container.job.as_str())
        .collect();
    let mut jobs = cluster.ask(cluster.client.list())?;
    jobs.retain(|job| there.contains(job.name.as_str()));
    let told = jobs
        .into_iter()
        .filter_map(|job| Some(format!("{}: {}", job.name, job.reason?)));
    Ok(told.collect())
}

fn tell(context: &Context, host: &str, what: &str) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&json!({ "host": host, "outcome": what }));
    }
    if !context.quiet {
        print_error(&format!("{host} {what}\n"));
    }
    Ok(())
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
        let containers = Left::Containers("bids 2, words 1 3".to_string());
        assert_eq!(Left::of(&hosts, "a"), containers);
        assert_eq!(Left::of(&hosts, "b"), Left::Nothing);
        assert_eq!(Left::of(&hosts, "c"), Left::TakenBack);
        assert_eq!(Left::of(&hosts, "d"), Left::NotUp);
    }
}
