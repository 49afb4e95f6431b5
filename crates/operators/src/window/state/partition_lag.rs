//! Partitions that are behind others after a rescale.

use ardea_core::{Key, PARTITION_COUNT, PartitionId, Watermark};

use super::partition_watermarks::PartitionWatermarks;
use crate::window::spec::{ALL_SLICES, Slice, WindowSpec};

/// The windows before the frontier (the next window to emit) that some partitions have not emitted,
/// because other partitions of the instance were ahead when they were restored.
///
/// While such windows exist, the frontier does not move. All slices before it are frozen, and the
/// missing windows are computed from them key by key as the watermark reaches them. Each window is
/// emitted exactly once.
pub(crate) struct PartitionLag<R> {
    /// By partition, the first window that was not emitted, and the first that was retained.
    begun: Box<[(Slice, Slice)]>,
    /// Windows before this one have been emitted for all partitions.
    pub(crate) at: Slice,
    /// The next slot to check.
    pub(crate) next: u32,
    /// The results of the slots before `next`.
    pub(crate) results: Vec<(Slice, u32, R)>,
}

/// Returns the first window that is not emitted when the watermark is `told`.
pub(crate) fn first_window(spec: &WindowSpec, told: Watermark) -> Slice {
    match told {
        Watermark::NONE => Slice::MIN,
        _ => spec.first_open(told),
    }
}

impl<R> PartitionLag<R> {
    /// Creates the lag for a frontier beyond the emitted windows of the partitions in `told`.
    pub(crate) fn new(spec: &WindowSpec, told: &PartitionWatermarks) -> Self {
        let begun = (0..PARTITION_COUNT as usize).map(|partition| {
            let ahead = told
                .ahead()
                .map_or(Watermark::NONE, |ahead| ahead[partition]);
            let told = ahead.max(told.now());
            (first_window(spec, told), spec.first_kept(told))
        });
        PartitionLag {
            begun: begun.collect(),
            at: first_window(spec, told.now()),
            next: 0,
            results: Vec::new(),
        }
    }

    /// Returns the frontier of the most advanced partition whose input has not ended; that of the
    /// instance if no partition is ahead.
    pub(crate) fn furthest(spec: &WindowSpec, told: &PartitionWatermarks) -> Slice {
        let ahead = told.ahead().unwrap_or_default().iter();
        let ahead = ahead.filter(|told| **told != Watermark::END);
        let furthest = ahead.copied().fold(told.now(), Watermark::max);
        first_window(spec, furthest)
    }

    fn begun<K: Key>(&self, key: &K) -> (Slice, Slice) {
        let partition = PartitionId::of(key).index() as usize;
        self.begun
            .get(partition)
            .copied()
            .unwrap_or((ALL_SLICES, ALL_SLICES))
    }

    /// Returns the first window that has not been emitted for `key`.
    pub(crate) fn emitted_before<K: Key>(&self, key: &K) -> Slice {
        self.begun(key).0.max(self.at)
    }

    /// Returns the windows before `until` that have not been emitted for `key`.
    pub(crate) fn missing_windows<K: Key>(
        &self,
        key: &K,
        until: Slice,
    ) -> Option<std::ops::RangeInclusive<Slice>> {
        let first = self.emitted_before(key);
        (first < until).then(|| first..=until - 1)
    }

    /// Restricts the range of windows to correct, from `kept_from` to before `emitted_before`, to
    /// the windows that apply to `key`.
    pub(crate) fn revised<K: Key>(
        &self,
        key: &K,
        (kept_from, emitted_before): (Slice, Slice),
    ) -> (Slice, Slice) {
        let (emitted, kept) = self.begun(key);
        let emitted = emitted.max(self.at);
        (kept_from.max(kept), emitted_before.min(emitted))
    }
}
