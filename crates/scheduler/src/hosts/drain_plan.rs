//! The containers that must leave drained hosts, and those of them that have room on other hosts.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{ContainerRequest, ContainersToMove};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode, Result};

use super::container_table::ContainerTable;
use super::job::Shared;
use super::placement::{Candidate, place};
use super::reconcile::HostInventories;
use super::record::HostRecord;

impl Shared {
    /// Returns the job's containers that must leave their hosts. Sends no request to hosts if no
    /// container is on a drained host.
    pub(super) async fn displaced(&self) -> Result<Vec<ContainersToMove>> {
        let drained = self.drained().clone();
        if !self.table().may_any_be_at(&drained) {
            return Ok(Vec::new());
        }
        let _turn = self.turn.lock().await;
        let survey = self.request_inventories().await;
        let (there, missing) = self.table().divide(&survey.stocks);
        let leaving = there.iter().filter(|(host, _)| drained.contains(*host));
        let mut leaving: Vec<(String, ContainerRequest)> = leaving
            .flat_map(|(host, all)| all.iter().map(|one| (host.clone(), one.clone())))
            .collect();
        leaving.extend(self.unseen_at(&drained, missing, &survey));
        let requests = leaving.iter().map(|(_, request)| request.clone());
        let (_, refused) = place(requests.collect(), self.candidates(&survey.stocks, &there));
        let refused = refused.into_iter();
        let mut stuck: BTreeMap<_, _> = refused.map(|it| (it.request.id, it)).collect();
        let displaced = leaving.into_iter().map(|(host, request)| ContainersToMove {
            container: request.id,
            host,
            stuck: stuck
                .remove(&request.id)
                .map(|refused| Error::from(refused).message()),
        });
        Ok(displaced.collect())
    }

    /// Returns containers that no host reports although their workers send heartbeats, and that can
    /// be on a drained host whose process is down. Without this they would stay on that host,
    /// because running containers are left alone.
    fn unseen_at(
        &self,
        drained: &BTreeSet<String>,
        missing: Vec<ContainerRequest>,
        survey: &HostInventories,
    ) -> Vec<(String, ContainerRequest)> {
        let board = self.table();
        if self.may_miss_hosts(board.newest) {
            return Vec::new();
        }
        let mut hosts = drained.iter();
        let away = hosts.find(|host| !survey.stocks.contains_key(*host));
        let is_silent = |host: &str| survey.silent.iter().any(|(silent, _)| silent == host);
        let host_of = |id: ContainerId| {
            let known = board.place(id).and_then(|place| place.host.as_ref());
            let host = match known {
                Some(host) => drained.get(host),
                None => away,
            };
            host.filter(|_| board.runs_unreported(id, is_silent))
                .cloned()
        };
        let missing = missing.into_iter();
        missing
            .filter_map(|request| Some((host_of(request.id)?, request)))
            .collect()
    }
}

impl ContainerTable {
    /// Returns true if a requested container is on one of these hosts, or runs on an unknown host.
    fn may_any_be_at(&self, hosts: &BTreeSet<String>) -> bool {
        let may_be_there = |id: &ContainerId| {
            let host = self.place(*id).and_then(|place| place.host.as_ref());
            match host {
                Some(host) => hosts.contains(host),
                None => self.live_incarnations.contains_key(id),
            }
        };
        !hosts.is_empty() && self.wanted.keys().any(may_be_there)
    }
}

/// Checks that all containers of `host` have room on the other hosts that are not drained.
///
/// # Errors
///
/// [`ErrorCode::NoRoom`], with the missing resources, if a container has no room.
pub fn check_room_elsewhere(
    host: &str,
    hosts: &[(String, HostRecord)],
    drained: &BTreeSet<String>,
) -> Result<()> {
    let held = hosts.iter().filter(|(name, _)| name == host);
    let held: Vec<_> = held.flat_map(|(_, record)| &record.holds).collect();
    let count = held.len();
    // Container numbers are unique only per job, so the requests are renumbered.
    let requests = (0..).zip(&held).map(|(number, held)| ContainerRequest {
        id: ContainerId(number),
        ..held.request.clone()
    });
    let candidates = hosts.iter().map(|(name, record)| Candidate {
        id: name.clone(),
        free: record
            .total
            .checked_sub(record.used)
            .unwrap_or(Resources::ZERO),
        total: record.total,
        attributes: record.attributes.clone(),
        containers: 0,
        is_drained: name == host || drained.contains(name),
    });
    let (_, refused) = place(requests.collect(), candidates.collect());
    let Some((first, held)) = refused
        .first()
        .and_then(|first| Some((first, held.get(first.request.id.0 as usize)?)))
    else {
        return Ok(());
    };
    let what = format!(
        "host {host} can't be drained: {} of its {} containers have no room elsewhere, such as container {} of {}, which needs {}",
        refused.len(),
        count,
        held.request.id,
        held.job,
        held.request.required
    );
    Err(Error::new(ErrorCode::NoRoom, what)
        .because(first.why.clone())
        .hint("add a host, stop jobs, or ask for less; nothing has been changed"))
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::MilliCores;

    use super::*;
    use crate::HeldContainer;

    fn cores(cores: u64) -> Resources {
        Resources {
            cpu: MilliCores(cores * 1_000),
            ..Resources::ZERO
        }
    }

    /// A host with this many cores that has one container of each of these sizes.
    fn host(name: &str, total: u64, sizes: &[u64]) -> (String, HostRecord) {
        let hold = |(id, size): (u32, &u64)| HeldContainer {
            job: "words".to_string(),
            request: ContainerRequest {
                id: ContainerId(id),
                required: cores(*size),
                attributes: BTreeMap::new(),
            },
        };
        let record = HostRecord {
            host: name.to_string(),
            address: format!("{name}:1"),
            total: cores(total),
            used: cores(sizes.iter().sum()),
            attributes: BTreeMap::new(),
            holds: (1..).zip(sizes).map(hold).collect(),
        };
        (name.to_string(), record)
    }

    #[test]
    fn what_has_room_on_the_others_together_and_not_on_each_is_told_with_the_numbers() {
        let hosts = [
            host("a", 8, &[2, 3]),
            host("b", 4, &[1]),
            host("c", 4, &[1]),
        ];
        let drained = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert!(check_room_elsewhere("a", &hosts, &drained(&[])).is_ok());
        let told = check_room_elsewhere("a", &hosts, &drained(&["c"])).unwrap_err();
        assert_eq!(told.code(), ErrorCode::NoRoom);
        let told = told.to_string();
        for part in [
            "1 of its 2 containers have no room elsewhere, such as container 1 of words, which needs 2 cpu",
            "of 1 hosts, b has 0 cpu",
            "2 drained",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = check_room_elsewhere("a", &hosts[..1], &drained(&[])).unwrap_err();
        assert!(told.to_string().contains("all hosts are drained"));
        assert!(check_room_elsewhere("d", &hosts, &drained(&[])).is_ok());
    }
}
