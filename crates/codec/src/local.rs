//! Records that stay in their process.

use std::ops::{Deref, DerefMut};

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A record of any type that is sent only between instances in one process.
///
/// For jobs that run in one process only, and for records that serde cannot write: handles,
/// closures, types of other crates. On a cluster such a job is rejected, unless all vertices that
/// the record passes are in one container.
///
/// ```
/// use ardea_codec::{ExchangeData, Local};
///
/// /// A type of a library without serde.
/// struct Handle(u64);
///
/// fn may_be_keyed<T: ExchangeData>(_: &T) {}
/// let record = Local(Handle(7));
/// may_be_keyed(&record);
/// assert_eq!(record.0.0, 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Local<T>(pub T);

impl<T> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Local<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Serialize for Local<T> {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("a Local stays in its process"))
    }
}

impl<'de, T> Deserialize<'de> for Local<T> {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("a Local stays in its process"))
    }
}
