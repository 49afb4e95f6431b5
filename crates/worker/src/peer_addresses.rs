//! Resolution of peer endpoints to addresses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::Peer;
use ardea_engine::Site;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::network::{Network, PeerAddress};

/// Retry delay of a name lookup.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A request to the resolver.
pub(crate) enum ResolverRequest {
    /// The leader has reported these peers.
    Reported(Arc<[Peer]>),
    /// This peer is unreachable, so its host name may have another address.
    Retry(Site),
}

/// Resolves the endpoints of peers and passes the addresses to the network, until the channel
/// closes. Lookups run concurrently and may take arbitrarily long.
pub(crate) async fn look_up_peers(
    mut asks: mpsc::UnboundedReceiver<ResolverRequest>,
    network: Network,
) {
    let mut known: BTreeMap<Site, Peer> = BTreeMap::new();
    let mut lookups: JoinSet<(Site, PeerAddress)> = JoinSet::new();
    let mut under_way: BTreeMap<Site, u64> = BTreeMap::new();
    loop {
        tokio::select! {
            ask = asks.recv() => match ask {
                None => return,
                Some(ResolverRequest::Reported(peers)) => {
                    for peer in peers.iter() {
                        let site = Site(peer.container().0);
                        known.insert(site, peer.clone());
                        under_way.insert(site, peer.worker.incarnation);
                        lookups.spawn(look_up(site, peer.clone(), Duration::ZERO));
                    }
                }
                Some(ResolverRequest::Retry(site)) => {
                    if let Some(peer) = known.get(&site)
                        && is_name(&peer.endpoint)
                        && !under_way.contains_key(&site)
                    {
                        under_way.insert(site, peer.worker.incarnation);
                        lookups.spawn(look_up(site, peer.clone(), RETRY_DELAY));
                    }
                }
            },
            Some(Ok((site, found))) = lookups.join_next() => {
                if under_way.get(&site) == Some(&found.incarnation) {
                    under_way.remove(&site);
                }
                let is_newest = known
                    .get(&site)
                    .is_some_and(|peer| peer.worker.incarnation == found.incarnation);
                if !is_newest {
                    continue;
                }
                if found.addresses.is_empty()
                    && let Some(peer) = known.get(&site)
                {
                    under_way.insert(site, peer.worker.incarnation);
                    lookups.spawn(look_up(site, peer.clone(), RETRY_DELAY));
                }
                network.peers(vec![found]);
            }
        }
    }
}

async fn look_up(site: Site, peer: Peer, after: Duration) -> (Site, PeerAddress) {
    if !after.is_zero() {
        tokio::time::sleep(after).await;
    }
    let addresses = match peer.endpoint.parse() {
        Ok(address) => vec![address],
        Err(_) => match tokio::net::lookup_host(&*peer.endpoint).await {
            Ok(found) => found.collect(),
            Err(_) => Vec::new(),
        },
    };
    let found = PeerAddress {
        site,
        incarnation: peer.worker.incarnation,
        addresses,
    };
    (site, found)
}

fn is_name(endpoint: &str) -> bool {
    endpoint.parse::<std::net::SocketAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_coordination::control::WorkerId;
    use ardea_coordination::packing::ContainerId;

    fn peer(endpoint: &str) -> Peer {
        Peer {
            worker: WorkerId {
                container: ContainerId(2),
                incarnation: 7,
            },
            endpoint: endpoint.into(),
        }
    }

    fn found(endpoint: &str) -> PeerAddress {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let found = look_up(Site(2), peer(endpoint), Duration::ZERO);
        runtime.unwrap().block_on(found).1
    }

    #[test]
    fn a_peer_is_found_by_name_and_by_number() {
        for endpoint in ["localhost:7400", "127.0.0.1:7400", "[::1]:7400"] {
            let found = found(endpoint);
            assert_eq!(found.incarnation, 7);
            let ports: Vec<u16> = found.addresses.iter().map(|it| it.port()).collect();
            assert!(!ports.is_empty() && ports.iter().all(|port| *port == 7400));
        }
    }

    #[test]
    fn a_name_that_leads_nowhere_gives_no_address() {
        assert_eq!(found("no such host:7400").addresses, []);
    }
}
