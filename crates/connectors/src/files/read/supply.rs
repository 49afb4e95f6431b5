//! The files that a reader reads one after the other, and the state about them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Cut, CutWriter, Epoch, InstanceContext, Progress, RestoredState, Result, StateShape,
};

use super::share::{Reached, Share};
use crate::files::fingerprint::Mark;
use crate::files::list::Listing;
use crate::files::open::Input;

/// The next thing to do for a reader between two files.
pub(in crate::files) enum Next {
    /// To read this file, from where an earlier life came to in it.
    File(PathBuf, Option<Reached>),
    /// To ask again after a pause, once the records so far are out.
    Wait(Duration),
    /// To end.
    End,
}

/// Gives files to a reader, and remembers which have been read.
pub(in crate::files) trait Supply: Send + 'static {
    /// As [`Processor::init`](ardea_core::Processor::init).
    fn init(&mut self, context: &InstanceContext);

    /// Finds out which files there are, the first time.
    fn start(&mut self) -> Result<()>;

    fn next(&mut self) -> Result<Next>;

    /// The file that was given last has been opened.
    fn begun(&mut self, _: Option<Mark>) {}

    /// No more is read of the file that was given last: all if it `is_whole`, or it is damaged.
    fn stopped(&mut self, _: &mut Input, _is_whole: bool) {}

    /// The records of the file that was given last are out.
    fn end(&mut self, file: &Path);

    /// Returns true if no file is left, for good.
    fn is_at_end(&self) -> bool;

    /// As [`Processor::forgets`](ardea_core::Processor::forgets).
    fn forgets(&self) -> Option<&'static str>;

    /// As those of [`Processor`](ardea_core::Processor), `at_hand` being the file that is being read.
    fn take_cut(&mut self, cut: Cut, at_hand: Option<(&Path, &Reached)>) -> Result<()>;

    fn states(&self) -> Vec<StateShape>;

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress>;

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()>;

    fn on_restored(&mut self) -> Result<()>;

    fn commit(&mut self, epoch: Epoch);
}

/// The files that were listed when the job began.
pub(in crate::files) struct Listed {
    listing: Arc<Listing>,
    /// The files that were listed, until it begins.
    listed: Option<Result<Vec<PathBuf>>>,
    share: Share,
}

impl Listed {
    pub fn new(listing: Arc<Listing>, listed: Result<Vec<PathBuf>>) -> Self {
        Listed {
            listing,
            listed: Some(listed),
            share: Share::new(ardea_core::Instance::ONLY),
        }
    }
}

impl Supply for Listed {
    fn init(&mut self, context: &InstanceContext) {
        self.share = Share::new(context.instance);
    }

    /// Takes the files that were listed, if nothing was remembered.
    fn start(&mut self) -> Result<()> {
        match self.listed.take() {
            None => {}
            Some(Ok(listed)) => self.share.set(listed),
            Some(Err(error)) => {
                // Later callers have to know as well.
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
            // A directory's are plain files.
            [only] if only.exists() && !only.is_file() => Some(
                "what it has read of a pipe or a device, which can't be read again (have it read a plain file)",
            ),
            _ => None,
        }
    }

    fn states(&self) -> Vec<StateShape> {
        Share::states()
    }

    fn take_cut(&mut self, cut: Cut, at_hand: Option<(&Path, &Reached)>) -> Result<()> {
        self.share.take_cut(cut, at_hand)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.share.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.share.restore(state)
    }

    fn on_restored(&mut self) -> Result<()> {
        if self.share.resume()? {
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
