//! What others ask of the network's thread.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use ardea_engine::Site;

use super::PeerAddress;
use crate::berth::Tended;
use crate::station::{LinkNumber, Station};

/// A wish.
pub(crate) enum Request {
    /// Put ports into this station.
    Join(Arc<Station>),
    /// Peers are there.
    Peers(Vec<PeerAddress>),
    /// These are the containers of the job.
    Members(BTreeSet<Site>),
    /// Somebody has given up a connection's port.
    Complaint(Site, LinkNumber, String),
    /// Tend this.
    Tend(Weak<dyn Tended>),
    /// Send what there is to send, and end.
    Stop,
}
