//! Who the hosts of a cluster are, and where to ask them.

use std::sync::Arc;

use ardea_core::{ErrorCode, Result};
use ardea_metastore::{StateManager, StatePath, layout};
use ardea_scheduler::HostRecord;

/// The attribute of a host's record that says where its REST interface is.
pub(crate) const API: &str = "api";
/// The attribute that says which process it is.
pub(crate) const PID: &str = "pid";
/// The attribute that says which job it is for, if it is for one only.
pub(crate) const JOB: &str = "job";
/// The attribute that says which version of Ardea it is.
pub(crate) const VERSION: &str = "version";

/// The hosts that have registered in a state manager.
#[derive(Clone, Debug)]
pub(crate) struct Directory(pub(crate) Arc<dyn StateManager>);

impl Directory {
    /// All hosts, sorted by name; those whose record can't be read are left out.
    pub(crate) async fn all(&self) -> Result<Vec<(String, HostRecord)>> {
        let workers = layout::workers()?;
        let mut found = Vec::new();
        for child in self.0.children(&workers).await? {
            let path = workers.child(&child)?;
            let Some(name) = path.any_name() else {
                continue;
            };
            if let Some(record) = self.record(&name, &path).await? {
                found.push((name, record));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// Where the REST interface of a host is that takes this job: one that is for it, or else one for all jobs.
    pub(crate) async fn api_for(&self, job: &str) -> Result<Option<String>> {
        let hosts = self.all().await?;
        let of = |wanted: Option<&str>| {
            let mut hosts = hosts.iter().map(|(_, record)| &record.attributes);
            hosts.find_map(|it| {
                let is_for = it.get(JOB).map(String::as_str);
                it.get(API).filter(|_| is_for == wanted).cloned()
            })
        };
        Ok(of(Some(job)).or_else(|| of(None)))
    }

    /// Where the REST interface of a host is, if the host is there and its record can be read.
    pub(crate) async fn api_of(&self, host: &str) -> Result<Option<String>> {
        let record = self.record(host, &layout::worker(host)?).await?;
        Ok(record.and_then(|record| record.attributes.get(API).cloned()))
    }

    /// What is registered of a host: nothing if it is gone, or nobody can read it.
    async fn record(&self, name: &str, path: &StatePath) -> Result<Option<HostRecord>> {
        let node = match self.0.get(path).await {
            Err(error) if error.code() == ErrorCode::StateCorrupt => None,
            node => node?,
        };
        Ok(node.and_then(|node| HostRecord::read(name, &node.value).ok()))
    }
}

/// Which of these hosts has a container whose worker is reached at that address. Several hosts may be on one machine: then it is the one
/// that leads the job, if it is among them.
pub(crate) fn host_at<'h>(
    hosts: &'h [(String, HostRecord)],
    address: &str,
    leader: Option<&str>,
) -> Option<&'h str> {
    let at_address = hosts.iter().filter(|(_, record)| record.host == address);
    let mut there = at_address.map(|(name, _)| name.as_str());
    let first = there.clone().next();
    there.find(|name| Some(*name) == leader).or(first)
}

/// A host as a candidate for masterships: a name that no other process has or had.
pub(crate) fn holder(host: &str, life: u64) -> String {
    format!("{host}@{life:x}")
}

/// The host of a candidate of that name.
pub(crate) fn host_of(holder: &str) -> &str {
    holder.rsplit_once('@').map_or(holder, |(host, _)| host)
}

/// Where any interface of the cluster is: what a command asks that was told none.
///
/// # Errors
///
/// When the state manager doesn't answer.
pub async fn find_api(state: &Arc<dyn StateManager>) -> Result<Option<String>> {
    let hosts = Directory(Arc::clone(state)).all().await?;
    let mut apis = hosts
        .into_iter()
        .filter_map(|(_, record)| record.attributes.get(API).cloned());
    Ok(apis.next())
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::Resources;
    use ardea_metastore::{Expected, FileState, StateOptions};

    use super::*;

    #[test]
    fn a_container_is_on_the_host_at_its_address_and_of_several_on_the_leading_one() {
        let record = |name: &str, host: &str| {
            let record = HostRecord {
                host: host.to_string(),
                address: format!("{host}:70"),
                total: Resources::ZERO,
                used: Resources::ZERO,
                attributes: Default::default(),
                holds: Vec::new(),
            };
            (name.to_string(), record)
        };
        let hosts = [
            record("a", "10.0.0.1"),
            record("b", "10.0.0.2"),
            record("c", "10.0.0.1"),
        ];
        assert_eq!(host_at(&hosts, "10.0.0.1", None), Some("a"));
        assert_eq!(host_at(&hosts, "10.0.0.1", Some("c")), Some("c"));
        assert_eq!(host_at(&hosts, "10.0.0.1", Some("b")), Some("a"));
        assert_eq!(host_at(&hosts, "10.0.0.3", Some("a")), None);
    }

    #[test]
    fn a_holder_names_its_host_whatever_that_is_called() {
        for host in ["a", "a@b", ""] {
            assert_eq!(host_of(&holder(host, 0xfe)), host);
        }
    }

    #[tokio::test]
    async fn a_host_whose_record_can_not_be_read_is_as_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let directory = Directory(Arc::new(state.unwrap()));
        let path = layout::worker("quay").unwrap();
        let damaged = directory.0.set(&path, b"?", Expected::Any).await;
        damaged.unwrap();
        assert_eq!(directory.api_of("quay").await.unwrap(), None);
        assert!(directory.all().await.unwrap().is_empty());
    }
}
