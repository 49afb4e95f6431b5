//! What stays in its process.

use std::ops::{Deref, DerefMut};

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A record of any type, which goes from instance to instance within one process, and never leaves it.
///
/// For jobs that run in one process only, and records that serde can't write: handles, closures, what somebody else has
/// declared. On a cluster such a job is refused, unless all that the record passes is in one container.
///
/// ```
/// use ardea_codec::{Exchange, Local};
///
/// /// Of a library that knows nothing of serde.
/// struct Handle(u64);
///
/// fn may_be_keyed<T: Exchange>(_: &T) {}
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
