//! One file that several copies of a job write together: each result is in it once, from whichever copy has it first. When a copy dies the
//! others go on, and nothing is seen of it: no pause, nothing lost, nothing twice.
//!
//! Run the same program twice, on one machine, on one cluster under two names, or on two clusters, with one file that all see:
//!
//! ```no_run
//! use std::time::Duration;
//! use ardea_connectors::twins;
//! use ardea_core::Sink;
//!
//! let results: Sink<String> = twins::write_lines("/mnt/out/results.txt").slice(Duration::from_millis(10)).build();
//! ```
//!
//! # How it is decided
//!
//! Results are cut by **event time** into slices, which mean the same in every copy. A slice is over when the watermark has come to its end; its records,
//! sorted, are then the same bytes in every copy, whatever the order in which they came. A copy whose slice is over *offers* it: under the
//! lock of the ledger beside the file it is appended if it isn't there, and compared with what is there if it is. So it is noticed, and not
//! just hoped for, that copies are alike: one that has other results than are in the file ends with the slice and the reason
//! (`InvalidJob`), and the others go on.
//!
//! # What can be such a job
//!
//! One whose results follow from its records and their event times: stateless steps, keyed windows and state by event time over inputs that can be read again
//! from the same beginning. What depends on the clock, on chance, or on the order in which several inputs were read differs sooner or later,
//! and is refused when it does. So does what is late at its own source: let the lag cover the disorder.
//!
//! * It promises **exactly-once**: a job that goes on after a failure without it could have lost a part of itself, and write what is not so.
//!   Results don't wait for commits all the same: what is written again after a failure is only compared.
//! * A record without event time is refused, and a late one is dealt with [as the sink says](TwinSink::on_error).
//! * There is one instance of the sink. Copies may be of different parallelism otherwise.
//! * A copy may come later, or begin anew: it first meets all that is there. Its sources have to begin where those of the others did.
//! * A job that **drains** keeps its last, unfinished slices to itself: the others know what comes. Its run is over, so a job that goes on after that
//!   is no copy any more.
//!
//! # Limits
//!
//! The file's folder has to be one in which locks are kept between all that write it (a local disk, or NFS 4), and there the folder `….twins` lies beside
//! the file: 40 bytes for each slice with records. The file is neither rotated nor compressed, and its format has no header. A copy that is
//! *stopped* in the middle of writing a slice, rather than killed, holds the others until it goes on.

mod arbiter;
mod disk;
mod ledger;
mod roll;
mod slices;
mod write;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{Delivery, FileUse, Isolation, Sink};
use ardea_filesystem::Shown;

use crate::format::{Encode, JsonLines, Lines};
use crate::outgo::{Writing, writing_options};

pub use roll::{Twin, copies};

/// How wide slices are unless told.
const SLICE: Duration = Duration::from_millis(10);
/// How many bytes a copy may hold unless told.
const HELD: usize = 256 << 20;

/// Writes each record as a line, as it displays.
pub fn write_lines<T: Send + 'static>(path: impl AsRef<Path>) -> TwinSink<T, Lines>
where
    Lines: Encode<T>,
{
    write(path, Lines)
}

/// Writes each record as a line of JSON.
pub fn write_json_lines<T: Send + 'static>(path: impl AsRef<Path>) -> TwinSink<T, JsonLines>
where
    JsonLines: Encode<T>,
{
    write(path, JsonLines)
}

/// Writes records in any format that has no header.
pub fn write<T: Send + 'static, E: Encode<T>>(
    path: impl AsRef<Path>,
    encoder: E,
) -> TwinSink<T, E> {
    TwinSink {
        plan: Plan {
            path: path.as_ref().to_path_buf(),
            slice: SLICE,
            held: HELD,
        },
        writing: Writing::new(encoder),
        record: PhantomData,
    }
}

/// Where is written, and what at a time.
#[derive(Clone, Debug)]
struct Plan {
    path: PathBuf,
    slice: Duration,
    /// How many bytes of slices that are not over a copy may hold.
    held: usize,
}

/// A sink that writes a file together with its twins in other copies of the job; see the [module](self).
#[derive(Debug)]
pub struct TwinSink<T, E> {
    plan: Plan,
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Encode<T>> TwinSink<T, E> {
    writing_options!();

    /// Sets how wide slices are, in event time: 10 ms unless told. Results of windows want their slide, or a part of it, so that they wait for nothing. Wider
    /// slices cost less; a record waits until its slice is over.
    pub fn slice(mut self, width: Duration) -> Self {
        self.plan.slice = width;
        self
    }

    /// Sets how many bytes of records a copy may hold until their slices are over: 256 MiB by default. If they are more the job fails, and says so, rather than take
    /// all memory: time stands still, or is far behind its records.
    pub fn hold_at_most(mut self, bytes: usize) -> Self {
        self.plan.held = bytes;
        self
    }

    /// The sink, for a pipeline.
    pub fn build(self) -> Sink<T> {
        let path = self.plan.path.clone();
        let name = format!("twins {}", path.shown());
        Sink::new(name, write::supply::<T, E>(self.plan, self.writing))
            .delivering(Delivery::ExactlyOnce)
            .using_files(move |_| vec![FileUse::Writes(path.clone())])
            .isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, E: Encode<T>> From<TwinSink<T, E>> for Sink<T> {
    fn from(sink: TwinSink<T, E>) -> Self {
        sink.build()
    }
}

#[cfg(test)]
mod tests;
