//! The processor that writes files.

use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Error, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
};
use ardea_filesystem::Shown;

use crate::files::output::{FileOutput, OutputFile, ResumedFile};
use crate::files::plan::Plan;
use crate::record_input::InputForm;
use crate::record_writer::Writing;

/// The processor that writes one file after the other.
pub(super) struct WriteFilesP<F, O: FileOutput> {
    plan: Plan,
    output: O,
    outgo: F,
    file: Option<O::File>,
    /// The wall-clock time when the present file was started.
    begun: Timestamp,
    /// The time when the present file becomes too old, on the instance's clock.
    ends_at: Option<Duration>,
    buffer: Vec<u8>,
    clock: Clock,
}

impl<F: InputForm, O: FileOutput> WriteFilesP<F, O> {
    pub fn new(plan: Plan, output: O, writing: &Writing<F::Encoder>) -> Self {
        WriteFilesP {
            plan,
            output,
            outgo: F::new(writing),
            file: None,
            begun: Timestamp::MIN,
            ends_at: None,
            buffer: Vec::new(),
            clock: Clock::system(),
        }
    }

    fn begin_file(&mut self) -> Result<()> {
        self.count_age_from(self.clock.wall());
        self.file = Some(self.output.begin()?);
        Ok(())
    }

    /// Sets the wall-clock time from which the age of the present file counts.
    fn count_age_from(&mut self, begun: Timestamp) {
        self.begun = begun;
        let (now, has) = (self.clock.now(), self.clock.wall().since(begun));
        let ends_at = |age: Duration| now.saturating_add(age.saturating_sub(has));
        self.ends_at = self.plan.rotate_after.map(ends_at);
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
        self.output.finish(self.file.take())
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
        let written = self.file.as_ref().map_or(0, OutputFile::written);
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

    /// Ends an epoch: makes the bytes written so far a valid file and a possible truncation point.
    fn seal(&mut self) -> Result<()> {
        let age = self.clock.wall().since(self.begun);
        if self.file.is_some() && self.plan.ends_with_epoch(self.size(), age) {
            return self.finish_file();
        }
        self.outgo.seal(&mut self.buffer)?;
        self.write_buffer()?;
        self.file.as_mut().map_or(Ok(()), OutputFile::seal)
    }

    /// Continues a file of an earlier attempt.
    fn continue_file(&mut self, resumed: ResumedFile<O::File>) -> Result<O::File> {
        let ResumedFile {
            file, mut content, ..
        } = resumed;
        self.outgo.resume_from(&mut content).map_err(|error| {
            let is_permanent = error.is_permanent();
            let what = format!("cannot go on with {}", file.name().shown());
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
    fn complete_interrupted(&mut self, resumed: ResumedFile<O::File>) -> Result<()> {
        let mut file = self.continue_file(resumed)?;
        self.outgo.finish(&mut self.buffer)?;
        file.write(&self.buffer)?;
        self.buffer.clear();
        self.outgo.begin();
        self.output.finish(Some(file))
    }
}

impl<F: InputForm, O: FileOutput> Processor for WriteFilesP<F, O> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.outgo.attach(context);
        self.clock = context.clock.clone();
        self.output.init(context, F::HAS_END)?;
        if self.output.begins_at_start() {
            self.begin_file()?;
        }
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.output.check()?;
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
        if self.output.keeps_state() {
            self.output.check()?;
            self.seal()?;
            if let Some(deadline) = self.ends_at {
                outbox.wake_at(deadline);
            }
            return self.output.settle(self.file.as_mut());
        }
        if let Some(file) = self.file.as_mut().filter(|_| self.plan.sync) {
            file.sync()?;
        }
        Ok(Progress::DONE)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.write_buffer()?;
        if self.output.owes_file() {
            self.begin_file()?;
        }
        self.finish_file()?;
        self.output.end();
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        if let Some(file) = self.file.take() {
            self.output.discard(file);
        }
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<F: InputForm, O: FileOutput> Checkpointed for WriteFilesP<F, O> {
    fn states(&mut self) -> Vec<StateShape> {
        O::states()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let open = self.file.as_ref().map(|file| (file, self.begun));
        self.output.take_snapshot(snapshot, open)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.output.write_snapshot(writer, self.file.as_ref())
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.output.restore(state)
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(resumed) = self.output.resume(epoch)? else {
            return Ok(Progress::DONE);
        };
        for interrupted in resumed.interrupted {
            self.complete_interrupted(interrupted)?;
        }
        if let Some(open) = resumed.open {
            // States of earlier versions lack the time.
            self.count_age_from(open.begun.unwrap_or_else(|| self.clock.wall()));
            self.file = Some(self.continue_file(open)?);
        }
        // Completes the committed output that the earlier attempt did not make visible.
        self.output.publish(epoch)?;
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.output.publish(epoch)?;
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.output.is_waiting()
    }
}
