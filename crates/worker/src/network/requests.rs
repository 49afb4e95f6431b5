//! Requests to the network thread.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ardea_engine::Site;
use ardea_network::exchange::{LinkNumber, PortSlot};

use super::PeerAddress;
use crate::endpoint_slot::Serviced;

/// A request to the network thread.
pub(crate) enum Request {
    /// Put the ports of new connections into this slot.
    Join(Arc<PortSlot>),
    /// Update the addresses of these peers.
    Peers(Vec<PeerAddress>),
    /// Set the containers that belong to the job.
    Members(BTreeSet<Site>),
    /// Drop the invalid connection of this number to this peer, for this reason.
    Complaint(Site, LinkNumber, String),
    /// Gather data for at most this time, which is the least latency budget of the job's edges.
    LimitLatency(Duration),
    /// Service this object once.
    Tend(Weak<dyn Serviced>),
    /// Send pending data and end.
    Stop,
}
