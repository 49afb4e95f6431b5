//! A processor that starts before all of its state is restored.

use ardea_core::{Epoch, PARTITION_COUNT, PartitionId, StateChunk, Watermark};

use super::{Driver, Halt, guard};
use crate::callback::Callback;
use crate::captured_state::{CapturedState, restore_chunk};
use crate::random::SplitMix64;

const MAX_RESTORED_CALLS: u32 = 1_000;

/// The state that is not restored yet.
pub(super) struct UnrestoredState {
    epoch: Epoch,
    random: SplitMix64,
    /// The partitions not restored yet; the last is restored next.
    partitions: Vec<(PartitionId, StateChunk)>,
    /// The latest watermark passed to the processor, and whether it is newer than the restored one.
    watermark: Option<(Watermark, bool)>,
    /// True if partitions were restored since the processor last caught up with deferred records.
    must_catch_up: bool,
}

impl Driver {
    /// Restores the entries without a partition if the processor supports an early start. Returns
    /// false if it does not.
    pub(super) fn restore_early(
        &mut self,
        kept: &CapturedState,
        (epoch, told): (Epoch, Option<Watermark>),
        mut random: SplitMix64,
    ) -> Result<bool, Halt> {
        let instance = self.context.instance;
        let processor = &mut *self.processor;
        let entries = kept.len() as u64;
        if !guard(Callback::Restore, || {
            Ok(processor.state().partitions().enable_lazy_restore(entries))
        })? {
            return Ok(false);
        }
        let (base, mut chunks) = guard(Callback::Restore, || kept.by_partition())?;
        guard(Callback::Restore, || {
            restore_chunk(processor, (&base, instance), &mut random)
        })?
        .map_err(Halt::Broken)?;
        let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        let own = all.filter(|it| it.owner(instance.parallelism) == instance.index);
        let mut partitions: Vec<_> = own
            .map(|partition| (partition, chunks.remove(&partition).unwrap_or_default()))
            .collect();
        for at in (1..partitions.len()).rev() {
            partitions.swap(at, random.below(at + 1));
        }
        self.unrestored = Some(Box::new(UnrestoredState {
            epoch,
            random,
            partitions,
            watermark: told.map(|told| (told, false)),
            must_catch_up: false,
        }));
        Ok(true)
    }

    /// Records the watermark and returns true if some state is not restored yet: the processor must
    /// not forward that watermark.
    pub(super) fn defer_watermark(&mut self, watermark: Watermark) -> bool {
        let Some(away) = &mut self.unrestored else {
            return false;
        };
        away.watermark = Some((watermark, true));
        true
    }

    /// Returns true if some state is not restored yet.
    pub(super) fn has_unrestored(&self) -> bool {
        let away = self.unrestored.as_ref();
        away.is_some_and(|away| !away.partitions.is_empty())
    }

    /// Restores some partitions between two calls, requested ones first.
    pub(super) fn restore_some(&mut self) -> Result<(), Halt> {
        let Some(away) = &mut self.unrestored else {
            return Ok(());
        };
        let mut wanted = Vec::new();
        self.processor
            .state()
            .partitions()
            .take_requested_partitions(&mut wanted);
        for partition in wanted.into_iter().rev() {
            let found = away.partitions.iter().position(|(it, _)| *it == partition);
            if let Some(found) = found {
                let next = away.partitions.remove(found);
                away.partitions.push(next);
            }
        }
        let most = match away.random.random_bool() {
            true => away.random.below(3),
            false => away.random.below(40),
        };
        (0..most).try_for_each(|_| self.restore_next())
    }

    /// Lets the processor handle deferred records, between two other callbacks.
    pub(super) fn catch_up(&mut self) -> Result<(), Halt> {
        while self
            .unrestored
            .as_mut()
            .is_some_and(|away| std::mem::take(&mut away.must_catch_up))
        {
            self.until_done(Callback::CatchUp, &mut |p, out| p.catch_up(out))?;
        }
        Ok(())
    }

    fn restore_next(&mut self) -> Result<(), Halt> {
        let instance = self.context.instance;
        let Some(away) = &mut self.unrestored else {
            return Ok(());
        };
        let Some((partition, chunk)) = away.partitions.pop() else {
            return Ok(());
        };
        away.must_catch_up = true;
        let (processor, random) = (&mut *self.processor, &mut away.random);
        guard(Callback::Restore, || {
            let given = restore_chunk(processor, (&chunk, instance), random)?;
            processor
                .state()
                .partitions()
                .on_partition_restored(partition)?;
            Ok(given)
        })?
        .map_err(Halt::Broken)
    }

    /// Restores all remaining state, before an operation that requires it.
    pub(super) fn restore_rest(&mut self) -> Result<(), Halt> {
        while self.has_unrestored() {
            self.restore_next()?;
        }
        self.catch_up()?;
        let Some(away) = self.unrestored.take() else {
            return Ok(());
        };
        let processor = &mut *self.processor;
        let mut calls = 0;
        while !guard(Callback::Restore, || {
            processor.state().on_restored(away.epoch)
        })?
        .done
        {
            calls += 1;
            if calls > MAX_RESTORED_CALLS {
                return Err(Halt::Broken("on_restored is never done".into()));
            }
        }
        self.wake_if_woken()?;
        let Some((told, is_new)) = away.watermark else {
            return Ok(());
        };
        self.move_all_on()?;
        let marks: Vec<_> = self.lanes.iter().map(|lane| lane.mark()).collect();
        self.until_done(Callback::Watermark(told), &mut |p, out| {
            p.on_watermark(told, out)
        })?;
        match is_new {
            true => self.given_watermarks.push(told),
            false => self.check_silent_since(&marks, "with the watermark repeated")?,
        }
        Ok(())
    }
}
