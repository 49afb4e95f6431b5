//! Routing of records to instances of the consumer.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::{Chunk, Error, ErrorCode, Key, PartitionId, Result, Rows, Timestamp};

/// The routing of an edge: selects the receiving instance of each record.
#[derive(Clone)]
pub enum Routing {
    /// From instance *i* to instance *i*, without changing cores. Both vertices must have the same
    /// parallelism.
    Forward,
    /// Whole chunks in turn, to the next consumer that has room.
    RoundRobin,
    /// Like round robin, among the consumers in the producer's process if there are any, else among
    /// all.
    LocalOrRoundRobin,
    /// To the instance that owns the partition of the record's key.
    Keyed(Arc<dyn Scatter>),
    /// To every instance.
    Broadcast(Arc<dyn Replicate>),
    /// To the first instance.
    AllToOne,
    /// To the instance selected by the user's function.
    Custom(Arc<dyn Scatter>),
}

impl Routing {
    /// Routes by the owner of the partition of `key(record)`.
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

    /// Routes to the instance `choose(record)` modulo the number of instances.
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

    /// Copies records to every instance.
    pub fn broadcast<T: Clone + Send + 'static>() -> Routing {
        Routing::Broadcast(Arc::new(Broadcast {
            record: PhantomData::<fn(&T)>,
        }))
    }

    /// Returns the name in plans and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Routing::Forward => "forward",
            Routing::RoundRobin => "round-robin",
            Routing::LocalOrRoundRobin => "local-or-round-robin",
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

/// A partitioner: splits a chunk over several consumers by a property of each record.
pub trait Scatter: Send + Sync {
    /// Moves every record of `from` to the chunk of its consumer, in order.
    ///
    /// `capacity` is the initial capacity of a consumer's chunk.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the chunk holds another type.
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], capacity: usize) -> Result<()>;
}

/// A replicator: copies a chunk for several consumers.
pub trait Replicate: Send + Sync {
    /// Appends a copy of the records of `from` to `to`.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`](crate::ErrorCode::TypeMismatch) if the chunk holds another type.
    fn replicate(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()>;
}

/// A partitioner by the owner of a key; see [`Routing::keyed`].
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

/// A partitioner by a user's function; see [`Routing::custom`].
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

/// Maximum number of consumers for which the lookup table is on the stack.
const CONSUMERS_ON_STACK: usize = 64;

/// Moves each record of `from` to the chunk of `to` with the index `owner(record)`.
fn scatter_by<T: Send + 'static>(
    from: &mut Chunk,
    to: &mut [Chunk],
    capacity: usize,
    owner: impl Fn(&T) -> u32,
) -> Result<()> {
    let rows = from.rows::<T>()?;
    let mut targets = to.iter_mut().map(|chunk| chunk.rows_or_new::<T>(capacity));
    if targets.len() <= CONSUMERS_ON_STACK {
        let mut on_stack = [const { None }; CONSUMERS_ON_STACK];
        for place in on_stack.iter_mut().take(targets.len()) {
            *place = targets.next().transpose()?;
        }
        // The remainder changes no index; it avoids a bounds check.
        move_each(rows, |value, time| {
            let target = &mut on_stack[owner(&value) as usize % CONSUMERS_ON_STACK];
            target.as_deref_mut().map(|target| target.push(value, time))
        })
    } else {
        let mut on_heap = targets.collect::<Result<Vec<_>>>()?;
        move_each(rows, |value, time| {
            let target = on_heap.get_mut(owner(&value) as usize);
            target.map(|target| target.push(value, time))
        })
    }
}

/// Passes each record to `put`, which returns `None` if the consumer does not exist.
#[inline]
fn move_each<T>(from: &mut Rows<T>, mut put: impl FnMut(T, Timestamp) -> Option<()>) -> Result<()> {
    let count = from.len();
    let mut guard = crate::RecordGuard::new();
    for (value, time) in from.drain_front(count) {
        if put(value, time).is_none() {
            let what = "a record was routed to a consumer that does not exist";
            return Err(Error::new(ErrorCode::Internal, what));
        }
        guard.advance();
    }
    Ok(())
}

/// A replicator that clones records; see [`Routing::broadcast`].
pub struct Broadcast<T> {
    record: PhantomData<fn(&T)>,
}

impl<T: Clone + Send + 'static> Replicate for Broadcast<T> {
    fn replicate(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()> {
        let rows: &Rows<T> = from.rows::<T>()?;
        let copy = to.rows_or_new::<T>(rows.len())?;
        let mut guard = crate::RecordGuard::new();
        copy.extend(rows.iter().map(|(value, time)| {
            let copied = (value.clone(), time);
            guard.advance();
            copied
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_consumers_get_their_records_too() {
        let numbers = (0..5_000u32).map(|number| (number, Timestamp::MIN));
        let mut chunk = Chunk::new(numbers.collect::<Rows<u32>>());
        let mut targets: Vec<Chunk> = (0..1_000).map(|_| Chunk::default()).collect();
        let Routing::Custom(scatter) = Routing::custom(|number: &u32| *number) else {
            unreachable!()
        };
        scatter.scatter(&mut chunk, &mut targets, 16).unwrap();
        for (index, target) in targets.iter_mut().enumerate() {
            let index = index as u32;
            let expected = [0, 1_000, 2_000, 3_000, 4_000].map(|base| base + index);
            assert_eq!(target.rows::<u32>().unwrap().values(), expected);
        }
    }

    /// A record whose clone panics from seven on.
    struct Fragile(u32);

    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert!(self.0 < 7, "too fragile");
            Fragile(self.0)
        }
    }

    #[test]
    fn a_copy_that_panics_names_its_record() {
        let records = [5, 6, 7, 8].map(|number| (Fragile(number), Timestamp::MIN));
        let mut chunk = Chunk::new(Rows::from_iter(records));
        let Routing::Broadcast(replicate) = Routing::broadcast::<Fragile>() else {
            unreachable!()
        };
        let copy = std::panic::AssertUnwindSafe(|| {
            drop(replicate.replicate(&mut chunk, &mut Chunk::default()));
        });
        assert!(std::panic::catch_unwind(copy).is_err());
        assert_eq!(crate::take_failed_index(), Some(2));
    }

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
