//! The type-erased batch that moves on an edge.

use std::any::Any;
use std::any::type_name;
use std::fmt;

use crate::error::{Error, ErrorCode};
use crate::{Result, Rows};

/// A batch of records of a type that only its producer and its consumer know.
///
/// Implemented by [`Rows<T>`]; a batch of another layout, such as the encoded tuples of a topology, implements it as well.
pub trait Records: Any + Send {
    /// The number of records.
    fn len(&self) -> usize;

    /// Whether there is no record.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all records and keeps the memory for the next ones.
    fn clear(&mut self);

    /// The name of the record's type, for messages.
    fn type_name(&self) -> &'static str;

    /// For the consumer, to get the typed batch back.
    fn as_any(&self) -> &dyn Any;

    /// For the consumer, to get the typed batch back.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Send + 'static> Records for Rows<T> {
    fn len(&self) -> usize {
        Rows::len(self)
    }

    fn clear(&mut self) {
        Rows::clear(self);
    }

    fn type_name(&self) -> &'static str {
        type_name::<T>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A batch of records behind a type-erased face: what moves on an edge.
///
/// A chunk starts without a type and takes that of the first batch asked from it; an empty one may change its type.
/// Chunks are recycled: the consumer hands the emptied batch back, so that the steady state allocates nothing.
#[derive(Default)]
pub struct Chunk {
    records: Option<Box<dyn Records>>,
}

impl Chunk {
    /// A chunk that holds `records`.
    pub fn new(records: impl Records) -> Self {
        Chunk {
            records: Some(Box::new(records)),
        }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.len())
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all records and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(records) = &mut self.records {
            records.clear();
        }
    }

    /// Whether this chunk has memory that can be used again.
    pub fn is_allocated(&self) -> bool {
        self.records.is_some()
    }

    /// Whether its batch, empty or not, is an `R`.
    pub fn holds<R: Records>(&self) -> bool {
        let records = self.records.as_ref();
        records.is_some_and(|records| records.as_any().is::<R>())
    }

    /// The batch, as rows of `T`. An empty chunk becomes an empty batch of `T` with room for `capacity` records.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if the chunk holds records of another type.
    pub fn rows_or_new<T: Send + 'static>(&mut self, capacity: usize) -> Result<&mut Rows<T>> {
        if !self.holds::<Rows<T>>() {
            if !self.is_empty() {
                return Err(self.mismatch(type_name::<T>()));
            }
            self.records = Some(Box::new(Rows::<T>::with_capacity(capacity)));
        }
        self.rows()
    }

    /// The batch, as rows of `T`.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if the chunk holds records of another type.
    pub fn rows<T: Send + 'static>(&mut self) -> Result<&mut Rows<T>> {
        self.batch_of::<Rows<T>>(type_name::<T>())
    }

    /// The batch as the concrete `R`, for batches that aren't rows.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if the chunk holds a batch of another type.
    pub fn batch<R: Records>(&mut self) -> Result<&mut R> {
        self.batch_of::<R>(type_name::<R>())
    }

    /// The batch as `R`; `reads` is what the consumer calls its records.
    fn batch_of<R: Records>(&mut self, reads: &'static str) -> Result<&mut R> {
        if !self.holds::<R>() {
            return Err(self.mismatch(reads));
        }
        self.records
            .as_mut()
            .and_then(|records| records.as_any_mut().downcast_mut::<R>())
            .ok_or_else(|| Error::new(ErrorCode::TypeMismatch, "a chunk lost its batch"))
    }

    fn mismatch(&self, reads: &str) -> Error {
        let holds = self
            .records
            .as_ref()
            .map_or("nothing", |records| records.type_name());
        Error::new(
            ErrorCode::TypeMismatch,
            format!("an edge carries {holds} where its consumer reads {reads}"),
        )
        .hint("connect vertices whose record types agree")
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .records
            .as_ref()
            .map_or("untyped", |records| records.type_name());
        write!(f, "Chunk<{name}>({} records)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn an_empty_chunk_takes_the_type_asked_of_it() {
        let mut chunk = Chunk::default();
        chunk.rows_or_new::<u8>(4).unwrap().push(1, Timestamp::MIN);
        assert_eq!(chunk.len(), 1);
        chunk.clear();
        assert!(chunk.rows_or_new::<String>(4).unwrap().is_empty());
    }

    #[test]
    fn a_full_chunk_refuses_another_type_and_names_both() {
        let mut chunk = Chunk::new(Rows::from_iter([(1u8, Timestamp::MIN)]));
        let error = chunk.rows::<String>().unwrap_err().to_string();
        assert!(error.contains("u8") && error.contains("String"), "{error}");
        assert_eq!(chunk.len(), 1);
    }
}
