//! An unbounded source of the files that appear in a directory.

mod directory_watcher;
mod read_files;

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{FileUse, Instance, Isolation, Parallelism, Processor, Result, Source, Unbounded};

use super::list::Listing;
use super::location::{FileStore, Location};
use super::read::{FileSource, ReadP};
use crate::format::Decode;
use crate::record_output::AsRows;
use directory_watcher::{DirectoryWatcher, WatchSettings};

/// The default poll interval.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// A source that reads the files of a directory, and then the files that appear in the directory
/// later.
///
/// * A file must be complete when it gets its name: write it under another name or in another
///   directory, then rename it. Subdirectories and names that begin with a dot or end in `.part` or
///   `.tmp` are ignored.
/// * Each file is read once, to its end at that time. Files found together are read in the order of
///   their names. A later change to a file is not read; it is reported as a dead letter and on
///   standard error.
/// * A file that replaces another one of the same name is a new file and is read.
/// * A file that is renamed within the directory, or gets a hard link there, is not read again.
///   This requires a file system that reports creation times. The new name must belong to the same
///   instance.
/// * Files already read may be moved away or deleted. The state contains only files that still
///   exist.
/// * The instances share the files by the hashes of their names.
/// * A draining job stops in the middle of a file, after a record. A restored job continues there;
///   it fails if that file was removed or replaced.
/// * A sink of the same job must not write into the directory, since the source would read the
///   sink's files.
///
/// ```
/// use std::time::Duration;
/// use ardea_connectors::files;
/// use ardea_core::{Source, Unbounded};
///
/// let orders: Source<String, Unbounded> =
///     files::lines("inbox/").suffix(".log").watch().poll_interval(Duration::from_secs(5)).build();
/// ```
#[derive(Debug)]
pub struct WatchSource<T, D> {
    source: FileSource<T, D>,
    interval: Duration,
    only_new: bool,
}

impl<T: Send + 'static, D: Decode<T>> WatchSource<T, D> {
    pub(super) fn new(source: FileSource<T, D>) -> Self {
        WatchSource {
            source,
            interval: DEFAULT_INTERVAL,
            only_new: false,
        }
    }

    /// Sets the poll interval; one second by default. An unchanged directory is listed less often,
    /// so that listing takes at most 5 % of the time.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Skips the files that exist when the job first starts.
    pub fn only_new(mut self) -> Self {
        self.only_new = true;
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let FileSource {
            path,
            suffix,
            parallelism,
            reading,
            ..
        } = self.source;
        let name = format!("watch {}", path.display());
        let location = Location {
            store: FileStore::Local,
            path: path.clone(),
        };
        let listing = Listing::new(location, suffix.clone());
        let files = move |_: u32| listing.now().into_iter().map(FileUse::Reads).collect();
        let watching = WatchSettings {
            path,
            suffix,
            interval: self.interval,
            only_new: self.only_new,
        };
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Location::require_local(&watching.path, "a watched directory")?;
            let watched = DirectoryWatcher::new(watching.clone());
            Ok(Box::new(ReadP::<AsRows<T, D>, _>::new(watched, &reading)))
        };
        Source::new(name, Arc::new(supply))
            .using_files(files)
            .parallelism(parallelism.unwrap_or(Parallelism::ONE))
            .isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, D: Decode<T>> From<WatchSource<T, D>> for Source<T, Unbounded> {
    fn from(source: WatchSource<T, D>) -> Self {
        source.build()
    }
}

#[cfg(test)]
mod tests;
