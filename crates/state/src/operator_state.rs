//! The states of an operator that has several.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use ardea_core::{
    Checkpointed, Epoch, InstanceContext, Key, Progress, RestoredEntry, RestoredState, Result,
    SnapshotRequest, SnapshotWriter, StateShape,
};

use crate::KeyedState;

/// A state with a name, one of several of an operator.
pub trait NamedState: Checkpointed {
    /// Returns the name of the state in snapshots.
    fn name(&self) -> &'static str;

    /// Attaches the state to its instance.
    ///
    /// # Errors
    /// Those of [`KeyedState::open`].
    fn open(&mut self, context: &InstanceContext) -> Result<()>;

    /// Restores one entry of this state.
    ///
    /// # Errors
    /// The entry cannot be decoded, or occurs twice.
    fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()>;

    /// Moves the state in memory out, for [`take_over_state`](Checkpointed::take_over_state) of the
    /// state of another attempt.
    fn hand_over(&mut self) -> Box<dyn Any + Send>;
}

impl<K: Key, S: Send + 'static> NamedState for KeyedState<K, S> {
    fn name(&self) -> &'static str {
        self.state_name()
    }

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        KeyedState::open(self, context)
    }

    fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        KeyedState::restore_entry(self, entry)
    }

    fn hand_over(&mut self) -> Box<dyn Any + Send> {
        Box::new(self.take())
    }
}

/// A type whose fields are the states of an operator.
pub trait StateFields {
    /// Returns all states, each once, always in the same order.
    fn fields(&mut self) -> Vec<&mut dyn NamedState>;
}

/// The states of an operator that has several: a struct with a field per state.
///
/// The operator calls [`open`](Self::open) in `init` and returns the whole from `checkpointed`.
///
/// ```
/// use ardea_state::{KeyedState, MapState, NamedState, OperatorState, StateFields};
///
/// struct Visits {
///     count: KeyedState<String, u64>,
///     pages: MapState<String, String, u64>,
/// }
///
/// impl StateFields for Visits {
///     fn fields(&mut self) -> Vec<&mut dyn NamedState> {
///         vec![&mut self.count, &mut self.pages]
///     }
/// }
///
/// let mut state = OperatorState::new(Visits {
///     count: KeyedState::checkpointed("count"),
///     pages: MapState::checkpointed("pages"),
/// });
/// *state.pages.entry(&"ann".to_string(), &"/".to_string(), || 0)? += 1;
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct OperatorState<S>(S);

/// The states of an operator in memory, in the order of its fields.
type StatesInMemory = Vec<Box<dyn Any + Send>>;

impl<S: StateFields> OperatorState<S> {
    /// Creates the state of an operator from its fields.
    pub fn new(fields: S) -> Self {
        OperatorState(fields)
    }

    /// Attaches all states to their instance.
    ///
    /// # Errors
    /// Those of [`NamedState::open`].
    pub fn open(&mut self, context: &InstanceContext) -> Result<()> {
        let mut fields = self.0.fields().into_iter();
        fields.try_for_each(|state| state.open(context))
    }

    /// Returns the states in memory, for
    /// [`hand_over_state`](ardea_core::Processor::hand_over_state).
    pub fn into_memory(mut self) -> Option<Box<dyn Any + Send>> {
        let fields = self.0.fields().into_iter();
        let memory: StatesInMemory = fields.map(|state| state.hand_over()).collect();
        Some(Box::new(memory))
    }

    /// Calls `step` for every state, and combines their progress.
    fn all(&mut self, step: impl Fn(&mut dyn NamedState) -> Result<Progress>) -> Result<Progress> {
        let fields = self.0.fields().into_iter();
        fields
            .map(step)
            .try_fold(Progress::DONE, |all, next| Ok(all | next?))
    }
}

impl<S> Deref for OperatorState<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S> DerefMut for OperatorState<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

impl<S: StateFields> Checkpointed for OperatorState<S> {
    fn states(&mut self) -> Vec<StateShape> {
        let fields = self.0.fields().into_iter();
        fields.flat_map(|state| state.states()).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let mut fields = self.0.fields().into_iter();
        fields.try_for_each(|state| state.take_snapshot(snapshot))
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        for state in self.0.fields() {
            let progress = state.write_snapshot(writer)?;
            if !progress.done {
                return Ok(progress);
            }
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, restored: &mut RestoredState<'_>) -> Result<()> {
        let mut fields = self.0.fields();
        for entry in restored {
            match fields.iter_mut().find(|it| it.name() == entry.state) {
                Some(state) => state.restore_entry(&entry)?,
                None => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(memory) = memory.downcast::<StatesInMemory>() else {
            return false;
        };
        let fields = self.0.fields();
        fields.len() == memory.len()
            && fields
                .into_iter()
                .zip(*memory)
                .all(|(state, memory)| state.take_over_state(memory))
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.all(|state| state.on_restored(epoch))
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.all(|state| state.on_checkpoint_committed(epoch))
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.all(|state| state.on_checkpoint_aborted(epoch))
    }
}
