//! Suppliers of files to a reader, with their state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Epoch, InstanceContext, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape,
};

use super::splits::{FilePosition, FileSplits, ToRead};
use crate::files::fingerprint::FileIdentity;
use crate::files::list::Listing;
use crate::files::location::FileStore;
use crate::files::open::Input;

/// The next action of a reader between two files.
pub(in crate::files) enum Next {
    /// Read this file, from the restored position if any.
    File(PathBuf, Option<FilePosition>),
    /// Emit pending records and retry after a pause.
    Wait(Duration),
    /// End the stream.
    End,
}

/// Supplies files to a reader and tracks which have been read.
pub(in crate::files) trait Supply: Send + 'static {
    /// Called by [`Processor::init`](ardea_core::Processor::init).
    fn init(&mut self, context: &InstanceContext);

    /// Returns the storage of the files.
    fn store(&self) -> FileStore {
        FileStore::Local
    }

    /// Determines the files to read on the first call.
    fn start(&mut self) -> Result<()>;

    fn next(&mut self) -> Result<Next>;

    /// Called when the file that was returned last is open. The argument is its identity, if it is
    /// a plain file.
    fn begun(&mut self, _: Option<FileIdentity>) {}

    /// Called when reading of the file returned last stops. `_is_whole` is false if it is damaged.
    fn stopped(&mut self, _: &mut Input, _is_whole: bool) {}

    /// Called when all records of the file returned last have been emitted.
    fn end(&mut self, file: &Path);

    /// Returns true if no file is left and no further file can appear.
    fn is_at_end(&self) -> bool;

    /// See [`Processor::unsaved_state`](ardea_core::Processor::unsaved_state).
    fn forgets(&self) -> Option<&'static str>;

    /// See [`Processor`](ardea_core::Processor), also for the methods below. `at_hand` is the
    /// current file and its position.
    fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        at_hand: Option<(&Path, &FilePosition)>,
    ) -> Result<()>;

    fn states(&self) -> Vec<StateShape>;

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress>;

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()>;

    fn on_restored(&mut self) -> Result<()>;

    fn commit(&mut self, epoch: Epoch);
}

/// The files listed when the job started.
pub(in crate::files) struct InitialListing {
    listing: Arc<Listing>,
    /// The listing, until the first call of `start` or a restore.
    listed: Option<Result<Vec<ToRead>>>,
    share: FileSplits,
}

impl InitialListing {
    pub fn new(listing: Arc<Listing>, listed: Result<Vec<ToRead>>) -> Self {
        InitialListing {
            listing,
            listed: Some(listed),
            share: FileSplits::new(ardea_core::Instance::ONLY),
        }
    }
}

impl Supply for InitialListing {
    fn init(&mut self, context: &InstanceContext) {
        self.share = FileSplits::new(context.instance);
    }

    fn store(&self) -> FileStore {
        self.listing.store().clone()
    }

    /// Takes the listing, unless the state was restored.
    fn start(&mut self) -> Result<()> {
        match self.listed.take() {
            None => {}
            Some(Ok(listed)) => self.share.set(listed),
            Some(Err(error)) => {
                // Later calls must fail as well.
                self.listed = Some(Err(error.clone()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Next> {
        Ok(match self.share.begin_next() {
            Some((path, reached)) => Next::File(path, reached),
            None => Next::End,
        })
    }

    fn end(&mut self, file: &Path) {
        self.share.end(file);
    }

    fn is_at_end(&self) -> bool {
        self.listed.is_none() && self.share.is_empty()
    }

    fn forgets(&self) -> Option<&'static str> {
        match self.listed.as_ref()?.as_ref().ok()?.as_slice() {
            // Directory listings contain plain files only.
            [(only, _)] if only.exists() && !only.is_file() => Some(
                "data read from a pipe or a device, which can't be read again (read a plain file instead)",
            ),
            _ => None,
        }
    }

    fn states(&self) -> Vec<StateShape> {
        FileSplits::states()
    }

    fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        at_hand: Option<(&Path, &FilePosition)>,
    ) -> Result<()> {
        self.share.take_snapshot(snapshot, at_hand)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.share.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.share.restore(state)
    }

    fn on_restored(&mut self) -> Result<()> {
        if self.share.resume(self.listing.block_bytes())? {
            self.share
                .left()
                .try_for_each(|file| self.listing.check(file))?;
            self.listed = None;
        }
        Ok(())
    }

    fn commit(&mut self, epoch: Epoch) {
        self.share.commit(epoch);
    }
}
