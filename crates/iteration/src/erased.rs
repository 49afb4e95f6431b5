//! Variables of different types behind one interface.

use std::any::{Any, type_name};
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::fault::VariableFault;
use crate::merge::Merge;
use crate::shared_variable::SharedVariable;

/// An update of any type.
pub(crate) type ErasedUpdate = Box<dyn Any + Send>;

/// A value of any type, which tasks share.
pub(crate) type SharedValue = Arc<dyn Any + Send + Sync>;

/// Updates of all variables, by the position of the variable; `None` if there is no update.
pub(crate) type UpdateSet = Vec<Option<ErasedUpdate>>;

/// The operations on updates of a variable. They need no value, and therefore no lock.
pub(crate) trait UpdateOperations: Send + Sync {
    fn merge(&self, into: &mut ErasedUpdate, from: ErasedUpdate);
    fn encode(&self, update: &ErasedUpdate) -> Result<Vec<u8>>;
    fn decode(&self, bytes: &[u8]) -> Result<ErasedUpdate>;
    /// Returns the fault of an update for this value, which is a `V`.
    fn fault_of(&self, value: &SharedValue, update: &ErasedUpdate) -> Option<VariableFault>;
}

/// The value of a variable.
pub(crate) trait ErasedValue: Send + Sync {
    fn operations(&self) -> Arc<dyn UpdateOperations>;
    fn apply(&mut self, update: ErasedUpdate);
    fn fault(&self) -> Option<VariableFault>;
    fn begin_group(&mut self, first: u64);
    fn end_group(&mut self, next: u64);
    fn encode(&self) -> Result<Vec<u8>>;
    fn restore(&mut self, bytes: &[u8]) -> Result<()>;
    fn shared(&self) -> SharedValue;
    fn as_any(&self) -> &(dyn Any + Send + Sync);
}

struct Operations<V>(PhantomData<fn() -> V>);

/// Returns the update of type `V::Update`. Handles are typed, so that it always has that type.
fn typed<V: SharedVariable>(update: ErasedUpdate) -> Option<V::Update> {
    update.downcast::<V::Update>().ok().map(|update| *update)
}

fn other_type<V>() -> Error {
    let what = format!("an update has not the type of {}", type_name::<V>());
    Error::new(ErrorCode::Internal, what)
}

impl<V: SharedVariable> UpdateOperations for Operations<V> {
    fn merge(&self, into: &mut ErasedUpdate, from: ErasedUpdate) {
        if let (Some(into), Some(from)) = (into.downcast_mut::<V::Update>(), typed::<V>(from)) {
            into.merge(from);
        }
    }

    fn encode(&self, update: &ErasedUpdate) -> Result<Vec<u8>> {
        let update = update.downcast_ref::<V::Update>();
        postcard::to_allocvec(update.ok_or_else(other_type::<V>)?).map_err(|error| {
            let what = format!("an update of a {} can't be encoded", type_name::<V>());
            Error::new(ErrorCode::UserError, what).because(error)
        })
    }

    fn decode(&self, bytes: &[u8]) -> Result<ErasedUpdate> {
        let update: V::Update = postcard::from_bytes(bytes).map_err(|error| {
            let what = format!("an update of a {} can't be decoded", type_name::<V>());
            Error::new(ErrorCode::BadMessage, what)
                .because(error)
                .hint("run the same program in all processes")
        })?;
        Ok(Box::new(update))
    }

    fn fault_of(&self, value: &SharedValue, update: &ErasedUpdate) -> Option<VariableFault> {
        let value = value.downcast_ref::<V>()?;
        value.fault_of(update.downcast_ref::<V::Update>()?)
    }
}

/// A value of a known type. Tasks share it; it is copied only if one still reads it while updates
/// are applied.
pub(crate) struct TypedValue<V>(pub(crate) Arc<V>);

impl<V: SharedVariable> ErasedValue for TypedValue<V> {
    fn operations(&self) -> Arc<dyn UpdateOperations> {
        Arc::new(Operations::<V>(PhantomData))
    }

    fn apply(&mut self, update: ErasedUpdate) {
        if let Some(update) = typed::<V>(update) {
            Arc::make_mut(&mut self.0).apply(update);
        }
    }

    fn fault(&self) -> Option<VariableFault> {
        self.0.fault()
    }

    fn begin_group(&mut self, first: u64) {
        Arc::make_mut(&mut self.0).begin_group(first);
    }

    fn end_group(&mut self, next: u64) {
        Arc::make_mut(&mut self.0).end_group(next);
    }

    fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_allocvec(&*self.0).map_err(|error| {
            let what = format!("a {} can't be encoded", type_name::<V>());
            Error::new(ErrorCode::UserError, what).because(error)
        })
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let value = postcard::from_bytes(bytes).map_err(|error| {
            let what = format!("{} bytes are no {}", bytes.len(), type_name::<V>());
            Error::new(ErrorCode::CheckpointDamaged, what)
                .because(error)
                .hint("restore with the program that took the snapshot")
        })?;
        self.0 = Arc::new(value);
        Ok(())
    }

    fn shared(&self) -> SharedValue {
        Arc::clone(&self.0) as SharedValue
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        &*self.0
    }
}

/// Merges updates of all variables into those of an earlier subtree.
pub(crate) fn merge_sets(
    operations: &[Arc<dyn UpdateOperations>],
    into: &mut UpdateSet,
    from: UpdateSet,
) {
    for ((operations, into), from) in operations.iter().zip(into).zip(from) {
        match (into, from) {
            (_, None) => {}
            (Some(into), Some(from)) => operations.merge(into, from),
            (into, from) => *into = from,
        }
    }
}

/// Merges an update of one variable into those of all.
pub(crate) fn merge_update(
    operations: &[Arc<dyn UpdateOperations>],
    into: &mut UpdateSet,
    position: usize,
    update: ErasedUpdate,
) {
    match (into.get_mut(position), operations.get(position)) {
        (Some(Some(into)), Some(operations)) => operations.merge(into, update),
        (Some(into), _) => *into = Some(update),
        (None, _) => {}
    }
}

/// Encodes updates of all variables.
pub(crate) fn encode_set(
    operations: &[Arc<dyn UpdateOperations>],
    set: &UpdateSet,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (operations, update) in operations.iter().zip(set) {
        let Some(update) = update else {
            bytes.push(0);
            continue;
        };
        let encoded = operations.encode(update)?;
        bytes.push(1);
        bytes.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&encoded);
    }
    Ok(bytes)
}

/// Decodes updates of all variables.
pub(crate) fn decode_set(
    operations: &[Arc<dyn UpdateOperations>],
    mut bytes: &[u8],
) -> Result<UpdateSet> {
    let mut set = Vec::with_capacity(operations.len());
    for operations in operations {
        set.push(match take_update(&mut bytes).ok_or_else(cut_off)? {
            Some(update) => Some(operations.decode(update)?),
            None => None,
        });
    }
    match bytes.is_empty() {
        true => Ok(set),
        false => Err(cut_off()),
    }
}

/// Takes the bytes of the next update; the outer `None` stands for missing bytes.
fn take_update<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (is_there, rest) = bytes.split_first()?;
    *bytes = rest;
    if *is_there == 0 {
        return Some(None);
    }
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (update, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(Some(update))
}

fn cut_off() -> Error {
    Error::new(
        ErrorCode::BadMessage,
        "updates of another process have a wrong length",
    )
    .hint("run the same program in all processes")
}
