//! What is known of each peer, and when to try to reach it again.

use std::net::SocketAddr;
use std::time::Duration;

use super::{PeerAddress, RETRY};
use crate::station::LinkNumber;

/// After so many attempts in vain a container that is no part of the job is not tried any more.
const MOST_ATTEMPTS: u32 = 5;

/// What is known of a peer.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// The newest life that has been heard of.
    pub(super) incarnation: u64,
    addresses: Vec<SocketAddr>,
    next_address: usize,
    /// Attempts in vain since it was last reached or told of.
    attempts: u32,
    /// When to connect, if this side connects and there is no connection.
    pub(super) retry_at: Option<Duration>,
    /// The connection that it has greeted over, or that is being made.
    pub(super) link: Option<LinkNumber>,
}

impl PeerState {
    /// Takes in what the master says; whether this is a later life than the one known.
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

    /// Where to try next.
    pub(super) fn next_address(&mut self) -> Option<SocketAddr> {
        let address = self.addresses.get(self.next_address).copied();
        self.next_address = (self.next_address + 1) % self.addresses.len().max(1);
        address
    }

    /// It has been reached.
    pub(super) fn reached(&mut self, link: LinkNumber) {
        self.link = Some(link);
        self.attempts = 0;
        self.retry_at = None;
    }

    /// The connection is gone: tried again at once.
    pub(super) fn lost(&mut self, now: Duration) {
        self.link = None;
        self.retry_at = Some(now);
    }

    /// It could not be reached: tried again after a while that grows, unless it is no part of the job.
    pub(super) fn missed(&mut self, now: Duration, is_member: bool) {
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
            peer.missed(Duration::ZERO, true);
            let delay = peer.retry_at.unwrap();
            assert!(delay >= last && delay <= RETRY.1);
            last = delay;
        }
        peer.missed(Duration::ZERO, false);
        assert_eq!(peer.retry_at, None);
    }
}
