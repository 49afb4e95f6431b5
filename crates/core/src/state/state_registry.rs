//! Registry of the states that an operator has opened.

use std::sync::{Mutex, PoisonError};

use crate::{Error, ErrorCode, Processor, Result};

/// Registry of the states that an operator opened in [`init`](Processor::init), by name.
///
/// The runtime compares them with the states of [`checkpointed`](Processor::checkpointed). A state
/// that is opened and not returned there is in no snapshot.
///
/// ```
/// use ardea_core::{ErrorCode, InstanceContext, Processor};
///
/// struct Forgetful;
/// impl Processor for Forgetful {}
///
/// let context = InstanceContext::detached("counts");
/// context.state_registry.register("count");
/// let refused = context.state_registry.check(&mut Forgetful).unwrap_err();
/// assert_eq!(refused.code(), ErrorCode::InvalidJob);
/// ```
#[derive(Debug, Default)]
pub struct StateRegistry(Mutex<Vec<&'static str>>);

impl StateRegistry {
    /// Registers the name of an opened state, which snapshots must contain.
    pub fn register(&self, name: &'static str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(name);
    }

    /// Checks that the processor's snapshots contain all opened states.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] with the name of the first state that they do not contain.
    pub fn check(&self, processor: &mut dyn Processor) -> Result<()> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.is_empty() {
            return Ok(());
        }
        let checkpointed = processor.checkpointed();
        let shapes = checkpointed.map_or_else(Vec::new, |state| state.states());
        let missing = names
            .iter()
            .find(|name| shapes.iter().all(|shape| shape.name != **name));
        match missing {
            None => Ok(()),
            Some(name) => {
                let what = format!(
                    "the state {name:?} was opened, but `checkpointed` does not return it, so it would be lost"
                );
                let hint =
                    "return the state from `checkpointed`; several states are one `OperatorState`";
                Err(Error::new(ErrorCode::InvalidJob, what).hint(hint))
            }
        }
    }
}
