//! The registered hosts of a cluster and their REST addresses.

use std::sync::Arc;

use ardea_core::{ErrorCode, Result};
use ardea_metastore::{MetadataStore, StatePath, layout};
use ardea_scheduler::HostRecord;

/// The host attribute with the URL of the REST interface.
pub(crate) const API: &str = "api";
/// The host attribute with the process id.
pub(crate) const PID: &str = "pid";
/// The host attribute with the name of the only job that the host accepts. Hosts for all jobs lack
/// it.
pub(crate) const JOB: &str = "job";
/// The host attribute with the version of Ardea.
pub(crate) const VERSION: &str = "version";

/// The hosts that are registered in a metadata store.
#[derive(Clone, Debug)]
pub(crate) struct HostRegistry(pub(crate) Arc<dyn MetadataStore>);

impl HostRegistry {
    /// Returns all hosts, sorted by name; unreadable registrations are left out.
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

    /// Returns the REST URL of a host that accepts this job: a host for this job only, or else a
    /// host for all jobs.
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

    /// Returns the REST URL of a host, if its registration exists and is readable.
    pub(crate) async fn api_of(&self, host: &str) -> Result<Option<String>> {
        let record = self.record(host, &layout::worker(host)?).await?;
        Ok(record.and_then(|record| record.attributes.get(API).cloned()))
    }

    /// Returns a host's registration; `None` if it is missing or unreadable.
    async fn record(&self, name: &str, path: &StatePath) -> Result<Option<HostRecord>> {
        let node = match self.0.get(path).await {
            Err(error) if error.code() == ErrorCode::MetastoreCorrupt => None,
            node => node?,
        };
        Ok(node.and_then(|node| HostRecord::read(name, &node.value).ok()))
    }
}

/// Returns the host at the address of a worker. Among several hosts on one machine, the host
/// `leader` is preferred.
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

/// Returns the holder name in leases for a process of this host; `life` makes the name unique.
pub(crate) fn holder(host: &str, life: u64) -> String {
    format!("{host}@{life:x}")
}

/// Finds the REST URL of any host of the cluster. Returns `None` if no host is registered.
///
/// # Errors
///
/// If the metadata store is unavailable.
pub async fn find_api(state: &Arc<dyn MetadataStore>) -> Result<Option<String>> {
    let hosts = HostRegistry(Arc::clone(state)).all().await?;
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
    use crate::leader::host_of;

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
        let directory = HostRegistry(Arc::new(state.unwrap()));
        let path = layout::worker("quay").unwrap();
        let damaged = directory.0.set(&path, b"?", Expected::Any).await;
        damaged.unwrap();
        assert_eq!(directory.api_of("quay").await.unwrap(), None);
        assert!(directory.all().await.unwrap().is_empty());
    }
}
