//! Updates that merge in any order.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::fault::VariableFault;

/// An update that merges with others.
///
/// The merge must be associative and commutative, because updates of partitions are merged per
/// process first, and then between processes. Floating-point sums are so up to rounding only. They
/// are still reproducible, because the order of merges depends on the number of partitions only.
/// [`laws`](crate::laws) checks an implementation.
pub trait Merge: Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Merges `other` into this update.
    fn merge(&mut self, other: Self);

    /// Returns the fault of this update, if it has one, such as a number that is not finite.
    fn fault(&self) -> Option<VariableFault> {
        None
    }
}

/// A count of events. It saturates instead of overflowing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Counter(pub u64);

impl Merge for Counter {
    fn merge(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// A sum of numbers.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
pub struct Total(pub f64);

impl Merge for Total {
    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }

    fn fault(&self) -> Option<VariableFault> {
        VariableFault::in_number(self.0)
    }
}

/// The greatest of all values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Highest<T>(pub T);

impl<T: Ord + Send + Sync + Serialize + DeserializeOwned + 'static> Merge for Highest<T> {
    fn merge(&mut self, other: Self) {
        if other.0 > self.0 {
            self.0 = other.0;
        }
    }
}

/// The least of all values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Lowest<T>(pub T);

impl<T: Ord + Send + Sync + Serialize + DeserializeOwned + 'static> Merge for Lowest<T> {
    fn merge(&mut self, other: Self) {
        if other.0 < self.0 {
            self.0 = other.0;
        }
    }
}

/// Maps merge key by key.
impl<K, M> Merge for BTreeMap<K, M>
where
    K: Ord + Send + Sync + Serialize + DeserializeOwned + 'static,
    M: Merge,
{
    fn merge(&mut self, other: Self) {
        for (key, update) in other {
            match self.get_mut(&key) {
                Some(merged) => merged.merge(update),
                None => drop(self.insert(key, update)),
            }
        }
    }

    fn fault(&self) -> Option<VariableFault> {
        self.values().find_map(Merge::fault)
    }
}

/// Pairs merge part by part.
impl<A: Merge, B: Merge> Merge for (A, B) {
    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
        self.1.merge(other.1);
    }

    fn fault(&self) -> Option<VariableFault> {
        self.0.fault().or_else(|| self.1.fault())
    }
}
