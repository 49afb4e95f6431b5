//! The table of worker addresses, sent to workers incrementally.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::ContainerId;

use crate::control::{Order, Peer};

/// The table of worker addresses. Each change is stamped with an [`Order`]. A worker that has the
/// changes up to one stamp receives those with later stamps, up to the published one.
#[derive(Debug)]
pub(super) struct Peers {
    table: BTreeMap<ContainerId, (Peer, Order)>,
    latest: Order,
    published: Order,
    unpublished_since: Option<Duration>,
    /// The last result of [`changed`](Self::changed), with its range of stamps; cached, since many
    /// workers need the same changes.
    last: Option<(Order, Order, Arc<[Peer]>)>,
}

impl Peers {
    pub(super) fn new() -> Self {
        Peers {
            table: BTreeMap::new(),
            latest: Order::default(),
            published: Order::default(),
            unpublished_since: None,
            last: None,
        }
    }

    pub(super) fn set(&mut self, now: Duration, peer: Peer, stamp: Order) {
        let known = self.table.get(&peer.container());
        if known.is_none_or(|(known, _)| *known != peer) {
            self.table.insert(peer.container(), (peer, stamp));
            self.latest = stamp;
            self.unpublished_since.get_or_insert(now);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(ContainerId) -> bool) {
        self.table.retain(|container, _| keep(*container));
    }

    /// Returns the stamp of the published state of the table, which all workers should have.
    pub(super) fn published(&self) -> Order {
        self.published
    }

    /// Returns the time of the first change that is not yet published, if any.
    pub(super) fn unpublished_since(&self) -> Option<Duration> {
        self.unpublished_since
    }

    pub(super) fn publish(&mut self) {
        self.published = self.latest;
        self.unpublished_since = None;
    }

    /// Returns the changes with stamps after `since`, up to the published state.
    pub(super) fn changed(&mut self, since: Order) -> Arc<[Peer]> {
        if let Some((from, to, peers)) = &self.last
            && (*from, *to) == (since, self.published)
        {
            return Arc::clone(peers);
        }
        let news = |stamp: Order| since < stamp && stamp <= self.published;
        let peers = self.table.values().filter(|(_, stamp)| news(*stamp));
        let peers: Arc<[Peer]> = peers.map(|(peer, _)| peer.clone()).collect();
        self.last = Some((since, self.published, Arc::clone(&peers)));
        peers
    }
}
