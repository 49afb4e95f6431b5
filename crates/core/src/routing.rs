//! Which instance of the consumer a record goes to.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::{Chunk, Key, PartitionId, Result, Rows};

/// Which instance of the consumer a record goes to.
#[derive(Clone)]
pub enum Routing {
    /// From instance *i* to instance *i*: no record changes its core. Both vertices have the same parallelism.
    Forward,
    /// Whole chunks in turn, to whichever consumer has room.
    RoundRobin,
    /// To the owner of the record's key.
    Keyed(Arc<dyn Scatter>),
    /// To every instance.
    Broadcast(Arc<dyn Replicate>),
    /// To the first instance.
    AllToOne,
    /// To where the user's function says.
    Custom(Arc<dyn Scatter>),
}

impl Routing {
    /// To the owner of `key(record)`.
    pub fn keyed<T, K, F>(key: F) -> Routing
    where
        T: Send + 'static,
        K: Key,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        Routing::Keyed(Arc::new(Keyed {
            key,
            record: PhantomData::<fn(&T)>,
        }))
    }

    /// To the instance `choose(record)` modulo the number of instances.
    pub fn custom<T, F>(choose: F) -> Routing
    where
        T: Send + 'static,
        F: Fn(&T) -> u32 + Send + Sync + 'static,
    {
        Routing::Custom(Arc::new(Custom {
            choose,
            record: PhantomData::<fn(&T)>,
        }))
    }

    /// A copy to every instance.
    pub fn broadcast<T: Clone + Send + 'static>() -> Routing {
        Routing::Broadcast(Arc::new(Broadcast {
            record: PhantomData::<fn(&T)>,
        }))
    }

    /// A word for plans and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Routing::Forward => "forward",
            Routing::RoundRobin => "round-robin",
            Routing::Keyed(_) => "keyed",
            Routing::Broadcast(_) => "broadcast",
            Routing::AllToOne => "all-to-one",
            Routing::Custom(_) => "custom",
        }
    }
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Splits a chunk over several consumers by a property of each record.
pub trait Scatter: Send + Sync {
    /// Moves every record of `from` to the chunk of its consumer, in order.
    ///
    /// `capacity` is the room that a consumer's chunk gets when it is made.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the chunk holds another type.
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], capacity: usize) -> Result<()>;
}

/// Copies a chunk for several consumers.
pub trait Replicate: Send + Sync {
    /// Appends a copy of the records of `from` to `to`.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the chunk holds another type.
    fn replicate(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()>;
}

/// Scatters by the owner of a key; see [`Routing::keyed`].
pub struct Keyed<T, F> {
    key: F,
    record: PhantomData<fn(&T)>,
}

impl<T, K, F> Scatter for Keyed<T, F>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync,
{
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], capacity: usize) -> Result<()> {
        let consumers = to.len() as u32;
        scatter_by(from, to, capacity, |record: &T| {
            PartitionId::of(&(self.key)(record)).owner(consumers)
        })
    }
}

/// Scatters by a user's function; see [`Routing::custom`].
pub struct Custom<T, F> {
    choose: F,
    record: PhantomData<fn(&T)>,
}

impl<T, F> Scatter for Custom<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> u32 + Send + Sync,
{
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], capacity: usize) -> Result<()> {
        let consumers = to.len() as u32;
        scatter_by(from, to, capacity, |record: &T| {
            (self.choose)(record) % consumers
        })
    }
}

fn scatter_by<T: Send + 'static>(
    from: &mut Chunk,
    to: &mut [Chunk],
    capacity: usize,
    owner: impl Fn(&T) -> u32,
) -> Result<()> {
    let rows = from.rows::<T>()?;
    let mut targets = to
        .iter_mut()
        .map(|chunk| chunk.rows_or_new::<T>(capacity))
        .collect::<Result<Vec<_>>>()?;
    let count = rows.len();
    let mut guard = crate::RecordGuard::new();
    for (value, time) in rows.drain_front(count) {
        let target = owner(&value) as usize;
        targets[target].push(value, time);
        guard.advance();
    }
    Ok(())
}

/// Copies records; see [`Routing::broadcast`].
pub struct Broadcast<T> {
    record: PhantomData<fn(&T)>,
}

impl<T: Clone + Send + 'static> Replicate for Broadcast<T> {
    fn replicate(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()> {
        let rows: &Rows<T> = from.rows::<T>()?;
        let copy = to.rows_or_new::<T>(rows.len())?;
        copy.extend(rows.iter().map(|(value, time)| (value.clone(), time)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn equal_keys_meet_and_no_record_is_lost() {
        let mut chunk = Chunk::new(
            (0..1000u64)
                .map(|i| (i, Timestamp::MIN))
                .collect::<Rows<u64>>(),
        );
        let mut targets = [Chunk::default(), Chunk::default(), Chunk::default()];
        let Routing::Keyed(scatter) = Routing::keyed(|i: &u64| i % 7) else {
            unreachable!()
        };
        scatter.scatter(&mut chunk, &mut targets, 16).unwrap();
        assert!(chunk.is_empty());
        assert_eq!(targets.iter().map(Chunk::len).sum::<usize>(), 1000);
        for key in 0..7u64 {
            let homes = targets
                .iter_mut()
                .map(|target| {
                    target
                        .rows::<u64>()
                        .unwrap()
                        .values()
                        .iter()
                        .any(|i| i % 7 == key)
                })
                .filter(|has_key| *has_key)
                .count();
            assert_eq!(homes, 1, "key {key}");
        }
    }
}
