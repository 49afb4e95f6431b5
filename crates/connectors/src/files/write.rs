//! Sinks that write files.

mod local_output;
mod pending_files;
mod write_files;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Delivery, Instance, Isolation, Parallelism, Processor, Result, Sink};
use ardea_filesystem::Shown;

#[cfg(feature = "s3")]
use super::bucket::BucketOutput;
use super::claim::Claim;
use super::location::{FileStore, Location};
use super::part_file::Compression;
use super::plan::Plan;
use crate::format::{BatchEncode, Csv, Encode, JsonLines, Lines, LossyJsonLines, NonFinite};
use crate::record_input::{BatchWriter, InputForm};
use crate::record_writer::{RecordWriter, Writing, writing_options};
use local_output::LocalOutput;
use write_files::WriteFilesP;

/// Returns a sink that writes each record as a line, formatted with `Display`.
pub fn write_lines<T: Send + 'static>(path: impl AsRef<Path>) -> FileSink<T, Lines>
where
    Lines: Encode<T>,
{
    write(path, Lines)
}

/// Returns a sink that writes CSV with a header.
pub fn write_csv<T: Send + 'static>(path: impl AsRef<Path>) -> FileSink<T, Csv>
where
    Csv: Encode<T>,
{
    write(path, Csv::new())
}

/// Returns a sink that writes each record as a line of JSON.
pub fn write_json_lines<T: Send + 'static>(path: impl AsRef<Path>) -> FileSink<T, JsonLines>
where
    JsonLines: Encode<T>,
{
    write(path, JsonLines)
}

/// Returns a sink that writes records in any format.
pub fn write<T: Send + 'static, E: Encode<T>>(
    path: impl AsRef<Path>,
    encoder: E,
) -> FileSink<T, E> {
    FileSink::new(path.as_ref(), encoder)
}

/// Returns a sink that writes batches of records, such as columns, in any format.
pub fn write_batches<E: BatchEncode>(path: impl AsRef<Path>, encoder: E) -> FileSink<E::Batch, E> {
    FileSink::new(path.as_ref(), encoder)
}

/// A sink that writes files.
///
/// * A file is named `….part` until it is complete, and then renamed, replacing any older file. A
///   job that fails or is cancelled leaves its unfinished `.part` behind.
/// * One instance without rotation writes exactly the given path, even without any records. Several
///   instances write `out-0.csv`, `out-1.csv` …. With rotation the files are `out-000000.csv`,
///   `out-000001.csv` … (or `out-0-000000.csv` …). Numbers continue after the existing files: no
///   file is replaced, even if several processes write files of the same name.
/// * A path that ends in `.gz` or `.zst` is compressed accordingly. Missing directories are
///   created.
/// * A replacing file keeps the mode of the old one, and its owner and group if the process may set
///   them. New files follow the umask.
/// * A symbolic link stays a link; its target is written. A device or a named pipe is written
///   directly. A pipe without a reader is waited for; if the job drains or is cancelled meanwhile,
///   it fails. The job also fails if the reader closes the pipe before all records are written.
/// * A job is refused if its sink, or the sink's unfinished `.part`, would overwrite a file that
///   the job's sources read, even under another name.
///
/// * The address of an object in a bucket, such as `s3://bucket/out.csv`, takes the place of a path
///   (feature `s3`). Its parts are objects below `.ardea-staging/` until it exists. With rotation
///   the objects are `out-RUN-000000.csv` …, where RUN is a number that identifies the job's own
///   objects. The sink waits for a store that does not answer.
///
/// # In a job with state
///
/// Output becomes visible exactly once: a file gets its name when it is complete *and* an epoch
/// that covers all of it is committed. The content is durable before.
///
/// * An unsuitable file system is refused at the start of the job ([`StoreUnsuitable`]):
///   one without locks, `fsync` of files and folders, or atomic renames.
/// * Files may span epochs. After a failure the uncommitted bytes are truncated from the `….part`,
///   and their records are written again.
/// * One instance without rotation writes one file, which gets its name when the job has ended. To
///   see results while the job runs, rotate files, for example [with each
///   epoch](Self::rotate_with_epochs). Until then, numbered files are named `….RUN.part`, where RUN
///   is a number that identifies the job's own files.
/// * After a rescale, files in progress are completed as they are, and the new ones are named
///   `out-r1.csv` (or `out-0-r1.csv` …). A job restarted after it was drained does the same: it
///   neither replaces visible output nor appends to it.
/// * A device or a pipe may receive records again after a failure.
/// * An object exists when an epoch that covers all of it is committed. After a failure the next
///   attempt continues after the parts of its last snapshot, which contains the bytes after the
///   last part: at most 8 MiB per instance.
///
/// [`StoreUnsuitable`]: ardea_core::ErrorCode::StoreUnsuitable
#[derive(Debug)]
pub struct FileSink<T, E> {
    plan: Plan,
    /// The path as it was given.
    address: PathBuf,
    parallelism: Parallelism,
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T, E> FileSink<T, E> {
    fn new(path: &Path, encoder: E) -> Self {
        FileSink {
            plan: Plan::new(&Location::plain_path(path)),
            address: path.to_path_buf(),
            parallelism: Parallelism::ONE,
            writing: Writing::new(encoder),
            record: PhantomData,
        }
    }

    writing_options!();

    /// Starts a new file when the present one has `bytes` bytes before compression. The last record
    /// of a file may exceed the limit.
    pub fn rotate_bytes(mut self, bytes: u64) -> Self {
        self.plan.rotate_bytes = Some(bytes);
        self
    }

    /// Ends a file at the time `age` after its first record. The next record starts another file.
    pub fn rotate_after(mut self, age: Duration) -> Self {
        self.plan.rotate_after = Some(age);
        self
    }

    /// Ends a file with each epoch in a job with state, so that output becomes visible as soon as
    /// its epoch is committed. In a job without state, this setting only makes the files numbered.
    /// Epochs end several times a second; for fewer, larger files see
    /// [`rotate_min_age`](Self::rotate_min_age) and [`rotate_min_bytes`](Self::rotate_min_bytes).
    pub fn rotate_with_epochs(mut self) -> Self {
        self.plan.rotates_with_epochs = true;
        self
    }

    /// Sets the minimum size before compression of a file that ends with an epoch; a smaller file
    /// continues over the next epochs. Implies [`rotate_with_epochs`](Self::rotate_with_epochs).
    ///
    /// Together with [`rotate_min_age`](Self::rotate_min_age), a file ends when either minimum is
    /// reached. Without a minimum age, the last records of a slow stream stay invisible until
    /// enough records follow or the job ends.
    pub fn rotate_min_bytes(mut self, bytes: u64) -> Self {
        self.plan.rotates_with_epochs = true;
        self.plan.min_bytes = Some(bytes);
        self
    }

    /// Sets the minimum age of a file that ends with an epoch, counted from the file's first
    /// record. Implies [`rotate_with_epochs`](Self::rotate_with_epochs).
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_connectors::files;
    ///
    /// let sink = files::write_lines::<u64>("out.txt")
    ///     .rotate_min_age(Duration::from_secs(60))
    ///     .rotate_min_bytes(64 << 20);
    /// ```
    pub fn rotate_min_age(mut self, age: Duration) -> Self {
        self.plan.rotates_with_epochs = true;
        self.plan.min_age = Some(age);
        self
    }

    /// Sets the compression. Appends `.gz` or `.zst` to the path if missing.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.plan.compression = compression;
        self
    }

    /// Sets whether output is flushed to disk (fsync) at the end of each file and epoch. Off by
    /// default.
    pub fn sync(mut self, sync: bool) -> Self {
        self.plan.sync = sync;
        self
    }

    /// Returns the compression of the files.
    pub fn output_compression(&self) -> Compression {
        self.plan.compression
    }

    /// Returns the name of the sink's step.
    pub fn name(&self) -> String {
        format!("write {}", self.plan.path.shown())
    }

    /// Replaces the format.
    ///
    /// # Errors
    /// Those of `replace`.
    pub fn with_encoder<F>(self, replace: impl FnOnce(E) -> Result<F>) -> Result<FileSink<T, F>> {
        Ok(FileSink {
            plan: self.plan,
            address: self.address,
            parallelism: self.parallelism,
            writing: Writing {
                encoder: replace(self.writing.encoder)?,
                on_error: self.writing.on_error,
            },
            record: PhantomData,
        })
    }

    /// Sets the number of instances; each writes its own files.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    fn build_as<F: InputForm<Encoder = E>, R>(self) -> Sink<R>
    where
        E: Send + Sync + 'static,
    {
        let name = self.name();
        let FileSink {
            plan,
            address,
            writing,
            parallelism,
            ..
        } = self;
        let files = plan.clone();
        let location = Location::of(&address);
        let delivery = match plan.is_special(Instance::ONLY) {
            true => Delivery::AtLeastOnce,
            false => Delivery::ExactlyOnce,
        };
        // Files of a bucket and special files are not undone by instance.
        let is_local =
            matches!(&location, Ok(location) if matches!(location.store, FileStore::Local));
        let is_repeatable = is_local && delivery == Delivery::ExactlyOnce;
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            let claim = Claim::take(&plan.names(instance))?;
            Ok(match location.clone()?.store {
                FileStore::Local => {
                    let output = LocalOutput::new(plan.clone(), instance, Some(claim));
                    Box::new(WriteFilesP::<F, _>::new(plan.clone(), output, &writing))
                }
                #[cfg(feature = "s3")]
                FileStore::Bucket(bucket) => {
                    let output = BucketOutput::new(bucket, plan.clone(), instance, claim);
                    Box::new(WriteFilesP::<F, _>::new(plan.clone(), output, &writing))
                }
            })
        };
        let sink = Sink::new(name, Arc::new(supply))
            .with_delivery(delivery)
            .using_files(move |instances| files.replaced(instances))
            .parallelism(parallelism)
            .isolation(Isolation::Thread);
        match is_repeatable {
            true => sink.repeatable(),
            false => sink,
        }
    }
}

impl<T: Send + 'static, E: Encode<T>> FileSink<T, E> {
    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T> {
        self.build_as::<RecordWriter<T, E>, T>()
    }
}

impl<E: BatchEncode> FileSink<E::Batch, E> {
    /// Builds a sink of batches. `R` is the type of a record in the pipeline.
    pub fn build_batches<R>(self) -> Sink<R> {
        self.build_as::<BatchWriter<E>, R>()
    }
}

impl<T: Send + 'static> FileSink<T, JsonLines> {
    /// Sets the replacement for NaN and infinite floats, which JSON cannot represent. By default a
    /// record with such a float is rejected.
    pub fn non_finite(self, choice: NonFinite) -> FileSink<T, LossyJsonLines> {
        FileSink {
            plan: self.plan,
            address: self.address,
            parallelism: self.parallelism,
            writing: self.writing.map(|format| format.non_finite(choice)),
            record: PhantomData,
        }
    }
}

impl<T: Send + 'static, E: Encode<T>> From<FileSink<T, E>> for Sink<T> {
    fn from(sink: FileSink<T, E>) -> Self {
        sink.build()
    }
}

#[cfg(test)]
mod survival_tests;
#[cfg(test)]
mod tests;
