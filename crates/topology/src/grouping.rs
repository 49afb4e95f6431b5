//! Groupings, which determine the bolt instance that gets a tuple.

use std::fmt;
use std::sync::Arc;

use ardea_core::{Chunk, PartitionId, Replicate, Result, Routing, Scatter};

use crate::batch::{TupleBatch, batch_of};
use crate::tuple::{Origin, Tuple, Tuples};
use crate::value::Field;

/// A function from a tuple and the number of instances to the target instance.
pub(crate) type Choose = dyn Fn(&Tuple<'_>, u32) -> u32 + Send + Sync;

/// A rule that determines the bolt instance that gets a tuple.
#[derive(Clone)]
pub(crate) enum Grouping {
    /// Batches in turn, to any instance with room.
    Shuffle,
    /// To an instance in the sender's process, on the same thread if both components have the same
    /// parallelism. Shuffled if no instance is in that process.
    LocalOrShuffle,
    /// To the instance that owns the values of these fields.
    Fields(Vec<Arc<str>>),
    /// To every instance.
    All,
    /// To the first instance.
    Global,
    /// Without a choice of distribution; tuples are shuffled.
    None,
    /// To the instance that the sender names.
    Direct,
    /// To the instance that a function chooses.
    Custom(Arc<Choose>),
}

impl Grouping {
    /// Returns the name for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Grouping::Shuffle => "shuffle",
            Grouping::LocalOrShuffle => "local-or-shuffle",
            Grouping::Fields(_) => "fields",
            Grouping::All => "all",
            Grouping::Global => "global",
            Grouping::None => "none",
            Grouping::Direct => "direct",
            Grouping::Custom(_) => "custom",
        }
    }

    /// Returns the positions of the fields of a fields grouping; `None` for another grouping.
    pub(crate) fn key_places(&self, origin: &Origin) -> Option<Vec<usize>> {
        let Grouping::Fields(fields) = self else {
            return None;
        };
        let places = fields
            .iter()
            .filter_map(|field| origin.fields.iter().position(|name| name == field));
        Some(places.collect())
    }

    /// Returns the routing of an edge of the graph. `is_aligned` is true if both ends always have
    /// the same parallelism. The fields of the grouping must exist.
    pub(crate) fn routing(&self, origin: &Origin, is_aligned: bool) -> Routing {
        match self {
            Grouping::LocalOrShuffle if is_aligned => Routing::Forward,
            Grouping::LocalOrShuffle => Routing::LocalOrRoundRobin,
            Grouping::Shuffle | Grouping::None => Routing::RoundRobin,
            Grouping::Global => Routing::AllToOne,
            Grouping::All => Routing::Broadcast(Arc::new(Copies)),
            Grouping::Direct => Routing::Custom(Arc::new(ByTarget)),
            Grouping::Fields(_) => Routing::Keyed(Arc::new(ByFields {
                places: self.key_places(origin).unwrap_or_default(),
            })),
            Grouping::Custom(choose) => Routing::Custom(Arc::new(ByChoice {
                choose: Arc::clone(choose),
                origin: origin.clone(),
            })),
        }
    }
}

impl fmt::Debug for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grouping::Fields(fields) => write!(f, "fields({})", fields.join(", ")),
            other => f.write_str(other.name()),
        }
    }
}

/// Moves each tuple to the batch of its consumer.
fn scatter(
    from: &mut Chunk,
    to: &mut [Chunk],
    mut owner: impl FnMut(&TupleBatch, usize, u32) -> u32,
) -> Result<()> {
    let from = batch_of(from)?;
    let consumers = to.len() as u32;
    let mut targets = to.iter_mut().map(batch_of).collect::<Result<Vec<_>>>()?;
    let mut guard = ardea_core::RecordGuard::new();
    for index in 0..from.len() {
        let target = owner(from, index, consumers) as usize;
        targets[target].push_copy(from, index)?;
        guard.advance();
    }
    from.clear();
    Ok(())
}

/// Routes to the owner of some fields, computed as for keys of a pipeline: one field is the key
/// itself, several are its parts.
struct ByFields {
    places: Vec<usize>,
}

impl Scatter for ByFields {
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], _: usize) -> Result<()> {
        let mut key = Vec::new();
        scatter(from, to, |batch, index, consumers| {
            let tuple = batch.tuple(index);
            // The key of one field is not copied.
            let partition = match &self.places[..] {
                [place] => match field(tuple, *place) {
                    Some(field) => field.with_canonical(PartitionId::of_canonical),
                    None => PartitionId::of_canonical(&[]),
                },
                places => {
                    key.clear();
                    write_key(tuple, places, &mut key);
                    PartitionId::of_canonical(&key)
                }
            };
            partition.owner(consumers)
        })
    }
}

/// Appends the canonical bytes of the key that consists of the fields at `places`: one field is the
/// key itself, several are its parts.
pub(crate) fn write_key(tuple: &[u8], places: &[usize], key: &mut Vec<u8>) {
    if let [place] = places {
        if let Some(field) = field(tuple, *place) {
            field.with_canonical(|bytes| key.extend_from_slice(bytes));
        }
        return;
    }
    let fields = places.iter().filter_map(|place| field(tuple, *place));
    fields.for_each(|field| field.write_part(key));
}

fn field(mut tuple: &[u8], place: usize) -> Option<Field<'_>> {
    for _ in 0..place {
        tuple = Field::first(tuple)?.1;
    }
    Field::first(tuple).map(|(field, _)| field)
}

/// Routes to the target instance of each tuple, which the sender has checked.
struct ByTarget;

impl Scatter for ByTarget {
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], _: usize) -> Result<()> {
        scatter(from, to, |batch, index, consumers| {
            batch.target_of(index).unwrap_or(0) % consumers
        })
    }
}

/// Routes to the instance that a user's function chooses.
struct ByChoice {
    choose: Arc<Choose>,
    origin: Origin,
}

impl Scatter for ByChoice {
    fn scatter(&self, from: &mut Chunk, to: &mut [Chunk], _: usize) -> Result<()> {
        scatter(from, to, |batch, index, consumers| {
            let tuples = Tuples {
                batch,
                origin: &self.origin,
            };
            (self.choose)(&tuples.get(index), consumers) % consumers
        })
    }
}

/// Routes to every instance.
struct Copies;

impl Replicate for Copies {
    fn replicate(&self, from: &mut Chunk, to: &mut Chunk) -> Result<()> {
        batch_of(to)?.append_copy(batch_of(from)?)
    }
}
