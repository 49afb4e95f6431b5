//! The limit on the rate of requests of each client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of addresses from which the state of quiet ones is removed.
const MANY_ADDRESSES: usize = 4_096;

/// The rates of requests. Each address may send a burst of one second's requests, and the
/// configured number a second in the long run.
#[derive(Debug)]
pub(super) struct RequestRates {
    per_second: u32,
    start: Instant,
    clients: Mutex<HashMap<IpAddr, Bucket>>,
}

/// The requests that an address may send at once, as of a time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Duration,
}

impl RequestRates {
    /// Creates the limit. At zero there is no limit.
    pub(super) fn new(per_second: u32) -> Self {
        RequestRates {
            per_second,
            start: Instant::now(),
            clients: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the number of requests per second.
    pub(super) fn per_second(&self) -> u32 {
        self.per_second
    }

    /// Counts a request. Returns false if it is one too many.
    pub(super) fn take(&self, client: IpAddr) -> bool {
        self.take_at(client, self.start.elapsed())
    }

    fn take_at(&self, client: IpAddr, now: Duration) -> bool {
        let rate = f64::from(self.per_second);
        if rate == 0.0 {
            return true;
        }
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MANY_ADDRESSES {
            // A bucket that is a second old is full again.
            clients.retain(|_, bucket| now.saturating_sub(bucket.at) < Duration::from_secs(1));
        }
        let full = Bucket {
            left: rate,
            at: now,
        };
        let bucket = clients.entry(client).or_insert(full);
        let passed = now.saturating_sub(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * rate).min(rate);
        bucket.at = now;
        if bucket.left < 1.0 {
            return false;
        }
        bucket.left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_client_may_send_a_burst_and_then_its_rate() {
        let rates = RequestRates::new(10);
        let at = Duration::from_millis;
        for _ in 0..10 {
            assert!(rates.take_at(CLIENT, at(0)));
        }
        assert!(!rates.take_at(CLIENT, at(0)));
        // Another address has its own rate.
        let other = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
        assert!(rates.take_at(other, at(0)));
        assert!(rates.take_at(CLIENT, at(150)));
        assert!(!rates.take_at(CLIENT, at(150)));
        assert!(RequestRates::new(0).take_at(CLIENT, at(0)));
    }

    #[test]
    fn the_state_of_quiet_addresses_is_removed() {
        let rates = RequestRates::new(10);
        for address in 0..20_000_u32 {
            let client = IpAddr::V4(std::net::Ipv4Addr::from(address));
            let now = Duration::from_millis(u64::from(address));
            assert!(rates.take_at(client, now));
        }
        let clients = rates.clients.lock().unwrap().len();
        assert!(clients <= MANY_ADDRESSES, "{clients}");
    }
}
