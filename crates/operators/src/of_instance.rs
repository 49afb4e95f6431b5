//! What an instance remembers that belongs to no key: a few numbers, the same ones all along.

use ardea_core::instance_state::{Siblings, put};
use ardea_core::{
    CutDraft, CutWriter, Instance, InstanceContext, Progress, RestoredState, Result, StateShape,
};

use crate::keyed::cut_short;

/// The name of the state.
const STATE: &str = "instance";

/// `N` numbers of each instance of a vertex. They are in every cut: there are few of them.
#[derive(Debug)]
pub(crate) struct OfInstance<const N: usize> {
    instance: Instance,
    cut: CutDraft,
    /// What has come back: how many instances there were, and the numbers of each.
    restored: Siblings<(u32, Vec<i64>)>,
}

impl<const N: usize> Default for OfInstance<N> {
    fn default() -> Self {
        OfInstance {
            instance: Instance::ONLY,
            cut: CutDraft::default(),
            restored: Siblings::default(),
        }
    }
}

impl<const N: usize> OfInstance<N> {
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.instance = context.instance;
    }

    /// What it remembers.
    pub(crate) fn states() -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    /// These numbers belong to the cut that is taken now.
    ///
    /// # Errors
    /// As [`put`].
    pub(crate) fn take_cut(&mut self, numbers: [i64; N]) -> Result<()> {
        let Instance { index, parallelism } = self.instance;
        let value = (parallelism, &numbers[..]);
        put(self.cut.begin(), STATE, (index, b""), &value)
    }

    /// Writes the cut that was taken last.
    ///
    /// # Errors
    /// As [`CutDraft::write`].
    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.cut.write(writer)
    }

    /// Takes what comes back, of all instances.
    ///
    /// # Errors
    /// If it can't be read, or is of another state.
    pub(crate) fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.restored.take(&entry)?;
        }
        Ok(())
    }

    /// The numbers of all that there were, by instance.
    fn all(&mut self) -> Result<Vec<[i64; N]>> {
        let all = self.restored.all(|(instances, _)| *instances)?;
        let numbers = all.unwrap_or_default().into_iter();
        let numbers = numbers.map(|(_, numbers)| numbers.try_into().map_err(|_| cut_short()));
        numbers.collect()
    }

    /// The numbers of the instance that had this one's number, if there was one.
    ///
    /// # Errors
    /// If those of some instance are missing, or can't be read.
    pub(crate) fn own(&mut self) -> Result<Option<[i64; N]>> {
        let all = self.all()?;
        Ok(all.get(self.instance.index as usize).copied())
    }

    /// This instance's own numbers, if there are as many instances as there were; else of each number the least. None if nothing has
    /// come back.
    ///
    /// # Errors
    /// As [`own`](Self::own).
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

    fn of(index: u32, parallelism: u32) -> OfInstance<2> {
        OfInstance {
            instance: Instance { index, parallelism },
            ..OfInstance::default()
        }
    }

    #[test]
    fn as_many_instances_take_their_own_and_others_the_least() {
        let mut chunk = StateChunk::default();
        for (index, numbers) in [[3, 9], [5, 7]].into_iter().enumerate() {
            let mut state = of(index as u32, 2);
            state.take_cut(numbers).unwrap();
            let mut writer = CutWriter::new(&mut chunk, usize::MAX);
            assert!(state.write_cut(&mut writer).unwrap().done);
            assert!(state.write_cut(&mut writer).unwrap().done);
        }
        assert_eq!(chunk.len(), 2);
        let restored = |mut state: OfInstance<2>| {
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
