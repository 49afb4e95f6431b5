//! The storage to which a file sink writes: the local file system, or a bucket.

use std::path::Path;

use ardea_core::{
    Epoch, InstanceContext, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape, Timestamp,
};

use super::output_content::OutputContent;

/// A file that is being written.
pub(super) trait OutputFile: Send + 'static {
    /// Returns the present name.
    fn name(&self) -> &Path;

    /// Returns the number of bytes written so far, before compression.
    fn written(&self) -> u64;

    /// Writes all bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the bytes written so far readable by themselves, and a possible end of the file.
    fn seal(&mut self) -> Result<()>;

    /// Makes the bytes written so far durable, as far as possible before the file is complete.
    fn sync(&mut self) -> Result<()>;
}

/// A file of an earlier attempt, truncated to its last sealed byte.
pub(super) struct ResumedFile<F> {
    pub file: F,
    /// The wall-clock time when the file was started; `None` in states of earlier versions.
    pub begun: Option<Timestamp>,
    pub content: OutputContent,
}

/// The unfinished files of an earlier attempt.
pub(super) struct ResumedOutput<F> {
    /// The file that is continued.
    pub open: Option<ResumedFile<F>>,
    /// The files that no instance continues, if they need an end.
    pub interrupted: Vec<ResumedFile<F>>,
}

/// The output of one instance of a file sink. In a job with state, a complete file becomes visible
/// when the epoch of a snapshot that contains it is committed. Otherwise it becomes visible at
/// once.
pub(super) trait FileOutput: Send + 'static {
    type File: OutputFile;

    /// Called by [`Processor::init`](ardea_core::Processor::init). `has_end` is true if a file needs
    /// an end to be complete.
    fn init(&mut self, context: &InstanceContext, has_end: bool) -> Result<()>;

    /// Returns true if a file is started before the first record, so that an unwritable path fails
    /// the job at its start.
    fn begins_at_start(&self) -> bool;

    /// Starts the next file.
    fn begin(&mut self) -> Result<Self::File>;

    /// Completes the present file, if there is one.
    fn finish(&mut self, file: Option<Self::File>) -> Result<()>;

    /// Drops the file of an attempt that does not complete it.
    fn discard(&mut self, file: Self::File);

    /// Returns true in a job with state.
    fn keeps_state(&self) -> bool;

    /// Returns true if a file has to be written although there was no record.
    fn owes_file(&self) -> bool;

    /// Records that the input has ended.
    fn end(&mut self);

    /// # Errors
    /// An error of an earlier snapshot, after which nothing may be written.
    fn check(&self) -> Result<()>;

    /// Waits until all that the next snapshot contains is in the storage. Called until done.
    fn settle(&mut self, open: Option<&mut Self::File>) -> Result<Progress>;

    /// See [`Checkpointed`](ardea_core::Checkpointed), also for the methods below. `open` is the
    /// file that is being written, sealed, and the time when it was started.
    fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        open: Option<(&Self::File, Timestamp)>,
    ) -> Result<()>;

    fn states() -> Vec<StateShape>;

    fn write_snapshot(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        open: Option<&Self::File>,
    ) -> Result<Progress>;

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()>;

    /// Continues from the restored state, if there is one. Publishes nothing.
    fn resume(&mut self, epoch: Epoch) -> Result<Option<ResumedOutput<Self::File>>>;

    /// Makes the complete files of committed epochs visible.
    fn publish(&mut self, epoch: Epoch) -> Result<()>;

    /// Returns true if complete files are not visible yet.
    fn is_waiting(&self) -> bool;
}
