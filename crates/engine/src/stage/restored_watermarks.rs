//! The watermarks of a vertex's instances in snapshots, stored by the runtime on behalf of the
//! processors.

use ardea_core::{
    Epoch, Instance, Result, SnapshotWriter, StateChunk, StateEntry, Timestamp, Watermark,
};

/// The name of the state: one entry per instance that had received a watermark.
const STATE: &str = "@watermark";

/// Writes the watermark of an instance at the end of this epoch; the key is the index and the
/// parallelism.
pub(super) fn write(
    writer: &mut SnapshotWriter<'_>,
    of: Instance,
    (epoch, watermark): (Epoch, Watermark),
) -> Result<()> {
    let key = [of.index.to_le_bytes(), of.parallelism.to_le_bytes()].concat();
    let time = watermark.0.as_micros().to_le_bytes();
    writer.set(STATE, None, &key, &time)?;
    writer.outdate(STATE, epoch)
}

/// The restored watermarks.
#[derive(Default)]
pub(super) struct RestoredWatermarks(Vec<(Instance, Watermark)>);

impl RestoredWatermarks {
    /// Collects the watermarks among the entries.
    pub(super) fn collect(&mut self, chunk: &StateChunk) {
        let own = chunk.entries().filter(|entry| entry.state == STATE);
        self.0.extend(own.filter_map(read));
    }

    /// Returns the watermark to repeat to an instance, if any: its own or, after a change of
    /// parallelism, the minimum of all. `None` if an instance had no watermark, since its records
    /// may be older. The end watermark is not repeated here; it follows from the ends of inputs.
    pub(super) fn watermark_for(&self, instance: Instance) -> Option<Watermark> {
        let (first, _) = self.0.first()?;
        let mut told = self.0.iter();
        if first.parallelism == instance.parallelism {
            let own = told.find(|(of, _)| of.index == instance.index);
            let (_, watermark) = own?;
            return Some(*watermark).filter(|watermark| *watermark != Watermark::END);
        }
        let have_all = self.0.len() >= first.parallelism as usize;
        let told = told.map(|(_, watermark)| *watermark);
        told.filter(|watermark| have_all && *watermark != Watermark::END)
            .min()
    }
}

fn read(entry: StateEntry<'_>) -> Option<(Instance, Watermark)> {
    let (index, parallelism) = entry.key.split_first_chunk()?;
    let of = Instance {
        index: u32::from_le_bytes(*index),
        parallelism: u32::from_le_bytes(parallelism.try_into().ok()?),
    };
    let time = i64::from_le_bytes(entry.value?.try_into().ok()?);
    Some((of, Watermark(Timestamp::from_micros(time))))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(secs: i64) -> Watermark {
        Watermark(Timestamp::from_secs(secs))
    }

    fn of(index: u32, parallelism: u32) -> Instance {
        Instance { index, parallelism }
    }

    fn told(all: &[(Instance, Watermark)]) -> RestoredWatermarks {
        let mut chunk = StateChunk::default();
        for (instance, watermark) in all {
            let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
            write(&mut writer, *instance, (Epoch(1), *watermark)).unwrap();
        }
        let mut told = RestoredWatermarks::default();
        told.collect(&chunk);
        told
    }

    #[test]
    fn each_is_told_what_it_had_been_told_and_others_the_least() {
        let told = told(&[(of(1, 2), at(7)), (of(0, 2), at(9))]);
        assert_eq!(told.watermark_for(of(0, 2)), Some(at(9)));
        assert_eq!(told.watermark_for(of(1, 2)), Some(at(7)));
        assert_eq!(told.watermark_for(of(2, 3)), Some(at(7)));
    }

    #[test]
    fn who_had_been_told_nothing_is_not_told_what_others_had() {
        let told = told(&[(of(1, 2), at(7))]);
        assert_eq!(told.watermark_for(of(0, 2)), None);
        assert_eq!(told.watermark_for(of(1, 2)), Some(at(7)));
        assert_eq!(
            told.watermark_for(of(0, 1)),
            None,
            "it has the other's input too"
        );
        assert_eq!(RestoredWatermarks::default().watermark_for(of(0, 1)), None);
    }

    #[test]
    fn the_end_of_time_is_not_told_and_holds_back_nobody() {
        let told = told(&[(of(0, 2), Watermark::END), (of(1, 2), at(7))]);
        assert_eq!(told.watermark_for(of(0, 2)), None);
        assert_eq!(told.watermark_for(of(0, 3)), Some(at(7)));
    }
}
