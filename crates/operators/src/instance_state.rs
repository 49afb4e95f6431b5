//! State of an instance that belongs to no key: a fixed set of numbers.

use ardea_core::instance_state::{PeerInstances, put};
use ardea_core::{
    Instance, InstanceContext, Progress, RestoredState, Result, SmallSnapshot, SnapshotWriter,
    StateShape,
};

use ardea_state::truncated_entry;

/// The name of the checkpointed state.
const STATE: &str = "instance";

/// `N` numbers per instance of a vertex. Every snapshot contains all of them.
#[derive(Debug)]
pub(crate) struct InstanceCounters<const N: usize> {
    instance: Instance,
    snapshot: SmallSnapshot,
    /// The restored state: the previous parallelism, and the numbers of each instance.
    restored: PeerInstances<(u32, Vec<i64>)>,
}

impl<const N: usize> Default for InstanceCounters<N> {
    fn default() -> Self {
        InstanceCounters {
            instance: Instance::ONLY,
            snapshot: SmallSnapshot::default(),
            restored: PeerInstances::default(),
        }
    }
}

impl<const N: usize> InstanceCounters<N> {
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.instance = context.instance;
    }

    /// Returns the shape of this state.
    pub(crate) fn states() -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    /// Captures `numbers` for the current snapshot.
    ///
    /// # Errors
    /// Those of [`put`].
    pub(crate) fn take_snapshot(&mut self, numbers: [i64; N]) -> Result<()> {
        let Instance { index, parallelism } = self.instance;
        let value = (parallelism, &numbers[..]);
        put(self.snapshot.begin(), STATE, (index, b""), &value)
    }

    /// Writes the captured snapshot.
    ///
    /// # Errors
    /// Those of [`SmallSnapshot::write`].
    pub(crate) fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.snapshot.write(writer)
    }

    /// Reads restored entries of all instances.
    ///
    /// # Errors
    /// An entry cannot be read, or belongs to another state.
    pub(crate) fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.restored.restore(STATE, state)
    }

    /// Returns the restored numbers of all previous instances, by instance index. Earlier versions
    /// may have written fewer numbers; the others are zero.
    fn all(&mut self) -> Result<Vec<[i64; N]>> {
        let all = self.restored.all(|(instances, _)| *instances)?;
        let numbers = all.unwrap_or_default().into_iter();
        let numbers = numbers.map(|(_, numbers)| {
            let mut all = [0; N];
            let places = all.get_mut(..numbers.len()).filter(|it| !it.is_empty());
            places
                .ok_or_else(truncated_entry)?
                .copy_from_slice(&numbers);
            Ok(all)
        });
        numbers.collect()
    }

    /// Returns the restored numbers of the previous instance with the same index; `None` if there
    /// was none.
    ///
    /// # Errors
    /// The numbers of an instance are missing or cannot be read.
    pub(crate) fn own(&mut self) -> Result<Option<[i64; N]>> {
        let all = self.all()?;
        Ok(all.get(self.instance.index as usize).copied())
    }

    /// Returns the restored numbers of the instance with the same index if the parallelism is
    /// unchanged, otherwise the minimum of each number over all instances. `None` if nothing was
    /// restored.
    ///
    /// # Errors
    /// Those of [`own`](Self::own).
    pub(crate) fn own_or_least(&mut self) -> Result<Option<[i64; N]>> {
        let all = self.all()?;
        if all.len() == self.instance.parallelism as usize {
            return Ok(all.get(self.instance.index as usize).copied());
        }
        let least = |a: [i64; N], b: [i64; N]| std::array::from_fn(|at| a[at].min(b[at]));
        Ok(all.into_iter().reduce(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::StateChunk;

    fn of(index: u32, parallelism: u32) -> InstanceCounters<2> {
        InstanceCounters {
            instance: Instance { index, parallelism },
            ..InstanceCounters::default()
        }
    }

    #[test]
    fn as_many_instances_take_their_own_and_others_the_least() {
        let mut chunk = StateChunk::default();
        for (index, numbers) in [[3, 9], [5, 7]].into_iter().enumerate() {
            let mut state = of(index as u32, 2);
            state.take_snapshot(numbers).unwrap();
            let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
            assert!(state.write_snapshot(&mut writer).unwrap().done);
            assert!(state.write_snapshot(&mut writer).unwrap().done);
        }
        assert_eq!(chunk.len(), 2);
        let restored = |mut state: InstanceCounters<2>| {
            let mut position = 0;
            let instance = state.instance;
            let mut entries = RestoredState::new(&chunk, &mut position, instance, usize::MAX);
            state.restore(&mut entries).unwrap();
            state
        };
        assert_eq!(restored(of(1, 2)).own_or_least().unwrap(), Some([5, 7]));
        assert_eq!(restored(of(2, 3)).own_or_least().unwrap(), Some([3, 7]));
        assert_eq!(restored(of(0, 1)).own_or_least().unwrap(), Some([3, 7]));
        assert_eq!(restored(of(0, 1)).own().unwrap(), Some([3, 9]));
        assert_eq!(restored(of(2, 3)).own().unwrap(), None);
        assert_eq!(of(0, 1).own_or_least().unwrap(), None);
    }
}
