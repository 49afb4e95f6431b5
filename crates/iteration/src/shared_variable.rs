//! Values to which merged updates are applied.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::binary::numbers;
use crate::fault::VariableFault;
use crate::merge::Merge;
use crate::vector::VectorUpdate;

/// A value shared by all tasks of an iteration. Tasks commit updates; the merged updates of an
/// iteration are applied at once.
///
/// Each process has a copy of the value and applies the same updates in the same order. All methods
/// must therefore be deterministic.
pub trait SharedVariable: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// The type of updates.
    type Update: Merge;

    /// Applies the merged updates of an iteration.
    fn apply(&mut self, update: Self::Update);

    /// Returns the fault of a committed update, if it has one. The run then ends.
    fn fault_of(&self, update: &Self::Update) -> Option<VariableFault> {
        update.fault()
    }

    /// Returns the fault of the value after updates were applied. The run then ends.
    fn fault(&self) -> Option<VariableFault> {
        None
    }

    /// Prepares for a group of iterations, of which `first` is the first.
    fn begin_group(&mut self, first: u64) {
        let _ = first;
    }

    /// Completes a group of iterations, before its snapshot; `next` is the next iteration.
    fn end_group(&mut self, next: u64) {
        let _ = next;
    }
}

/// A variable whose updates are merged into its value: counters, sums, extremes, maps and
/// user-defined merges.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Replicated<M: Merge>(pub M);

impl<M: Merge + Clone> SharedVariable for Replicated<M> {
    type Update = M;

    fn apply(&mut self, update: M) {
        self.0.merge(update);
    }

    fn fault(&self) -> Option<VariableFault> {
        self.0.fault()
    }
}

/// A vector of numbers, to which updates are added.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Vector(#[serde(with = "numbers")] Vec<f64>);

impl Vector {
    /// Creates a vector.
    pub fn new(numbers: Vec<f64>) -> Self {
        Vector(numbers)
    }

    /// Creates a vector of `size` zeros.
    pub fn zeros(size: usize) -> Self {
        Vector(vec![0.0; size])
    }

    /// Returns the components.
    pub fn as_slice(&self) -> &[f64] {
        &self.0
    }
}

impl SharedVariable for Vector {
    type Update = VectorUpdate;

    fn apply(&mut self, update: VectorUpdate) {
        update.add_to(&mut self.0);
    }

    fn fault_of(&self, update: &VectorUpdate) -> Option<VariableFault> {
        update.fault_for(self.0.len())
    }

    fn fault(&self) -> Option<VariableFault> {
        VariableFault::in_numbers(&self.0)
    }
}
