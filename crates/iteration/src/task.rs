//! The work on one partition in one iteration.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::erased::{ErasedUpdate, UpdateSet, merge_update};
use crate::replica::{Replica, invalid_value};
use crate::shared_variable::SharedVariable;
use crate::variables::Variable;

/// The work on one partition in one iteration.
///
/// A task with the same iteration, partition and values must commit the same updates, because it is
/// repeated after a restore.
pub struct Task<'t, P> {
    pub(crate) replica: &'t Replica<'t>,
    pub(crate) partition: &'t P,
    pub(crate) index: u32,
    pub(crate) iteration: u64,
    pub(crate) updates: UpdateSet,
}

impl<'t, P> Task<'t, P> {
    /// Returns the partition.
    pub fn partition(&self) -> &'t P {
        self.partition
    }

    /// Returns the number of the partition, from zero.
    pub fn partition_index(&self) -> usize {
        self.index as usize
    }

    /// Returns the number of the iteration, from zero. It continues after a restore.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Returns the value of a variable with the updates of all previous iterations. Waits for them
    /// if necessary.
    ///
    /// # Errors
    /// [`ErrorCode::Cancelled`] if the run has ended meanwhile: the task returns this error.
    /// [`ErrorCode::InvalidJob`] if the variable belongs to another iteration.
    pub fn get<V: SharedVariable>(&self, variable: &Variable<V>) -> Result<Arc<V>> {
        let state = self.replica.wait_for(self.iteration);
        if state.failure.is_some() || state.variables.next < self.iteration {
            let what = "the run of iterations has ended";
            return Err(Error::new(ErrorCode::Cancelled, what));
        }
        state.variables.value(variable)
    }

    /// Returns the value of a variable with the updates that have been applied so far, without
    /// waiting. It may lack updates of earlier iterations of the group, and depends on timing.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the variable belongs to another iteration.
    pub fn get_latest<V: SharedVariable>(&self, variable: &Variable<V>) -> Result<Arc<V>> {
        self.replica.lock().variables.value(variable)
    }

    /// Commits an update of a variable. The updates of a task take effect together when the task
    /// has ended.
    ///
    /// # Errors
    /// [`ErrorCode::UserError`] if the update has a fault, such as a number that is not finite or a
    /// wrong size; [`ErrorCode::InvalidJob`] if the variable belongs to another iteration.
    pub fn commit<V: SharedVariable>(
        &mut self,
        variable: &Variable<V>,
        update: V::Update,
    ) -> Result<()> {
        let position = variable.position;
        let operations = &self.replica.operations;
        let (value, name) = {
            let state = self.replica.lock();
            let named = state.variables.named(variable)?;
            (named.value.shared(), named.name.clone())
        };
        let update: ErasedUpdate = Box::new(update);
        let fault = operations.get(position);
        if let Some(fault) = fault.and_then(|typed| typed.fault_of(&value, &update)) {
            let what = format!(
                "the update of the variable \"{name}\" is invalid in iteration {}, partition {}: {fault}",
                self.iteration, self.index
            );
            return Err(invalid_value(what, fault));
        }
        merge_update(operations, &mut self.updates, position, update);
        Ok(())
    }
}
