//! One value per instance, such as the read position of a source.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use ardea_core::instance_state::{PeerInstances, put};
use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Instance, InstanceContext, Progress, RestoredEntry,
    RestoredState, Result, SmallSnapshot, SnapshotRequest, SnapshotWriter, StateShape,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::NamedState;

/// Divides the values of all instances of a checkpoint among another number of instances.
type Divide<T> = Box<dyn Fn(Vec<T>, Instance) -> T + Send>;

/// A value of an instance that every snapshot contains, as JSON. For values of up to some
/// kilobytes: it is written whole.
///
/// An instance gets back its own value. After a change of parallelism the values are
/// [divided](Self::with_division), or the restore fails.
///
/// ```
/// use ardea_state::InstanceValue;
///
/// let mut lines_read = InstanceValue::new("lines read", 0u64);
/// *lines_read += 1;
/// assert_eq!(*lines_read, 1);
/// ```
pub struct InstanceValue<T> {
    name: &'static str,
    value: T,
    instance: Instance,
    divide: Option<Divide<T>>,
    snapshot: SmallSnapshot,
    restored: PeerInstances<(u32, T)>,
}

impl<T: Serialize + DeserializeOwned> InstanceValue<T> {
    /// Creates a value. The name identifies it in snapshots: unique in its operator, and the same
    /// in all versions of the job.
    pub fn new(name: &'static str, value: T) -> Self {
        InstanceValue {
            name,
            value,
            instance: Instance::ONLY,
            divide: None,
            snapshot: SmallSnapshot::default(),
            restored: PeerInstances::default(),
        }
    }

    /// Sets the function that computes the value of an instance from all values of a checkpoint
    /// with another parallelism, in the order of their instances.
    #[must_use]
    pub fn with_division(
        mut self,
        divide: impl Fn(Vec<T>, Instance) -> T + Send + 'static,
    ) -> Self {
        self.divide = Some(Box::new(divide));
        self
    }

    /// Attaches the value to its instance.
    pub fn open(&mut self, context: &InstanceContext) {
        self.instance = context.instance;
        context.state_registry.register(self.name);
    }

    /// Takes this instance's share of the restored values.
    fn apply(&mut self) -> Result<()> {
        let Some(mut all) = self.restored.all(|(instances, _)| *instances)? else {
            return Ok(());
        };
        let Instance { index, parallelism } = self.instance;
        if all.len() == parallelism as usize {
            self.value = all.swap_remove(index as usize).1;
            return Ok(());
        }
        let (name, before) = (self.name, all.len());
        let Some(divide) = &self.divide else {
            let what = format!(
                "the state {name:?} has one value for each of {before} instances, and cannot be divided among {parallelism}"
            );
            let hint = format!("restore the job with {before} instances of this step");
            return Err(Error::new(ErrorCode::InvalidJob, what).hint(hint));
        };
        let values = all.into_iter().map(|(_, value)| value).collect();
        self.value = divide(values, self.instance);
        Ok(())
    }
}

impl<T> Deref for InstanceValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for InstanceValue<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> Checkpointed for InstanceValue<T> {
    fn states(&mut self) -> Vec<StateShape> {
        vec![StateShape::own(self.name)]
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let value = (self.instance.parallelism, &self.value);
        let key = (self.instance.index, &b""[..]);
        put(self.snapshot.begin(), self.name, key, &value)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.snapshot.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.restored.restore(self.name, state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.apply()?;
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        match memory.downcast::<T>() {
            Ok(value) => {
                self.value = *value;
                true
            }
            Err(_) => false,
        }
    }
}

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> NamedState for InstanceValue<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        InstanceValue::open(self, context);
        Ok(())
    }

    fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.restored.take(entry)
    }

    fn hand_over(&mut self) -> Box<dyn Any + Send> {
        Box::new(self.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::StateChunk;

    use super::*;

    fn context(index: u32, parallelism: u32) -> InstanceContext {
        InstanceContext {
            instance: Instance { index, parallelism },
            ..InstanceContext::detached("numbers")
        }
    }

    /// Returns the snapshot of the values of these instances.
    fn snapshot_of(values: &[u64]) -> StateChunk {
        let mut chunk = StateChunk::default();
        for (index, value) in (0..).zip(values) {
            let mut state = InstanceValue::new("read", *value);
            state.open(&context(index, values.len() as u32));
            state
                .take_snapshot(SnapshotRequest::full(Epoch(1)))
                .unwrap();
            let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
            assert!(state.write_snapshot(&mut writer).unwrap().done);
        }
        chunk
    }

    fn restore(
        state: &mut InstanceValue<u64>,
        chunk: &StateChunk,
        instance: Instance,
    ) -> Result<()> {
        state.open(&context(instance.index, instance.parallelism));
        let mut position = 0;
        state.restore(&mut RestoredState::new(
            chunk,
            &mut position,
            instance,
            usize::MAX,
        ))?;
        assert!(state.on_restored(Epoch(1))?.done);
        Ok(())
    }

    fn instance(index: u32, parallelism: u32) -> Instance {
        Instance { index, parallelism }
    }

    #[test]
    fn each_instance_gets_its_own_value_back() {
        let chunk = snapshot_of(&[7, 8]);
        for (index, expected) in [(0, 7), (1, 8)] {
            let mut state = InstanceValue::new("read", 0);
            restore(&mut state, &chunk, instance(index, 2)).unwrap();
            assert_eq!(*state, expected);
        }
    }

    #[test]
    fn without_a_snapshot_the_first_value_stays() {
        let mut state = InstanceValue::new("read", 3);
        restore(&mut state, &StateChunk::default(), Instance::ONLY).unwrap();
        assert_eq!(*state, 3);
    }

    #[test]
    fn values_are_divided_among_another_number_of_instances_or_refused() {
        let chunk = snapshot_of(&[7, 8]);
        let mut state = InstanceValue::new("read", 0);
        let refused = restore(&mut state, &chunk, Instance::ONLY).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidJob);
        let mut state =
            InstanceValue::new("read", 0).with_division(|all: Vec<u64>, _| all.iter().sum());
        restore(&mut state, &chunk, Instance::ONLY).unwrap();
        assert_eq!(*state, 15);
    }

    #[test]
    fn a_value_is_handed_over_in_memory() {
        let mut before = InstanceValue::new("read", 9u64);
        let mut after = InstanceValue::new("read", 0u64);
        assert!(after.take_over_state(before.hand_over()));
        assert_eq!(*after, 9);
        assert!(!after.take_over_state(Box::new("of another type")));
    }
}
