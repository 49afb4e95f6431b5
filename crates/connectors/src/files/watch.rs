//! Watches a directory, and reads files that appear in it.

mod memory;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{FileUse, Instance, Isolation, Processor, Result, Source, Unbounded};

use super::list::Listing;
use super::read::{FileSource, ReadP};
use crate::format::Decode;
use watched::{Watched, Watching};

/// The poll interval unless the source says otherwise.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// A source that reads the files of a directory, and then those that appear in it later.
///
/// * A file counts as complete when it has its name: write it under another one, or in another directory, and rename it.
///   Names that begin with a dot or end in `.part` or `.tmp` are left out, and so are subdirectories.
/// * Each file is read once, to the end that it has when it is read. Those that are found together come in the order of
///   their names. A file that is changed after it had been read was not complete: the change is not read, but is a dead letter,
///   which standard error tells as well.
/// * A file that replaces another one of its name is another file, and is read.
/// * A file that is renamed within the directory, or gets a second name by a hard link, is not read
///   again. It is if the file system does not tell when a file was made, or if the new name belongs
///   to another instance.
/// * Files that are read may be moved away or deleted. The source remembers those that are still there.
/// * Several instances share the files by the hashes of their names.
/// * A job that drains stops in the middle of a file, behind a record. A job that keeps its state goes on there. If that
///   file is gone by then, or another one has its name, the job fails.
/// * A sink of the same job must not write into the directory: it would be read.
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

    /// Sets how often the directory is looked at; every second unless set. A directory that has not
    /// changed is listed less often, so that this takes a twentieth of the time at most.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Leaves out the files that are there when the job first starts.
    pub fn only_new(mut self) -> Self {
        self.only_new = true;
        self
    }

    /// The source, for a pipeline.
    pub fn build(self) -> Source<T, Unbounded> {
        let FileSource {
            path,
            suffix,
            parallelism,
            reading,
            ..
        } = self.source;
        let name = format!("watch {}", path.display());
        let listing = Listing::new(path.clone(), suffix.clone());
        let files = move |_: u32| listing.now().into_iter().map(FileUse::Reads).collect();
        let watching = Watching {
            path,
            suffix,
            interval: self.interval,
            only_new: self.only_new,
        };
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            let watched = Watched::new(watching.clone());
            Ok(Box::new(ReadP::<T, D, _>::new(watched, &reading)))
        };
        Source::new(name, Arc::new(supply))
            .using_files(files)
            .parallelism(parallelism)
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
