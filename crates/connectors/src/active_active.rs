//! A file sink shared by the active-active replicas of a job. Each result is written once, by the
//! first replica that has computed it. If a replica fails, the others continue without a pause, and
//! no result is lost or written twice.
//!
//! Run the same program twice with one file that both can access: on one machine, on one cluster
//! under two names, or on two clusters:
//!
//! ```no_run
//! use std::time::Duration;
//! use ardea_connectors::active_active;
//! use ardea_core::Sink;
//!
//! let results: Sink<String> = active_active::write_lines("/mnt/out/results.txt").slice(Duration::from_millis(10)).build();
//! ```
//!
//! # Algorithm
//!
//! Results are divided by **event time** into slices: time intervals of equal width, the same in
//! every replica. A slice is complete when the watermark reaches its end. Its records are then
//! sorted, so that the bytes are equal in every replica, for any order of arrival. A replica
//! *offers* each complete slice: under the lock of the index file beside the output, the slice is
//! appended if it is missing and compared if it is present. A replica with different results fails
//! (`InvalidJob`, with the slice and the reason), and the others continue.
//!
//! # Suitable jobs
//!
//! Results must be determined by the records and their event times: stateless steps, keyed windows,
//! and state by event time, over inputs that can be replayed from the same beginning. Results that
//! depend on the clock, on random numbers, or on the order of several inputs differ sooner or
//! later, and the replica then fails. Records that are late at their source differ too: the
//! configured lag must cover the disorder.
//!
//! * The job must guarantee **exactly-once**, since otherwise it could lose state in a failure and
//!   write wrong results. Results do not wait for commits: output repeated after a failure is only
//!   compared with the file.
//! * A record without event time is refused. A late record is handled by
//!   [`on_error`](ActiveActiveFileSink::on_error).
//! * The sink has one instance. The parallelism of other steps may differ between replicas.
//! * A replica may be added or restarted later; it first verifies all existing slices. Its sources
//!   must begin at the same positions as in the other replicas.
//! * A **draining** job does not write its last, incomplete slices, since the other replicas will
//!   write them. A job restarted afterwards is no longer a replica.
//!
//! # Limits
//!
//! The directory of the file must support locks between all writers (a local disk, or NFS 4). The
//! folder `….replicas` beside the file takes 40 bytes for each slice with records. The file is
//! neither rotated nor compressed, and its format has no header. A replica that is *suspended*
//! (SIGSTOP) while it writes a slice, rather than killed, blocks the others until it continues.

mod arbiter;
mod fsync;
mod replica_registry;
mod slice_index;
mod slices;
mod write;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{Delivery, FileUse, Isolation, Sink};
use ardea_filesystem::Shown;

use crate::format::{Encode, JsonLines, Lines};
use crate::record_writer::{Writing, writing_options};

pub use replica_registry::{ReplicaInfo, replicas};

/// The default width of slices.
const SLICE: Duration = Duration::from_millis(10);
/// The default limit of buffered bytes of a replica.
const HELD: usize = 256 << 20;

/// Returns a sink that writes each record as a line, formatted with `Display`.
pub fn write_lines<T: Send + 'static>(path: impl AsRef<Path>) -> ActiveActiveFileSink<T, Lines>
where
    Lines: Encode<T>,
{
    write(path, Lines)
}

/// Returns a sink that writes each record as a line of JSON.
pub fn write_json_lines<T: Send + 'static>(
    path: impl AsRef<Path>,
) -> ActiveActiveFileSink<T, JsonLines>
where
    JsonLines: Encode<T>,
{
    write(path, JsonLines)
}

/// Returns a sink that writes records in any format without a header.
pub fn write<T: Send + 'static, E: Encode<T>>(
    path: impl AsRef<Path>,
    encoder: E,
) -> ActiveActiveFileSink<T, E> {
    ActiveActiveFileSink {
        plan: Plan {
            path: path.as_ref().to_path_buf(),
            slice: SLICE,
            held: HELD,
        },
        writing: Writing::new(encoder),
        record: PhantomData,
    }
}

/// The settings of the sink.
#[derive(Clone, Debug)]
struct Plan {
    path: PathBuf,
    slice: Duration,
    /// The maximum number of buffered bytes of incomplete slices in a replica.
    held: usize,
}

/// A sink that writes one file together with the other replicas of the job; see the [module](self).
#[derive(Debug)]
pub struct ActiveActiveFileSink<T, E> {
    plan: Plan,
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Encode<T>> ActiveActiveFileSink<T, E> {
    writing_options!();

    /// Sets the width of slices in event time; 10 ms by default. For window results use the slide
    /// or a fraction of it, so that they do not wait. Wider slices cost less, but a record waits
    /// until its slice is complete.
    pub fn slice(mut self, width: Duration) -> Self {
        self.plan.slice = width;
        self
    }

    /// Sets the maximum number of bytes buffered for incomplete slices; 256 MiB by default. If it
    /// is exceeded, because the watermark stalls or lags far behind, the job fails instead of
    /// exhausting the memory.
    pub fn hold_at_most(mut self, bytes: usize) -> Self {
        self.plan.held = bytes;
        self
    }

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T> {
        let path = self.plan.path.clone();
        let name = format!("active-active {}", path.shown());
        Sink::new(name, write::supply::<T, E>(self.plan, self.writing))
            .with_delivery(Delivery::ExactlyOnce)
            .using_files(move |_| vec![FileUse::Writes(path.clone())])
            .isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static, E: Encode<T>> From<ActiveActiveFileSink<T, E>> for Sink<T> {
    fn from(sink: ActiveActiveFileSink<T, E>) -> Self {
        sink.build()
    }
}

#[cfg(test)]
mod tests;
