//! Values in the order in which they were added: queues, whose values are taken out, and ring buffers, whose oldest values go when there are too many.

mod buffer;
mod queue;

use std::sync::Arc;

use crate::protocol::{Answer, MapId, Operation, WhenFull};
use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Error, ErrorCode, PartitionId, Result, StateCodec};
use bytes::Bytes;

use crate::node::asking::Asking;
use crate::node::config::MOST_BYTES;
use crate::node::grid::Inner;

pub use buffer::{GridRing, Run};
pub use queue::GridQueue;

/// A ring of values, all of them in one partition: that of its name.
struct Ring<V> {
    asking: Asking,
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

impl<V: Kept> Ring<V> {
    fn new(inner: Arc<Inner>, of: (&'static str, &str), capacity: u64) -> Result<Self> {
        let (kind, name) = of;
        let codec = state_codec_of::<V>().ok_or_else(|| {
            let what = format!("values of the {kind} {name:?} can't leave their process");
            Error::new(ErrorCode::InvalidConfig, what).hint("use a type that is not `Local`")
        })?;
        if capacity == 0 {
            let what = format!("the {kind} {name:?} is to have room for no value");
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint("give it a capacity"));
        }
        // Queues and ring buffers of one name are different ones.
        let id = MapId::of_ring(&format!("{kind} {name}"));
        Ok(Ring {
            asking: Asking::of(inner, of, id),
            partition: PartitionId::of_canonical(name.as_bytes()),
            capacity,
            codec,
        })
    }

    /// Adds a value; its number, if there was room.
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
                "at most {MOST_BYTES} bytes are taken: keep large things elsewhere, and where they are here"
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
            other => Err(self.asking.no_answer(&other)),
        }
    }

    /// Takes the first value out.
    fn take(&self) -> Result<Option<V>> {
        match self
            .asking
            .ask(self.partition, Operation::Take(self.asking.id))?
        {
            Answer::Value(value) => value.map(|value| self.value(value)).transpose(),
            other => Err(self.asking.no_answer(&other)),
        }
    }

    /// About so many bytes of values from that number on, at least one if there is one: the number of the first, the values, and the number that comes next to the ring.
    fn read(&self, from: u64, bytes: u32) -> Result<(u64, Vec<V>, u64)> {
        let ring = self.asking.id;
        let read = Operation::Read { ring, from, bytes };
        match self.asking.ask(self.partition, read)? {
            Answer::Run { from, values, next } => {
                let values = values.into_iter().map(|value| self.value(value));
                Ok((from, values.collect::<Result<_>>()?, next))
            }
            other => Err(self.asking.no_answer(&other)),
        }
    }

    /// How many values there are. None of them travels.
    fn len(&self) -> Result<u64> {
        match self
            .asking
            .ask(self.partition, Operation::Count(self.asking.id))?
        {
            // One entry says where it begins and ends, from the first value on.
            Answer::Count(entries) => Ok(entries.saturating_sub(1)),
            other => Err(self.asking.no_answer(&other)),
        }
    }

    fn value(&self, bytes: Bytes) -> Result<V> {
        self.codec.get(&bytes)
    }
}
