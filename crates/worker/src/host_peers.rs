//! The peers of a worker that share the name of its host.

use std::collections::BTreeSet;

use ardea_coordination::control::Peer;
use ardea_engine::Site;

/// The peers whose endpoints have the same host as that of this worker. Such a peer should be
/// reached on this host; if it is not, for example in another network namespace, that is logged
/// once.
#[derive(Debug)]
pub(crate) struct HostPeers {
    host: String,
    sites: BTreeSet<Site>,
    reported: BTreeSet<Site>,
}

impl HostPeers {
    /// Creates an empty set for a worker at this endpoint.
    pub(crate) fn of(endpoint: &str) -> Self {
        HostPeers {
            host: host_of(endpoint).to_string(),
            sites: BTreeSet::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Adds those of the reported peers that have the name of this host.
    pub(crate) fn set_peers(&mut self, peers: &[Peer]) {
        for peer in peers {
            let site = Site(peer.container().0);
            match host_of(&peer.endpoint) == self.host {
                true => self.sites.insert(site),
                false => self.sites.remove(&site),
            };
        }
    }

    /// Returns true if the site is such a peer and this is the first call for it.
    pub(crate) fn report_once(&mut self, site: Site) -> bool {
        self.sites.contains(&site) && self.reported.insert(site)
    }
}

fn host_of(endpoint: &str) -> &str {
    endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use ardea_coordination::control::WorkerId;
    use ardea_coordination::packing::ContainerId;

    use super::*;

    #[test]
    fn a_peer_of_the_host_is_reported_once_and_others_never() {
        let peer = |container, endpoint: &str| Peer {
            worker: WorkerId {
                container: ContainerId(container),
                incarnation: 1,
            },
            endpoint: endpoint.into(),
        };
        let mut host_peers = HostPeers::of("quay-7:7400");
        host_peers.set_peers(&[peer(2, "quay-7:7401"), peer(3, "quay-8:7400")]);
        assert!(host_peers.report_once(Site(2)));
        assert!(!host_peers.report_once(Site(2)));
        assert!(!host_peers.report_once(Site(3)));
    }
}
