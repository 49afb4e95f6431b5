//! The type-erased batch that is sent over an edge.

use std::any::Any;
use std::any::type_name;
use std::fmt;

use crate::error::{Error, ErrorCode};
use crate::{Result, Rows};

/// A batch of records whose type only its producer and its consumer know.
///
/// Implemented by [`Rows<T>`], and by batches of other layouts such as the encoded tuples of a
/// topology.
pub trait Records: Any + Send {
    /// Returns the number of records.
    fn len(&self) -> usize;

    /// Returns true if there is no record.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all records but keeps the memory.
    fn clear(&mut self);

    /// Returns the name of the record type, for messages.
    fn type_name(&self) -> &'static str;

    /// Moves up to `count` records from the front to the end of `into`, which is empty or holds
    /// records of the same type. Returns false if this layout cannot be divided. Nothing is moved
    /// then.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if `into` holds records of another type.
    fn move_front(&mut self, count: usize, into: &mut Chunk) -> Result<bool> {
        let _ = (count, into);
        Ok(false)
    }

    /// Returns the batch for downcasting.
    fn as_any(&self) -> &dyn Any;

    /// Returns the batch for downcasting.
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

    fn move_front(&mut self, count: usize, into: &mut Chunk) -> Result<bool> {
        into.rows_or_new::<T>(count)?.append_front(self, count);
        Ok(true)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A type-erased batch of records, as sent over an edge.
///
/// A new chunk has no type and takes the type of the first batch requested from it; an empty chunk
/// may change its type. Chunks are recycled: the consumer returns the emptied batch, so that the
/// steady state allocates nothing.
#[derive(Default)]
pub struct Chunk {
    records: Option<Box<dyn Records>>,
}

impl Chunk {
    /// Creates a chunk that holds `records`.
    pub fn new(records: impl Records) -> Self {
        Chunk {
            records: Some(Box::new(records)),
        }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.len())
    }

    /// Returns true if there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all records but keeps the memory.
    pub fn clear(&mut self) {
        if let Some(records) = &mut self.records {
            records.clear();
        }
    }

    /// Moves up to `count` records from the front to the end of `into`; see
    /// [`Records::move_front`].
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if `into` holds records of another type.
    pub fn move_front(&mut self, count: usize, into: &mut Chunk) -> Result<bool> {
        match &mut self.records {
            Some(records) => records.move_front(count, into),
            None => Ok(false),
        }
    }

    /// Returns true if this chunk has memory that can be reused.
    pub fn is_allocated(&self) -> bool {
        self.records.is_some()
    }

    /// Returns true if the batch, empty or not, is an `R`.
    pub fn holds<R: Records>(&self) -> bool {
        let records = self.records.as_ref();
        records.is_some_and(|records| records.as_any().is::<R>())
    }

    /// Returns the batch as rows of `T`. An empty chunk becomes an empty batch of `T` with room for
    /// `capacity` records.
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

    /// Returns the batch as rows of `T`.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if the chunk holds records of another type.
    pub fn rows<T: Send + 'static>(&mut self) -> Result<&mut Rows<T>> {
        self.batch_of::<Rows<T>>(type_name::<T>())
    }

    /// Returns the batch as the concrete `R`, for batches that aren't rows.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if the chunk holds a batch of another type.
    pub fn batch<R: Records>(&mut self) -> Result<&mut R> {
        self.batch_of::<R>(type_name::<R>())
    }

    /// Returns the batch as `R`; `reads` names the record type that the consumer expects.
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
    fn the_front_of_a_chunk_moves_to_the_end_of_another() {
        let rows = |values: &[u8]| Rows::from_iter(values.iter().map(|v| (*v, Timestamp::MIN)));
        let (mut from, mut into) = (Chunk::new(rows(&[1, 2, 3])), Chunk::default());
        assert!(from.move_front(2, &mut into).unwrap());
        assert!(from.move_front(2, &mut into).unwrap());
        assert_eq!(into.rows::<u8>().unwrap(), &rows(&[1, 2, 3]));
        assert!(from.is_empty());
    }

    #[test]
    fn a_full_chunk_refuses_another_type_and_names_both() {
        let mut chunk = Chunk::new(Rows::from_iter([(1u8, Timestamp::MIN)]));
        let error = chunk.rows::<String>().unwrap_err().to_string();
        assert!(error.contains("u8") && error.contains("String"), "{error}");
        assert_eq!(chunk.len(), 1);
    }
}
