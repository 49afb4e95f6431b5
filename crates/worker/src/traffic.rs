//! Byte counters of the traffic with other containers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Name = Arc<str>;

/// The byte counters of frames with records. Counters are looked up once and incremented without a
/// lock.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    received: Mutex<BTreeMap<(Name, u32), Arc<AtomicU64>>>,
    sent: Mutex<BTreeMap<(Name, Name), Arc<AtomicU64>>>,
}

/// The bytes received for one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) vertex: Name,
    pub(crate) instance: u32,
    pub(crate) bytes: u64,
}

/// The bytes that the local instances of one vertex have sent to instances of another vertex in
/// other containers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) from: Name,
    pub(crate) to: Name,
    pub(crate) bytes: u64,
}

impl Traffic {
    /// Returns the counter of bytes received for an instance.
    fn receiving(&self, vertex: &Name, instance: u32) -> Arc<AtomicU64> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(received.entry((Arc::clone(vertex), instance)).or_default())
    }

    /// Returns the counter of bytes sent from one vertex to another.
    pub(crate) fn sending(&self, from: &Name, to: &Name) -> Arc<AtomicU64> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let edge = (Arc::clone(from), Arc::clone(to));
        Arc::clone(sent.entry(edge).or_default())
    }

    /// Returns the received bytes by instance.
    pub(crate) fn received(&self) -> Vec<Received> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let all = received.iter().map(|((vertex, instance), bytes)| Received {
            vertex: Arc::clone(vertex),
            instance: *instance,
            bytes: bytes.load(Ordering::Relaxed),
        });
        all.collect()
    }

    /// Returns the sent bytes for each pair of sending and receiving vertex.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let all = sent.iter().map(|((from, to), bytes)| Sent {
            from: Arc::clone(from),
            to: Arc::clone(to),
            bytes: bytes.load(Ordering::Relaxed),
        });
        all.collect()
    }
}

/// The counters of bytes received over one edge.
#[derive(Debug)]
pub(crate) struct Arrivals {
    traffic: Arc<Traffic>,
    vertex: Name,
    /// The counters by instance.
    counters: Vec<Option<Arc<AtomicU64>>>,
}

impl Arrivals {
    /// Creates the counters for the receiving instances of this vertex.
    pub(crate) fn new(traffic: Arc<Traffic>, vertex: Name) -> Self {
        Arrivals {
            traffic,
            vertex,
            counters: Vec::new(),
        }
    }

    /// Counts bytes received for a local instance.
    pub(crate) fn count(&mut self, instance: usize, bytes: u64) {
        if self.counters.len() <= instance {
            self.counters.resize(instance + 1, None);
        }
        let counter = self.counters[instance]
            .get_or_insert_with(|| self.traffic.receiving(&self.vertex, instance as u32));
        counter.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_edges_bring_to_an_instance_is_added_up() {
        let traffic = Arc::<Traffic>::default();
        let vertex = Name::from("counts");
        for bytes in [10, 20] {
            let mut edge = Arrivals::new(Arc::clone(&traffic), Arc::clone(&vertex));
            edge.count(2, bytes);
            edge.count(2, 1);
        }
        let all = Received {
            vertex,
            instance: 2,
            bytes: 32,
        };
        assert_eq!(traffic.received(), [all]);
    }
}
