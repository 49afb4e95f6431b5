//! Partitions that have not come as far as the others.

use ardea_core::{Key, PARTITION_COUNT, PartitionId, Watermark};

use super::spec::{ALL_SLICES, Slice, WindowSpec};
use super::told::Told;

/// The windows before the frontier that some partitions have still to emit, since others were ahead of them when they came together.
///
/// So long as there are any the frontier stays where it is: all slices before it are frozen, and what is owed is computed from them, key by
/// key, when time comes to it. No window comes twice, and none is left out.
pub(crate) struct Lag<R> {
    /// By partition, the first window that it had not emitted, and the first that it kept.
    begun: Box<[(Slice, Slice)]>,
    /// Windows before this have been emitted for all.
    pub(crate) at: Slice,
    /// The next slot to look at.
    pub(crate) next: u32,
    /// What those before it have.
    pub(crate) results: Vec<(Slice, u32, R)>,
}

/// The first window that has not been emitted when time has come to `told`.
pub(crate) fn first_window(spec: &WindowSpec, told: Watermark) -> Slice {
    match told {
        Watermark::NONE => Slice::MIN,
        _ => spec.first_open(told),
    }
}

impl<R> Lag<R> {
    /// With a frontier that is beyond what the partitions of `told` have emitted.
    pub(crate) fn new(spec: &WindowSpec, told: &Told) -> Self {
        let begun = (0..PARTITION_COUNT as usize).map(|partition| {
            let ahead = told
                .ahead()
                .map_or(Watermark::NONE, |ahead| ahead[partition]);
            let told = ahead.max(told.now());
            (first_window(spec, told), spec.first_kept(told))
        });
        Lag {
            begun: begun.collect(),
            at: first_window(spec, told.now()),
            next: 0,
            results: Vec::new(),
        }
    }

    /// The frontier of the partition that has come furthest and has not ended, or the one that all have.
    pub(crate) fn furthest(spec: &WindowSpec, told: &Told) -> Slice {
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

    /// The first window that has not been emitted for `key`.
    pub(crate) fn emitted_before<K: Key>(&self, key: &K) -> Slice {
        self.begun(key).0.max(self.at)
    }

    /// The windows before `until` that have still to be emitted for `key`.
    pub(crate) fn owed<K: Key>(
        &self,
        key: &K,
        until: Slice,
    ) -> Option<std::ops::RangeInclusive<Slice>> {
        let first = self.emitted_before(key);
        (first < until).then(|| first..=until - 1)
    }

    /// From which window, and before which, late records of `key` lead to corrections, of those for all keys.
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
