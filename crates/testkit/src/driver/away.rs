//! A processor that begins before all that it remembered is back.

use ardea_core::{Epoch, PARTITION_COUNT, PartitionId, StateChunk, Watermark};

use super::{Driver, Halt, guard};
use crate::callback::Callback;
use crate::kept::{KeptState, give_back};
use crate::random::SplitMix64;

/// How often `on_restored` may be called.
const MOST_CALLS: u32 = 1_000;

/// What has not come back yet.
pub(super) struct Away {
    epoch: Epoch,
    random: SplitMix64,
    /// The last comes next.
    partitions: Vec<(PartitionId, StateChunk)>,
    /// The latest watermark that the processor has been told, and whether it had not been before its death.
    told: Option<(Watermark, bool)>,
    /// Some have come back since the processor was done with what it had put aside.
    owes: bool,
}

impl Driver {
    /// Gives the processor back what has no partition, if it begins then; whether it does.
    pub(super) fn restore_early(
        &mut self,
        kept: &KeptState,
        (epoch, told): (Epoch, Option<Watermark>),
        mut random: SplitMix64,
    ) -> Result<bool, Halt> {
        let instance = self.context.instance;
        let processor = &mut *self.processor;
        let entries = kept.len() as u64;
        if !guard(Callback::Restore, || Ok(processor.begins_early(entries)))? {
            return Ok(false);
        }
        let (base, mut chunks) = guard(Callback::Restore, || kept.by_partition())?;
        guard(Callback::Restore, || {
            give_back(processor, (&base, instance), &mut random)
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
        self.away = Some(Box::new(Away {
            epoch,
            random,
            partitions,
            told: told.map(|told| (told, false)),
            owes: false,
        }));
        Ok(true)
    }

    /// The processor is told of time while something is away: if so, it is not to pass that on.
    pub(super) fn is_told_away(&mut self, watermark: Watermark) -> bool {
        let Some(away) = &mut self.away else {
            return false;
        };
        away.told = Some((watermark, true));
        true
    }

    /// Whether something has not come back.
    pub(super) fn is_away(&self) -> bool {
        let away = self.away.as_ref();
        away.is_some_and(|away| !away.partitions.is_empty())
    }

    /// Between two calls: brings some of what is away, first what is waited for.
    pub(super) fn bring_some(&mut self) -> Result<(), Halt> {
        let Some(away) = &mut self.away else {
            return Ok(());
        };
        let mut wanted = Vec::new();
        self.processor.take_wanted(&mut wanted);
        for partition in wanted.into_iter().rev() {
            let found = away.partitions.iter().position(|(it, _)| *it == partition);
            if let Some(found) = found {
                let next = away.partitions.remove(found);
                away.partitions.push(next);
            }
        }
        let most = match away.random.coin() {
            true => away.random.below(3),
            false => away.random.below(40),
        };
        (0..most).try_for_each(|_| self.bring_next())
    }

    /// Between two other callbacks: lets the processor deal with what it has put aside.
    pub(super) fn catch_up(&mut self) -> Result<(), Halt> {
        while self
            .away
            .as_mut()
            .is_some_and(|away| std::mem::take(&mut away.owes))
        {
            self.until_done(Callback::CatchUp, &mut |p, out| p.catch_up(out))?;
        }
        Ok(())
    }

    fn bring_next(&mut self) -> Result<(), Halt> {
        let instance = self.context.instance;
        let Some(away) = &mut self.away else {
            return Ok(());
        };
        let Some((partition, chunk)) = away.partitions.pop() else {
            return Ok(());
        };
        away.owes = true;
        let (processor, random) = (&mut *self.processor, &mut away.random);
        guard(Callback::Restore, || {
            let given = give_back(processor, (&chunk, instance), random)?;
            processor.on_partition_restored(partition)?;
            Ok(given)
        })?
        .map_err(Halt::Broken)
    }

    /// Brings all that is away, before something that waits for that.
    pub(super) fn come_back(&mut self) -> Result<(), Halt> {
        while self.is_away() {
            self.bring_next()?;
        }
        self.catch_up()?;
        let Some(away) = self.away.take() else {
            return Ok(());
        };
        let processor = &mut *self.processor;
        let mut calls = 0;
        while !guard(Callback::Restore, || processor.on_restored(away.epoch))?.done {
            calls += 1;
            if calls > MOST_CALLS {
                return Err(Halt::Broken("on_restored is never done".into()));
            }
        }
        self.wake_if_woken()?;
        let Some((told, is_new)) = away.told else {
            return Ok(());
        };
        self.move_all_on()?;
        let marks: Vec<_> = self.lanes.iter().map(|lane| lane.mark()).collect();
        self.until_done(Callback::Watermark(told), &mut |p, out| {
            p.on_watermark(told, out)
        })?;
        match is_new {
            true => self.given_watermarks.push(told),
            false => self.is_silent_since(&marks, "told the time again")?,
        }
        Ok(())
    }
}
