//! The state of each peer and its connection retries.

use std::time::Duration;

use ardea_network::exchange::LinkNumber;

use super::RETRY;

/// Maximum number of failed attempts to reach a container that is not part of the job.
const MOST_ATTEMPTS: u32 = 5;

/// An address at which a peer is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PeerLocation {
    /// A name that exists only if the peer is on this host.
    OnHost(String),
    /// An address of the network.
    InNetwork(String),
}

impl PeerLocation {
    /// Returns the address in the notation of transports.
    pub(super) fn as_str(&self) -> &str {
        match self {
            PeerLocation::OnHost(address) | PeerLocation::InNetwork(address) => address,
        }
    }
}

/// The state of a peer.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// The newest known incarnation of the peer.
    pub(super) incarnation: u64,
    /// The addresses, in the order in which they are tried.
    addresses: Vec<PeerLocation>,
    next_address: usize,
    /// The number of times that all addresses have failed since the last success or the last report
    /// of the leader.
    attempts: u32,
    /// The time of the next connection attempt, if this side connects and there is no connection.
    pub(super) retry_at: Option<Duration>,
    /// The current connection, or the connection being opened.
    pub(super) link: Option<LinkNumber>,
}

impl PeerState {
    /// Applies the leader's report about the peer. Returns true if the report contains a later
    /// incarnation.
    pub(super) fn told(
        &mut self,
        incarnation: u64,
        addresses: Vec<PeerLocation>,
        now: Duration,
    ) -> bool {
        if incarnation < self.incarnation {
            return false;
        }
        let is_later = incarnation > self.incarnation;
        if is_later || addresses != self.addresses {
            self.addresses = addresses;
            self.next_address = 0;
            self.attempts = 0;
            self.retry_at = Some(now);
        }
        self.incarnation = incarnation;
        is_later
    }

    /// Returns the next address of the peer to try.
    pub(super) fn next_address(&mut self) -> Option<PeerLocation> {
        let address = self.addresses.get(self.next_address).cloned();
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
        self.next_address = 0;
        self.retry_at = Some(now);
    }

    /// Records a failed connection attempt. Schedules an attempt at the next address at once, or,
    /// after the last one, at the first address with an increasing delay. A peer outside the job is
    /// retried [`MOST_ATTEMPTS`] times at most.
    pub(super) fn record_failure(&mut self, now: Duration, is_member: bool) {
        self.link = None;
        if self.next_address > 0 {
            self.retry_at = Some(now);
            return;
        }
        self.attempts += 1;
        let delay = RETRY.0 * (1 << self.attempts.min(10));
        let goes_on = is_member || self.attempts < MOST_ATTEMPTS;
        self.retry_at = goes_on.then(|| now + delay.min(RETRY.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_network(port: u16) -> PeerLocation {
        PeerLocation::InNetwork(format!("127.0.0.1:{port}"))
    }

    #[test]
    fn a_later_life_takes_the_place_of_an_earlier_one_and_never_the_other_way_round() {
        let mut peer = PeerState::default();
        assert!(peer.told(2, vec![in_network(7)], Duration::ZERO));
        assert!(!peer.told(1, vec![in_network(8)], Duration::ZERO));
        assert_eq!(peer.next_address(), Some(in_network(7)));
        assert!(peer.told(3, vec![in_network(9)], Duration::ZERO));
        assert_eq!(peer.next_address(), Some(in_network(9)));
    }

    #[test]
    fn all_addresses_are_tried_before_there_is_a_delay_and_the_first_one_after_a_loss() {
        let mut peer = PeerState::default();
        let on_host = PeerLocation::OnHost("unix:x".into());
        peer.told(1, vec![on_host.clone(), in_network(7)], Duration::ZERO);
        let now = Duration::from_secs(1);
        for _ in 0..2 {
            assert_eq!(peer.next_address(), Some(on_host.clone()));
            peer.record_failure(now, true);
            assert_eq!(peer.retry_at, Some(now));
            assert_eq!(peer.next_address(), Some(in_network(7)));
            peer.record_failure(now, true);
            assert!(peer.retry_at > Some(now));
        }
        peer.next_address();
        peer.next_address();
        peer.next_address();
        peer.lost(now);
        assert_eq!(peer.next_address(), Some(on_host));
    }

    #[test]
    fn attempts_become_rarer_and_never_stop_for_a_member() {
        let mut peer = PeerState::default();
        peer.told(1, vec![in_network(7)], Duration::ZERO);
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
