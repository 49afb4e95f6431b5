//! The hosts of the cluster, their containers, and draining.

use std::collections::BTreeMap;

use ardea_coordination::control::JobDefinition;
use ardea_coordination::packing::{
    ContainerId, HOSTS_KEY, HostResources, JobDemand, PackingConfig, Resources, TRAFFIC,
};
use ardea_coordination::placement::EdgeRate;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{Answer, HostView, HostedContainer, JobDescription, no_such_host};
use ardea_scheduler::{HOSTS, HostRecord, LOCAL, check_room_elsewhere};

use super::{ClusterService, now_ms};
use crate::daemon::host_registry::{API, JOB, PID, VERSION, host_at};

/// A host's name and its registration.
type Registered = (String, HostRecord);

impl ClusterService {
    /// Returns all hosts, sorted by name.
    pub(super) async fn all_hosts(&self) -> Answer<Vec<HostView>> {
        let registered = self.directory.all().await?;
        let drained = self.drains.hosts().await?;
        let jobs = self.descriptions().await?;
        let mut hosted = hosted(&registered, &jobs);
        let mut hosts = Vec::new();
        for (name, record) in registered {
            let known = |attribute: &str| record.attributes.get(attribute).cloned();
            let api = known(API).unwrap_or_default();
            let free = record.total.checked_sub(record.used);
            hosts.push(HostView {
                leads: self.led_by(&name, &api).await,
                containers: hosted.remove(&name).unwrap_or_default(),
                drained: drained.contains(&name),
                holds: u32::try_from(record.holds.len()).unwrap_or(u32::MAX),
                address: record.address.clone(),
                pid: known(PID).and_then(|pid| pid.parse().ok()).unwrap_or(0),
                version: known(VERSION).unwrap_or_default(),
                total: record.total,
                free: free.unwrap_or(Resources::ZERO),
                name,
                api,
            });
        }
        Ok(hosts)
    }

    /// Completes the request for a job that is packed by its traffic. The demand gets the rates
    /// measured in the last run of a job of this name, the packing configuration the free hosts.
    pub(super) async fn write_traffic(
        &self,
        definition: &JobDefinition,
        (demand, packing): (&mut JobDemand, &mut PackingConfig),
    ) -> Answer<()> {
        if definition.packing != TRAFFIC {
            return Ok(());
        }
        let past = self.jobs.all_past(&definition.job.name).await?;
        if let Some(last) = past.iter().find(|past| !past.rates.is_empty()) {
            EdgeRate::write_missing(&last.rates, demand);
        }
        self.write_free_hosts(definition, packing).await
    }

    /// Writes the free resources of the hosts into the packing configuration of a job that
    /// runs on hosts. Drained hosts, and hosts for other jobs, are left
    /// out. With none left, the job is packed without hosts, and waits for one.
    async fn write_free_hosts(
        &self,
        definition: &JobDefinition,
        packing: &mut PackingConfig,
    ) -> Answer<()> {
        if definition.scheduler != HOSTS {
            return Ok(());
        }
        let drained = self.drains.hosts().await?;
        let hosts: Vec<HostResources> = self
            .directory
            .all()
            .await?
            .into_iter()
            .filter(|(name, record)| {
                let of_job = record.attributes.get(JOB);
                !drained.contains(name) && of_job.is_none_or(|job| *job == definition.job.name)
            })
            .map(|(name, record)| HostResources {
                name,
                free: record
                    .total
                    .checked_sub(record.used)
                    .unwrap_or(Resources::ZERO),
            })
            .collect();
        if !hosts.is_empty() {
            let hosts = serde_json::to_string(&hosts).map_err(|error| {
                Error::new(ErrorCode::Internal, "the free hosts can't be written").because(error)
            })?;
            packing.extra.insert(HOSTS_KEY.into(), hosts);
        }
        Ok(())
    }

    /// Drains a host. Rejects the request if the host's containers do not fit onto other hosts.
    pub(super) async fn drain_host(&self, host: &str) -> Answer<()> {
        let drained = self.drains.hosts().await?;
        if drained.contains(host) {
            return Ok(());
        }
        let registered = self.directory.all().await?;
        if !registered.iter().any(|(name, _)| name == host) {
            let names = registered.iter().map(|(name, _)| name.as_str());
            return Err(no_such_host(host, names).into());
        }
        let jobs = self.descriptions().await?;
        let bound = jobs.iter().filter(|job| is_bound_to(host, job));
        let bound: Vec<&str> = bound.map(|job| job.summary.name.as_str()).collect();
        if !bound.is_empty() {
            let what = format!(
                "host {host} can't be drained: the scheduler {LOCAL} runs a job's containers on its leader's host, and this host leads {}",
                bound.join(", ")
            );
            let hint = "kill these jobs, or submit them with cluster.scheduler=hosts; nothing has been changed";
            return Err(Error::new(ErrorCode::WrongState, what).hint(hint).into());
        }
        check_room_elsewhere(host, &registered, &drained)?;
        self.drains.drain(host, now_ms()).await?;
        // Two concurrent drains have each been checked without the other.
        let mut others = self.drains.hosts().await?;
        others.remove(host);
        if others.is_subset(&drained) {
            return Ok(());
        }
        let checked = check_room_elsewhere(host, &registered, &others);
        if checked.is_err() {
            self.drains.undrain(host).await?;
        }
        Ok(checked?)
    }

    /// Ends the draining of a host, even if the host is not registered.
    pub(super) async fn undrain_host(&self, host: &str) -> Answer<()> {
        if self.drains.hosts().await?.contains(host) {
            return Ok(self.drains.undrain(host).await?);
        }
        let registered = self.directory.all().await?;
        let names = || registered.iter().map(|(name, _)| name.as_str());
        match names().any(|name| name == host) {
            true => Ok(()),
            false => Err(no_such_host(host, names()).into()),
        }
    }

    /// Returns the descriptions of all jobs with a leader.
    async fn descriptions(&self) -> Answer<Vec<JobDescription>> {
        let mut descriptions = Vec::new();
        for job in self.jobs.names().await? {
            // Jobs that have ended or have no leader are left out.
            descriptions.extend(self.describe_anywhere(&job).await.ok());
        }
        Ok(descriptions)
    }
}

/// Returns true if the job's containers run on this host and cannot run on other hosts.
fn is_bound_to(host: &str, job: &JobDescription) -> bool {
    let leader = job.master.as_ref().map(|master| master.host.as_str());
    job.scheduler == LOCAL && leader == Some(host) && !job.containers.is_empty()
}

/// Returns the containers of all jobs by host name: those listed in a host's registration, and
/// those that a scheduler reports at a host's address.
fn hosted(hosts: &[Registered], jobs: &[JobDescription]) -> BTreeMap<String, Vec<HostedContainer>> {
    let mut hosted: BTreeMap<String, Vec<HostedContainer>> = BTreeMap::new();
    for job in jobs {
        let leader = job.master.as_ref().map(|master| master.host.as_str());
        for container in &job.containers {
            let Some(address) = container.host.as_deref() else {
                continue; // not running yet
            };
            let held = holder(hosts, &job.summary.name, container.id, address);
            if let Some(host) = held.or_else(|| host_at(hosts, address, leader)) {
                let there = hosted.entry(host.to_string()).or_default();
                there.push(HostedContainer {
                    job: job.summary.name.clone(),
                    container: container.id.0,
                    process: container.process.clone(),
                });
            }
        }
    }
    // Containers that are being started or stopped.
    for (host, record) in hosts {
        for held in &record.holds {
            let there = hosted.entry(host.clone()).or_default();
            let (job, container) = (&held.job, held.request.id.0);
            let mut known = there.iter();
            if !known.any(|it| it.job == *job && it.container == container) {
                there.push(HostedContainer {
                    job: job.clone(),
                    container,
                    process: None,
                });
            }
        }
    }
    for there in hosted.values_mut() {
        there.sort_by(|one, other| (&one.job, one.container).cmp(&(&other.job, other.container)));
    }
    hosted
}

/// Returns the host at the address whose registration lists the container.
fn holder<'h>(
    hosts: &'h [Registered],
    job: &str,
    id: ContainerId,
    address: &str,
) -> Option<&'h str> {
    let mut at_address = hosts.iter().filter(|(_, record)| record.host == address);
    let holds = |record: &HostRecord| {
        let mut held = record.holds.iter();
        held.any(|held| held.job == job && held.request.id == id)
    };
    let found = at_address.find(|(_, record)| holds(record));
    found.map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use ardea_coordination::control::ContainerRequest;
    use ardea_scheduler::HeldContainer;

    use super::*;

    fn host(name: &str, holds: &[u32]) -> Registered {
        let hold = |id: &u32| HeldContainer {
            job: "words".into(),
            request: ContainerRequest {
                id: ContainerId(*id),
                required: Resources::ZERO,
                attributes: BTreeMap::new(),
            },
        };
        let record = HostRecord {
            host: "127.0.0.1".into(),
            address: "127.0.0.1:1".into(),
            total: Resources::ZERO,
            used: Resources::ZERO,
            attributes: BTreeMap::new(),
            holds: holds.iter().map(hold).collect(),
        };
        (name.into(), record)
    }

    #[test]
    fn of_several_hosts_of_one_machine_a_container_is_on_the_one_that_says_so() {
        let hosts = [host("a", &[1]), host("b", &[2, 3])];
        let at = |id| holder(&hosts, "words", ContainerId(id), "127.0.0.1");
        assert_eq!([at(1), at(3), at(4)], [Some("a"), Some("b"), None]);
        assert_eq!(holder(&hosts, "other", ContainerId(1), "127.0.0.1"), None);
        let hosted = hosted(&hosts, &[]);
        let on = |name: &str| {
            hosted[name]
                .iter()
                .map(|it| it.container)
                .collect::<Vec<_>>()
        };
        assert_eq!((on("a"), on("b")), (vec![1], vec![2, 3]));
    }
}
