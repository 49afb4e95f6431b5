//! What an instance remembers that belongs to no key: a few numbers, the same ones all along.

use std::collections::BTreeMap;

use ardea_core::{CutWriter, Instance, InstanceContext, RestoredEntry, RestoredState, Result};

use crate::keyed::cut_short;

/// The name of the state.
const STATE: &str = "instance";

/// `N` numbers of each instance of a vertex, under the number of the instance. They are in every cut: there are few of them.
#[derive(Debug)]
pub(crate) struct OfInstance<const N: usize> {
    instance: Instance,
    /// Those of the cut that is being written.
    cut: Option<[i64; N]>,
    /// What has come back, by instance.
    restored: BTreeMap<u32, [i64; N]>,
}

impl<const N: usize> Default for OfInstance<N> {
    fn default() -> Self {
        OfInstance {
            instance: Instance::ONLY,
            cut: None,
            restored: BTreeMap::new(),
        }
    }
}

impl<const N: usize> OfInstance<N> {
    pub(crate) fn attach(&mut self, context: &InstanceContext) {
        self.instance = context.instance;
    }

    /// These numbers belong to the cut that is taken now.
    pub(crate) fn take_cut(&mut self, numbers: [i64; N]) {
        self.cut = Some(numbers);
    }

    /// Writes the cut that was taken last; an entry is no larger than any room.
    ///
    /// # Errors
    /// As [`CutWriter::set`].
    pub(crate) fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<()> {
        let Some(numbers) = self.cut.take() else {
            return Ok(());
        };
        let value: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        writer.set(STATE, None, &self.instance.index.to_le_bytes(), &value)
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
            let (instance, numbers) = read(&entry)?;
            self.restored.insert(instance, numbers);
        }
        Ok(())
    }

    /// The numbers of the instance that had this one's number, if there was one. All others are forgotten.
    pub(crate) fn own(&mut self) -> Option<[i64; N]> {
        let mut restored = std::mem::take(&mut self.restored);
        restored.remove(&self.instance.index)
    }

    /// This instance's own numbers, if there are as many instances as there were; else of each number the least. None if nothing has
    /// come back.
    pub(crate) fn own_or_least(&mut self) -> Option<[i64; N]> {
        if self.restored.len() == self.instance.parallelism as usize
            && self.restored.contains_key(&self.instance.index)
        {
            return self.own();
        }
        let least = |a: [i64; N], b: [i64; N]| std::array::from_fn(|at| a[at].min(b[at]));
        std::mem::take(&mut self.restored)
            .into_values()
            .reduce(least)
    }
}

/// The instance that wrote an entry, and its numbers.
fn read<const N: usize>(entry: &RestoredEntry<'_>) -> Result<(u32, [i64; N])> {
    let instance = entry.key.try_into().map_err(|_| cut_short())?;
    let mut numbers = [0; N];
    let mut rest = entry.value;
    for number in &mut numbers {
        let (bytes, behind) = rest.split_first_chunk().ok_or_else(cut_short)?;
        (*number, rest) = (i64::from_le_bytes(*bytes), behind);
    }
    Ok((u32::from_le_bytes(instance), numbers))
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
            state.take_cut(numbers);
            let mut writer = CutWriter::new(&mut chunk, usize::MAX);
            state.write_cut(&mut writer).unwrap();
            state.write_cut(&mut writer).unwrap();
        }
        assert_eq!(chunk.len(), 2);
        let restored = |mut state: OfInstance<2>| {
            let mut position = 0;
            let instance = state.instance;
            let mut entries = RestoredState::new(&chunk, &mut position, instance, usize::MAX);
            state.restore(&mut entries).unwrap();
            state
        };
        assert_eq!(restored(of(1, 2)).own_or_least(), Some([5, 7]));
        assert_eq!(restored(of(2, 3)).own_or_least(), Some([3, 7]));
        assert_eq!(restored(of(0, 1)).own_or_least(), Some([3, 7]));
        assert_eq!(restored(of(0, 1)).own(), Some([3, 9]));
        assert_eq!(restored(of(2, 3)).own(), None);
        assert_eq!(of(0, 1).own_or_least(), None);
    }
}
