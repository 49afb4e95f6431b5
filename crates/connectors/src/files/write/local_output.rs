//! The output of a file sink in the local file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{
    Epoch, Error, ErrorCode, Instance, InstanceContext, JobSignals, Progress, RestoredState,
    Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
};
use ardea_filesystem::Shown;

use super::pending_files::PendingFiles;
use crate::files::claim::Claim;
use crate::files::list::cannot_read;
use crate::files::output::{FileOutput, OutputFile, ResumedFile, ResumedOutput};
use crate::files::part_file::{PART_SUFFIX, PartFile, cannot_write, with_suffix};
use crate::files::plan::Plan;
use crate::files::special_file::ReadyEvent;

impl OutputFile for PartFile {
    fn name(&self) -> &Path {
        PartFile::name(self)
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        PartFile::write(self, bytes)
    }

    fn seal(&mut self) -> Result<()> {
        PartFile::seal(self)
    }

    fn sync(&mut self) -> Result<()> {
        PartFile::sync(self)
    }
}

/// The output of an instance in the local file system.
pub(super) struct LocalOutput {
    plan: Plan,
    /// Prevents other sinks from writing to the output.
    _claim: Option<Claim>,
    instance: Instance,
    number: u64,
    /// True if a file needs an end to be complete.
    has_end: bool,
    signals: Arc<JobSignals>,
    /// The files that are not yet visible; `None` in a job without state.
    pending_files: Option<PendingFiles>,
}

impl LocalOutput {
    pub fn new(plan: Plan, instance: Instance, claim: Option<Claim>) -> Self {
        LocalOutput {
            plan,
            _claim: claim,
            instance,
            number: 0,
            has_end: false,
            signals: Arc::default(),
            pending_files: None,
        }
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

impl FileOutput for LocalOutput {
    type File = PartFile;

    fn init(&mut self, context: &InstanceContext, has_end: bool) -> Result<()> {
        self.has_end = has_end;
        self.signals = Arc::clone(&context.signals);
        if context.guarantee.keeps_state() && !self.plan.is_special(self.instance) {
            self.plan.probe(self.instance)?;
            self.pending_files = Some(PendingFiles::new(self.instance));
        }
        if self.plan.rotates() {
            let number = self.plan.first_free_number(self.instance);
            self.number = number.map_err(|error| cannot_write(&self.plan.path, error))?;
        }
        Ok(())
    }

    fn begins_at_start(&self) -> bool {
        // With state, a restore may still continue a file.
        !self.plan.rotates() && self.pending_files.is_none()
    }

    fn begin(&mut self) -> Result<PartFile> {
        if let Some(ledger) = &mut self.pending_files {
            ledger.begin();
        }
        match self.plan.rotates() {
            true => self.begin_numbered(),
            false => self.begin_only(),
        }
    }

    fn finish(&mut self, file: Option<PartFile>) -> Result<()> {
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

    fn discard(&mut self, _: PartFile) {
        // It stays as an unfinished file.
    }

    fn keeps_state(&self) -> bool {
        self.pending_files.is_some()
    }

    fn owes_file(&self) -> bool {
        let ledger = self.pending_files.as_ref();
        ledger.is_some_and(|ledger| !ledger.has_begun()) && !self.plan.rotates()
    }

    fn end(&mut self) {
        if let Some(ledger) = &mut self.pending_files {
            ledger.end();
        }
    }

    fn check(&self) -> Result<()> {
        self.pending_files
            .as_ref()
            .map_or(Ok(()), PendingFiles::check)
    }

    fn settle(&mut self, _: Option<&mut PartFile>) -> Result<Progress> {
        Ok(Progress::DONE)
    }

    fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        open: Option<(&PartFile, Timestamp)>,
    ) -> Result<()> {
        match &mut self.pending_files {
            Some(ledger) => ledger.take_snapshot(snapshot, open, self.number),
            None => Ok(()),
        }
    }

    fn states() -> Vec<StateShape> {
        PendingFiles::states()
    }

    fn write_snapshot(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        open: Option<&PartFile>,
    ) -> Result<Progress> {
        match &mut self.pending_files {
            Some(ledger) => ledger.write_snapshot(writer, open),
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

    fn resume(&mut self, epoch: Epoch) -> Result<Option<ResumedOutput<PartFile>>> {
        let resumed = match &mut self.pending_files {
            Some(ledger) => ledger.resume(epoch, &self.plan, self.has_end)?,
            None => None,
        };
        let Some(resumed) = resumed else {
            return Ok(None);
        };
        self.number = self.number.max(resumed.number);
        let with_content = |file: PartFile, begun| {
            let content = file.written_so_far();
            let content = content.map_err(|error| cannot_read(file.name(), error))?;
            Ok(ResumedFile {
                file,
                begun,
                content,
            })
        };
        let open = resumed.file.map(|file| with_content(file, resumed.begun));
        let interrupted = resumed.interrupted.into_iter();
        let interrupted = interrupted.map(|file| with_content(file, None));
        Ok(Some(ResumedOutput {
            open: open.transpose()?,
            interrupted: interrupted.collect::<Result<_>>()?,
        }))
    }

    fn publish(&mut self, epoch: Epoch) -> Result<()> {
        let (plan, instance, number) = (&self.plan, self.instance, &mut self.number);
        match &mut self.pending_files {
            Some(ledger) => {
                ledger.publish(epoch, !plan.rotates(), || next_path(plan, instance, number))
            }
            None => Ok(()),
        }
    }

    fn is_waiting(&self) -> bool {
        self.pending_files
            .as_ref()
            .is_some_and(PendingFiles::is_waiting)
    }
}
