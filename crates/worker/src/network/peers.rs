//! The state of each peer and its connection retries.

use std::net::SocketAddr;
use std::time::Duration;

use super::{PeerAddress, RETRY};
use crate::port_slot::LinkNumber;

/// Maximum number of failed attempts to reach a container that is not part of the job.
const MOST_ATTEMPTS: u32 = 5;

/// The state of a peer.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// The newest known incarnation of the peer.
    pub(super) incarnation: u64,
    addresses: Vec<SocketAddr>,
    next_address: usize,
    /// The number of failed connection attempts since the last success or the last report of the
    /// leader.
    attempts: u32,
    /// The time of the next connection attempt, if this side connects and there is no connection.
    pub(super) retry_at: Option<Duration>,
    /// The current connection, or the connection being opened.
    pub(super) link: Option<LinkNumber>,
}

impl PeerState {
    /// Applies the leader's report about the peer. Returns true if the report contains a later
    /// incarnation.
    pub(super) fn told(&mut self, told: PeerAddress, now: Duration) -> bool {
        if told.incarnation < self.incarnation {
            return false;
        }
        let is_later = told.incarnation > self.incarnation;
        if is_later || told.addresses != self.addresses {
            self.addresses = told.addresses;
            self.next_address = 0;
            self.attempts = 0;
            self.retry_at = Some(now);
        }
        self.incarnation = told.incarnation;
        is_later
    }

    /// Returns the next address of the peer to try.
    pub(super) fn next_address(&mut self) -> Option<SocketAddr> {
        let address = self.addresses.get(self.next_address).copied();
        self.next_address = (self.next_address + 1) % self.addresses.len().max(1);
        address
    }

    /// Records a completed handshake over the connection `link`.
    pub(super) fn record_success(&mut self, link: LinkNumber) {
        self.link = Some(link);
        self.attempts = 0;
        self.retry_at = None;
    }

    /// Records the loss of the connection, and schedules an immediate retry.
    pub(super) fn lost(&mut self, now: Duration) {
        self.link = None;
        self.retry_at = Some(now);
    }

    /// Records a failed connection attempt and schedules a retry with an increasing delay. A peer
    /// outside the job is retried [`MOST_ATTEMPTS`] times at most.
    pub(super) fn record_failure(&mut self, now: Duration, is_member: bool) {
        self.link = None;
        self.attempts += 1;
        let delay = RETRY.0 * (1 << self.attempts.min(10));
        let goes_on = is_member || self.attempts < MOST_ATTEMPTS;
        self.retry_at = goes_on.then(|| now + delay.min(RETRY.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_engine::Site;

    fn told(incarnation: u64, port: u16) -> PeerAddress {
        PeerAddress {
            site: Site(2),
            incarnation,
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], port))],
        }
    }

    #[test]
    fn a_later_life_takes_the_place_of_an_earlier_one_and_never_the_other_way_round() {
        let mut peer = PeerState::default();
        assert!(peer.told(told(2, 7), Duration::ZERO));
        assert!(!peer.told(told(1, 8), Duration::ZERO));
        assert_eq!(peer.next_address().map(|at| at.port()), Some(7));
        assert!(peer.told(told(3, 9), Duration::ZERO));
        assert_eq!(peer.next_address().map(|at| at.port()), Some(9));
    }

    #[test]
    fn attempts_become_rarer_and_never_stop_for_a_member() {
        let mut peer = PeerState::default();
        peer.told(told(1, 7), Duration::ZERO);
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            peer.record_failure(Duration::ZERO, true);
            let delay = peer.retry_at.unwrap();
            assert!(delay >= last && delay <= RETRY.1);
            last = delay;
        }
        peer.record_failure(Duration::ZERO, false);
        assert_eq!(peer.retry_at, None);
    }
}
