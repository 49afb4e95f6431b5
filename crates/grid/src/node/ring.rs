//! Queues, and ring buffers whose oldest values are overwritten when they are full.

mod buffer;
mod queue;

use std::sync::Arc;

use crate::protocol::{Answer, MapId, Operation, WhenFull};
use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Error, ErrorCode, PartitionId, Result, StateCodec};
use bytes::Bytes;

use crate::node::client::GridClient;
use crate::node::config::MOST_BYTES;
use crate::node::grid::Inner;

pub use buffer::{GridRing, Run};
pub use queue::GridQueue;

/// A ring of values, stored in one partition, which is determined by its name.
struct Ring<V> {
    asking: GridClient,
    partition: PartitionId,
    capacity: u64,
    codec: Arc<dyn StateCodec<V>>,
}

impl<V> Clone for Ring<V> {
    fn clone(&self) -> Self {
        Ring {
            asking: self.asking.clone(),
            partition: self.partition,
            capacity: self.capacity,
            codec: Arc::clone(&self.codec),
        }
    }
}

impl<V: StateValue> Ring<V> {
    fn new(inner: Arc<Inner>, of: (&'static str, &str), capacity: u64) -> Result<Self> {
        let (kind, name) = of;
        let codec = state_codec_of::<V>().ok_or_else(|| {
            let what = format!("values of the {kind} {name:?} cannot be serialized");
            Error::new(ErrorCode::InvalidConfig, what).hint("use a type that is not `Local`")
        })?;
        if capacity == 0 {
            let what = format!("the {kind} {name:?} has capacity 0");
            return Err(
                Error::new(ErrorCode::InvalidConfig, what).hint("use a capacity of at least 1")
            );
        }
        // A queue and a ring buffer with the same name are different objects.
        let id = MapId::of_ring(&format!("{kind} {name}"));
        Ok(Ring {
            asking: GridClient::of(inner, of, id),
            partition: PartitionId::of_canonical(name.as_bytes()),
            capacity,
            codec,
        })
    }

    /// Appends a value. Returns its number, `None` if the ring is full.
    fn append(&self, value: &V, full: WhenFull) -> Result<Option<u64>> {
        let mut bytes = Vec::new();
        self.codec.put(value, &mut bytes)?;
        if bytes.len() > MOST_BYTES {
            let what = format!(
                "a value of {} bytes is too large for {}",
                bytes.len(),
                self.asking.what()
            );
            return Err(Error::new(ErrorCode::LimitReached, what).hint(format!(
                "the limit is {MOST_BYTES} bytes: store large objects elsewhere, and a reference to them here"
            )));
        }
        let append = Operation::Append {
            ring: self.asking.id,
            value: bytes.into(),
            capacity: self.capacity,
            full,
        };
        match self.asking.ask(self.partition, append)? {
            Answer::Place(place) => Ok(place),
            other => Err(self.asking.unexpected_answer(&other)),
        }
    }

    /// Removes and returns the first value.
    fn take(&self) -> Result<Option<V>> {
        match self
            .asking
            .ask(self.partition, Operation::Take(self.asking.id))?
        {
            Answer::Value(value) => value.map(|value| self.value(value)).transpose(),
            other => Err(self.asking.unexpected_answer(&other)),
        }
    }

    /// Reads about `bytes` bytes of values from a number on, at least one value if there is one.
    /// Returns the number of the first value, the values, and the number of the next value to be
    /// appended.
    fn read(&self, from: u64, bytes: u32) -> Result<(u64, Vec<V>, u64)> {
        let ring = self.asking.id;
        let read = Operation::Read { ring, from, bytes };
        match self.asking.ask(self.partition, read)? {
            Answer::Run { from, values, next } => {
                let values = values.into_iter().map(|value| self.value(value));
                Ok((from, values.collect::<Result<_>>()?, next))
            }
            other => Err(self.asking.unexpected_answer(&other)),
        }
    }

    /// Returns the number of values.
    fn len(&self) -> Result<u64> {
        match self
            .asking
            .ask(self.partition, Operation::Count(self.asking.id))?
        {
            // One of the entries stores the bounds of the ring; it exists once a value has been
            // added.
            Answer::Count(entries) => Ok(entries.saturating_sub(1)),
            other => Err(self.asking.unexpected_answer(&other)),
        }
    }

    fn value(&self, bytes: Bytes) -> Result<V> {
        self.codec.get(&bytes)
    }
}
