//! The processor that writes files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext, JobSignals,
    Ordinal, Outbox, Processor, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape, Timestamp,
};
use ardea_filesystem::Shown;

use super::pending_files::PendingFiles;
use crate::files::claim::Claim;
use crate::files::list::cannot_read;
use crate::files::part_file::{PART_SUFFIX, PartFile, cannot_write, with_suffix};
use crate::files::plan::Plan;
use crate::files::special_file::ReadyEvent;
use crate::record_input::InputForm;
use crate::record_writer::Writing;

/// The processor that writes one file after the other.
pub(super) struct WriteFilesP<F> {
    plan: Plan,
    /// Prevents other sinks from writing to the output.
    pub claim: Option<Claim>,
    instance: Instance,
    outgo: F,
    file: Option<PartFile>,
    /// The wall-clock time when the present file was started.
    begun: Timestamp,
    /// The time when the present file becomes too old, on the instance's clock.
    ends_at: Option<Duration>,
    number: u64,
    buffer: Vec<u8>,
    clock: Clock,
    signals: Arc<JobSignals>,
    /// The files that are not yet visible; `None` in a job without state.
    pending_files: Option<PendingFiles>,
}

impl<F: InputForm> WriteFilesP<F> {
    pub fn new(plan: Plan, instance: Instance, writing: &Writing<F::Encoder>) -> Self {
        WriteFilesP {
            plan,
            claim: None,
            instance,
            outgo: F::new(writing),
            file: None,
            begun: Timestamp::MIN,
            ends_at: None,
            number: 0,
            buffer: Vec::new(),
            clock: Clock::system(),
            signals: Arc::default(),
            pending_files: None,
        }
    }

    fn begin_file(&mut self) -> Result<()> {
        self.count_age_from(self.clock.wall());
        if let Some(ledger) = &mut self.pending_files {
            ledger.begin();
        }
        self.file = Some(if self.plan.rotates() {
            self.begin_numbered()?
        } else {
            self.begin_only()?
        });
        Ok(())
    }

    /// Sets the wall-clock time from which the age of the present file counts.
    fn count_age_from(&mut self, begun: Timestamp) {
        self.begun = begun;
        let (now, has) = (self.clock.now(), self.clock.wall().since(begun));
        let ends_at = |age: Duration| now.saturating_add(age.saturating_sub(has));
        self.ends_at = self.plan.rotate_after.map(ends_at);
    }

    /// Creates the file with the next number that no process has used.
    fn begin_numbered(&mut self) -> Result<PartFile> {
        loop {
            let path = self.next_path()?;
            let part = match &self.pending_files {
                Some(ledger) => ledger.part_of(&path),
                None => with_suffix(&path, PART_SUFFIX),
            };
            if let Some(file) = PartFile::create_new(path, part, self.plan.compression)? {
                return Ok(file);
            }
        }
    }

    fn next_path(&mut self) -> Result<PathBuf> {
        next_path(&self.plan, self.instance, &mut self.number)
    }

    /// Creates the single file of an instance without rotation.
    fn begin_only(&mut self) -> Result<PartFile> {
        let generation = self
            .pending_files
            .as_ref()
            .map_or(0, |ledger| ledger.generation);
        let path = self.plan.file_of_generation(self.instance, generation);
        let signals = Arc::clone(&self.signals);
        let go_on = move |awaited| match awaited {
            // Without a reader, a draining job cannot deliver its records; a slow reader still
            // receives all of them.
            ReadyEvent::Reader => !signals.is_draining(),
            ReadyEvent::Room => !signals.is_cancelled(),
        };
        let created = PartFile::create(path, self.plan.compression, go_on);
        created.map_err(|error| match error.code() {
            ErrorCode::Cancelled if !self.signals.is_cancelled() => {
                let path = self.plan.path.shown();
                let what = format!(
                    "the job is draining, but its records can't be delivered: {path} has no reader"
                );
                Error::new(ErrorCode::WriteFailed, what)
                    .hint("have a program read it while the job runs, or write to a plain file")
            }
            _ => error,
        })
    }

    /// Writes the buffer to the present file, created now if there is none.
    fn write_buffer(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.begin_file()?;
        }
        if let Some(file) = &mut self.file {
            file.write(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }

    fn finish_file(&mut self) -> Result<()> {
        self.ends_at = None;
        if self.file.is_some() || self.outgo.held_bytes() > 0 {
            self.outgo.finish(&mut self.buffer)?;
            self.write_buffer()?;
        }
        self.outgo.begin();
        let file = self.file.take();
        if let Some(ledger) = &mut self.pending_files {
            let whole = match file {
                Some(file) => file.end(false)?,
                None => None,
            };
            return whole.map_or(Ok(()), |whole| ledger.add(whole));
        }
        match file {
            None => Ok(()),
            Some(file) if self.plan.rotates() => {
                let sync = self.plan.sync;
                file.finish_free(sync, || self.next_path())
            }
            Some(file) => file.finish(self.plan.sync),
        }
    }

    fn finish_if_old(&mut self) -> Result<()> {
        match self.ends_at {
            Some(deadline) if self.clock.now() >= deadline => self.finish_file(),
            _ => Ok(()),
        }
    }

    /// Returns the size of the present file before compression, with the records that are not yet
    /// written to it.
    fn size(&self) -> u64 {
        let written = self.file.as_ref().map_or(0, |file| file.written);
        written + self.buffer.len() as u64 + self.outgo.held_bytes()
    }

    /// Returns the size that the present file still lacks until the next one starts, at least one.
    fn room(&self) -> u64 {
        let most = self.plan.rotate_bytes.unwrap_or(u64::MAX);
        most.saturating_sub(self.size()).max(1)
    }

    fn is_full(&self) -> bool {
        let size = self.size();
        let is_full = |most| size > 0 && size >= most;
        self.plan.rotate_bytes.is_some_and(is_full)
    }

    /// Makes the output of committed epochs visible.
    fn publish(&mut self, epoch: Epoch) -> Result<()> {
        let (plan, instance, number) = (&self.plan, self.instance, &mut self.number);
        match &mut self.pending_files {
            Some(ledger) => {
                ledger.publish(epoch, !plan.rotates(), || next_path(plan, instance, number))
            }
            None => Ok(()),
        }
    }

    /// Ends an epoch: makes the bytes written so far a valid file and a possible truncation point.
    fn seal(&mut self) -> Result<()> {
        let age = self.clock.wall().since(self.begun);
        if self.file.is_some() && self.plan.ends_with_epoch(self.size(), age) {
            return self.finish_file();
        }
        self.outgo.seal(&mut self.buffer)?;
        self.write_buffer()?;
        self.file.as_mut().map_or(Ok(()), PartFile::seal)
    }

    /// Continues a file of an earlier attempt.
    fn continue_file(&mut self, file: PartFile) -> Result<PartFile> {
        let path = file.sealed().1;
        let written = file.written_so_far();
        let mut written = written.map_err(|error| cannot_read(path, error))?;
        self.outgo.resume_from(&mut written).map_err(|error| {
            let is_permanent = error.is_permanent();
            let what = format!("cannot go on with {}", path.shown());
            let error = Error::new(error.code(), what).because(error).hint(
                "put the file back that was being written, or start the job without the checkpoint",
            );
            match is_permanent {
                true => error.permanent(),
                false => error,
            }
        })?;
        Ok(file)
    }

    /// Completes a file of an earlier attempt that no instance continues.
    fn complete_interrupted(&mut self, file: PartFile) -> Result<()> {
        let mut file = self.continue_file(file)?;
        self.outgo.finish(&mut self.buffer)?;
        file.write(&self.buffer)?;
        self.buffer.clear();
        self.outgo.begin();
        match (&mut self.pending_files, file.end(false)?) {
            (Some(ledger), Some(whole)) => ledger.add(whole),
            _ => Ok(()),
        }
    }
}

/// Returns the path of the file with the next number.
fn next_path(plan: &Plan, instance: Instance, number: &mut u64) -> Result<PathBuf> {
    let path = plan.file(instance, *number);
    let Some(next) = number.checked_add(1) else {
        let what = format!("no number is left for another {}", plan.path.shown());
        return Err(Error::new(ErrorCode::WriteFailed, what)
            .hint("rename the file with the highest number, or write under another name"));
    };
    *number = next;
    Ok(path)
}

impl<F: InputForm> Processor for WriteFilesP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.outgo.attach(context);
        self.clock = context.clock.clone();
        self.signals = Arc::clone(&context.signals);
        if context.guarantee.keeps_state() && !self.plan.is_special(self.instance) {
            self.plan.probe(self.instance)?;
            self.pending_files = Some(PendingFiles::new(self.instance));
        }
        if self.plan.rotates() {
            let number = self.plan.first_free_number(self.instance);
            self.number = number.map_err(|error| cannot_write(&self.plan.path, error))?;
        } else if self.pending_files.is_none() {
            // Created now, so that an unwritable path fails the job at its start. With state, a
            // restore may still continue a file.
            self.begin_file()?;
        }
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if let Some(ledger) = &self.pending_files {
            ledger.check()?;
        }
        self.finish_if_old()?;
        while !inbox.is_empty() {
            let room = self.room();
            self.outgo.encode(inbox, room, &mut self.buffer)?;
            if self.is_full() {
                self.write_buffer()?;
                self.finish_file()?;
            }
        }
        self.write_buffer()?;
        if let Some(deadline) = self.ends_at {
            outbox.wake_at(deadline);
        }
        Ok(())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.finish_if_old()?;
        if let Some(deadline) = self.ends_at {
            outbox.wake_at(deadline);
        }
        Ok(())
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        if let Some(ledger) = &self.pending_files {
            ledger.check()?;
            self.seal()?;
            if let Some(deadline) = self.ends_at {
                outbox.wake_at(deadline);
            }
        } else if let Some(file) = self.file.as_mut().filter(|_| self.plan.sync) {
            file.sync()?;
        }
        Ok(Progress::DONE)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.write_buffer()?;
        let is_owed = self
            .pending_files
            .as_ref()
            .is_some_and(|ledger| !ledger.has_begun());
        if is_owed && !self.plan.rotates() {
            self.begin_file()?;
        }
        self.finish_file()?;
        if let Some(ledger) = &mut self.pending_files {
            ledger.end();
        }
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.file = None;
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<F: InputForm> Checkpointed for WriteFilesP<F> {
    fn states(&mut self) -> Vec<StateShape> {
        PendingFiles::states()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        match &mut self.pending_files {
            Some(ledger) => {
                let open = self.file.as_ref().map(|file| (file, self.begun));
                ledger.take_snapshot(snapshot, open, self.number)
            }
            None => Ok(()),
        }
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        match &mut self.pending_files {
            Some(ledger) => ledger.write_snapshot(writer, self.file.as_ref()),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        // Output to a device or a pipe has no state.
        match &mut self.pending_files {
            Some(ledger) => ledger.restore(state),
            None => state
                .next()
                .map_or(Ok(()), |entry| Err(RestoredState::unknown(&entry))),
        }
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let resumed = match &mut self.pending_files {
            Some(ledger) => ledger.resume(epoch, &self.plan, F::HAS_END)?,
            None => None,
        };
        let Some(resumed) = resumed else {
            return Ok(Progress::DONE);
        };
        self.number = self.number.max(resumed.number);
        for file in resumed.interrupted {
            self.complete_interrupted(file)?;
        }
        if let Some(file) = resumed.file {
            // States of earlier versions lack the time.
            self.count_age_from(resumed.begun.unwrap_or_else(|| self.clock.wall()));
            self.file = Some(self.continue_file(file)?);
        }
        // Renames the committed files that the earlier attempt did not rename.
        self.publish(epoch)?;
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.publish(epoch)?;
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.pending_files
            .as_ref()
            .is_some_and(PendingFiles::is_waiting)
    }
}
