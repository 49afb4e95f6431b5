//! Writes files.

mod ledger;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Delivery, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext,
    Isolation, JobSignals, Ordinal, Outbox, Parallelism, Processor, Progress, RecordGuard,
    RestoredState, Result, Sink, StateShape, Timestamp,
};
use ardea_filesystem::Shown;

use super::claim::Claim;
use super::list::cannot_read;
use super::part_file::{Compression, PART_SUFFIX, PartFile, cannot_write, with_suffix};
use super::plan::Plan;
use super::special_file::Awaited;
use crate::format::{Csv, Encode, JsonLines, Lines, LossyJsonLines, NonFinite};
use crate::outgo::{Outgo, Writing, writing_options};
use ledger::Ledger;

/// Writes each record as a line, as it displays.
pub fn write_lines<T: Send + 'static>(path: impl AsRef<Path>) -> FileSink<T, Lines>
where
    Lines: Encode<T>,
{
    write(path, Lines)
}

/// Writes CSV with a header.
pub fn write_csv<T: Send + 'static>(path: impl AsRef<Path>) -> FileSink<T, Csv>
where
    Csv: Encode<T>,
{
    write(path, Csv::new())
}

/// Writes each record as a line of JSON.
pub fn write_json_lines<T: Send + 'static>(path: impl AsRef<Path>) -> FileSink<T, JsonLines>
where
    JsonLines: Encode<T>,
{
    write(path, JsonLines)
}

/// Writes records in any format.
pub fn write<T: Send + 'static, E: Encode<T>>(
    path: impl AsRef<Path>,
    encoder: E,
) -> FileSink<T, E> {
    FileSink {
        plan: Plan::new(path.as_ref()),
        parallelism: Parallelism::ONE,
        writing: Writing::new(encoder),
        record: PhantomData,
    }
}

/// A sink that writes files.
///
/// * A file is named `….part` until it is whole, and only then gets its name, in place of any older one. A job that
///   fails or is cancelled leaves its unfinished `.part` behind.
/// * One instance without rotation writes exactly the path given, and does so even if there are no records. Several
///   instances write `out-0.csv`, `out-1.csv` …; with rotation the files are `out-000000.csv`, `out-000001.csv` … (or
///   `out-0-000000.csv` …), counted on from what is there already: they replace none, also if several processes write files of
///   the same name.
/// * A path that ends in `.gz` or `.zst` is compressed accordingly. Missing directories are made.
/// * A file that is written anew keeps the mode of the one that it replaces, and owner and group where the process may set them; new
///   files follow the umask.
/// * A link stays a link: what it leads to is written. A device or a named pipe is written as it is; a pipe is waited for
///   until it has a reader. A job that drains or is cancelled meanwhile fails, since there is nobody to deliver to. If the reader
///   goes away before all is written, the job fails.
/// * A job whose sink would overwrite a file that its sources read, by whatever name, is refused; so is one whose unfinished
///   `.part` would.
///
/// # In a job that keeps its state
///
/// What is written is seen exactly once: a file gets its name when it is whole *and* an epoch is committed to which all of it belongs. It is on
/// the disk by then.
///
/// * A file system that can't give this is refused with the reason when the job starts, before anything is written
///   ([`ErrorCode::StoreUnsuitable`]): one without locks, `fsync` of files and folders, or renames that keep the file.
/// * A file is written over the ends of epochs. When the job goes on after a failure, what belonged to no committed epoch is cut off the
///   `….part`, and comes again.
/// * One instance without rotation writes one file, which gets its name when the job has ended. For results that are seen while the job runs
///   let files rotate, [with each epoch](Self::rotate_with_epochs) for example. Numbered files are called `….RUN.part` before, RUN being a
///   number of the job's own, by which it knows its files.
/// * Where another number of instances goes on, files that were being written are whole as they are, and the new ones are called
///   `out-r1.csv` (or `out-0-r1.csv` …). So is what a job writes that goes on behind its end, because it was drained: nothing that has been
///   seen is replaced or added to.
/// * A device or a pipe gets what it gets: records come again there after a failure.
#[derive(Debug)]
pub struct FileSink<T, E> {
    plan: Plan,
    parallelism: Parallelism,
    writing: Writing<E>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, E: Encode<T>> FileSink<T, E> {
    writing_options!();

    /// Begins another file when the present one has this many bytes (before compression). A file holds at least one
    /// record, so it may be longer by one record.
    pub fn rotate_bytes(mut self, bytes: u64) -> Self {
        self.plan.rotate_bytes = Some(bytes);
        self
    }

    /// Ends a file this long after its first record; the next record begins another.
    pub fn rotate_after(mut self, age: Duration) -> Self {
        self.plan.rotate_after = Some(age);
        self
    }

    /// Ends a file with each epoch, in a job that keeps its state: what belongs to an epoch is seen as soon as that is committed. In
    /// other jobs this makes the files numbered, and has no other effect. Epochs end several times a second: see
    /// [`rotate_min_age`](Self::rotate_min_age) and [`rotate_min_bytes`](Self::rotate_min_bytes) for fewer, larger files.
    pub fn rotate_with_epochs(mut self) -> Self {
        self.plan.rotates_with_epochs = true;
        self
    }

    /// Sets the size from which on a file ends with an epoch, before compression; a smaller one goes on over the next epochs.
    /// Implies [`rotate_with_epochs`](Self::rotate_with_epochs), whose files are as many as there are epochs without a minimum.
    ///
    /// With [`rotate_min_age`](Self::rotate_min_age) as well, a file ends as soon as either minimum is reached. With the size
    /// alone, the last records of a slow stream are seen when enough others have come, or the job has ended.
    pub fn rotate_min_bytes(mut self, bytes: u64) -> Self {
        self.plan.rotates_with_epochs = true;
        self.plan.min_bytes = Some(bytes);
        self
    }

    /// Sets the age, counted from a file's first record, from which on it ends with an epoch: no instance ends files more often than
    /// that. Implies [`rotate_with_epochs`](Self::rotate_with_epochs).
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

    /// Sets the compression; the suffix is added to the path unless it has it.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.plan.compression = compression;
        self
    }

    /// Whether each file, and each epoch, is on the disk (fsync) before it counts as written. Off by default.
    pub fn sync(mut self, sync: bool) -> Self {
        self.plan.sync = sync;
        self
    }

    /// Sets how many instances write, each its own files.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// The sink, for a pipeline.
    pub fn build(self) -> Sink<T> {
        let FileSink {
            plan,
            writing,
            parallelism,
            ..
        } = self;
        let name = format!("write {}", plan.path.shown());
        let files = plan.clone();
        let delivery = match plan.is_special(Instance::ONLY) {
            true => Delivery::AtLeastOnce,
            false => Delivery::ExactlyOnce,
        };
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            let claim = Claim::take(&plan.names(instance))?;
            let mut processor = WriteFilesP::<T, E>::new(plan.clone(), instance, &writing);
            processor.claim = Some(claim);
            Ok(Box::new(processor))
        };
        Sink::new(name, Arc::new(supply))
            .delivering(delivery)
            .using_files(move |instances| files.replaced(instances))
            .parallelism(parallelism)
            .isolation(Isolation::Thread)
    }
}

impl<T: Send + 'static> FileSink<T, JsonLines> {
    /// Sets what is written for a float that is NaN or infinite, of which JSON has none. By default the record is set aside.
    pub fn non_finite(self, choice: NonFinite) -> FileSink<T, LossyJsonLines> {
        FileSink {
            plan: self.plan,
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

/// Writes one file after the other.
struct WriteFilesP<T, E> {
    plan: Plan,
    /// Held, not read: as long as it lives no other sink gets the output.
    claim: Option<Claim>,
    instance: Instance,
    outgo: Outgo<T, E>,
    file: Option<PartFile>,
    /// The time of day when the present file was begun.
    begun: Timestamp,
    /// When the present file is too old, on the instance's clock.
    ends_at: Option<Duration>,
    number: u64,
    buffer: Vec<u8>,
    clock: Clock,
    signals: Arc<JobSignals>,
    /// In a job that keeps its state: what is not to be seen yet.
    ledger: Option<Ledger>,
}

impl<T: Send + 'static, E: Encode<T>> WriteFilesP<T, E> {
    fn new(plan: Plan, instance: Instance, writing: &Writing<E>) -> Self {
        WriteFilesP {
            plan,
            claim: None,
            instance,
            outgo: Outgo::new(writing),
            file: None,
            begun: Timestamp::MIN,
            ends_at: None,
            number: 0,
            buffer: Vec::new(),
            clock: Clock::system(),
            signals: Arc::default(),
            ledger: None,
        }
    }

    fn begin_file(&mut self) -> Result<()> {
        self.count_age_from(self.clock.wall());
        if let Some(ledger) = &mut self.ledger {
            ledger.begin();
        }
        self.file = Some(if self.plan.rotates() {
            self.begin_numbered()?
        } else {
            self.begin_only()?
        });
        Ok(())
    }

    /// The age of the file at hand counts from this time of day on.
    fn count_age_from(&mut self, begun: Timestamp) {
        self.begun = begun;
        let (now, has) = (self.clock.now(), self.clock.wall().since(begun));
        let ends_at = |age: Duration| now.saturating_add(age.saturating_sub(has));
        self.ends_at = self.plan.rotate_after.map(ends_at);
    }

    /// The file with the next number that nobody has, in this process or another.
    fn begin_numbered(&mut self) -> Result<PartFile> {
        loop {
            let path = self.next_path()?;
            let part = match &self.ledger {
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

    /// The one file of an instance that does not rotate.
    fn begin_only(&mut self) -> Result<PartFile> {
        let generation = self.ledger.as_ref().map_or(0, |ledger| ledger.generation);
        let path = self.plan.file_of_generation(self.instance, generation);
        let signals = Arc::clone(&self.signals);
        let go_on = move |awaited| match awaited {
            // Who has no reader yet can't deliver what the job has read; a slow one is given all of it.
            Awaited::Reader => !signals.is_draining(),
            Awaited::Room => !signals.is_cancelled(),
        };
        let created = PartFile::create(path, self.plan.compression, go_on);
        created.map_err(|error| match error.code() {
            ErrorCode::Cancelled if !self.signals.is_cancelled() => {
                let path = self.plan.path.shown();
                let what = format!(
                    "the job was to end, and nothing can be delivered: {path} has no reader"
                );
                Error::new(ErrorCode::WriteFailed, what)
                    .hint("have a program read it while the job runs, or write to a plain file")
            }
            _ => error,
        })
    }

    /// Hands the buffer to the file at hand, begun now if there is none.
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
        self.outgo.begin();
        let file = self.file.take();
        if let Some(ledger) = &mut self.ledger {
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

    fn finish_if_old(&mut self) -> Result<()> {
        match self.ends_at {
            Some(deadline) if self.clock.now() >= deadline => self.finish_file(),
            _ => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        let written = self.file.as_ref().map_or(0, |file| file.written) + self.buffer.len() as u64;
        self.plan
            .rotate_bytes
            .is_some_and(|most| written > 0 && written >= most)
    }

    /// What belongs to committed epochs is seen from now on.
    fn publish(&mut self, epoch: Epoch) -> Result<()> {
        let (plan, instance, number) = (&self.plan, self.instance, &mut self.number);
        match &mut self.ledger {
            Some(ledger) => {
                ledger.publish(epoch, !plan.rotates(), || next_path(plan, instance, number))
            }
            None => Ok(()),
        }
    }

    /// An epoch has ended: what was written can be read by itself, and cut off behind that.
    fn seal(&mut self) -> Result<()> {
        let age = self.clock.wall().since(self.begun);
        match &mut self.file {
            Some(file) if self.plan.ends_with_epoch(file.written, age) => self.finish_file(),
            Some(file) => file.seal(),
            None => Ok(()),
        }
    }
}

/// The path of the file with the next number.
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

impl<T: Send + 'static, E: Encode<T>> Processor for WriteFilesP<T, E> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.outgo.attach(context);
        self.clock = context.clock.clone();
        self.signals = Arc::clone(&context.signals);
        if context.guarantee.keeps_state() && !self.plan.is_special(self.instance) {
            self.plan.probe(self.instance)?;
            self.ledger = Some(Ledger::new(self.instance));
        }
        if self.plan.rotates() {
            let number = self.plan.first_free_number(self.instance);
            self.number = number.map_err(|error| cannot_write(&self.plan.path, error))?;
        } else if self.ledger.is_none() {
            // At once, so that a path that can't be written fails the job at its start. What may go on with a file waits for that.
            self.begin_file()?;
        }
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if let Some(ledger) = &self.ledger {
            ledger.check()?;
        }
        self.finish_if_old()?;
        let first = inbox.position();
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        for (position, record) in (first..).zip(rows.values()) {
            self.outgo.encode(record, position, &mut self.buffer)?;
            guard.advance();
            if self.is_full() {
                self.write_buffer()?;
                self.finish_file()?;
            }
        }
        rows.clear();
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
        if let Some(ledger) = &self.ledger {
            ledger.check()?;
            self.seal()?;
            if let Some(deadline) = self.ends_at {
                outbox.wake_at(deadline);
            }
        } else if let Some(file) = self.file.as_mut().filter(|_| self.plan.sync) {
            file.sync()?;
        }
        Ok(Progress::DONE)
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.write_buffer()?;
        let is_owed = self
            .ledger
            .as_ref()
            .is_some_and(|ledger| !ledger.has_begun());
        if is_owed && !self.plan.rotates() {
            self.begin_file()?;
        }
        self.finish_file()?;
        if let Some(ledger) = &mut self.ledger {
            ledger.end();
        }
        Ok(Progress::DONE)
    }

    fn states(&self) -> Vec<StateShape> {
        Ledger::states()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        match &mut self.ledger {
            Some(ledger) => {
                let open = self.file.as_ref().map(|file| (file, self.begun));
                ledger.take_cut(cut, open, self.number)
            }
            None => Ok(()),
        }
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        match &mut self.ledger {
            Some(ledger) => ledger.write_cut(writer, self.file.as_ref()),
            None => Ok(Progress::DONE),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        // What went to a device or a pipe is not remembered.
        match &mut self.ledger {
            Some(ledger) => ledger.restore(state),
            None => state
                .next()
                .map_or(Ok(()), |entry| Err(RestoredState::unknown(&entry))),
        }
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let resumed = match &mut self.ledger {
            Some(ledger) => ledger.resume(epoch, &self.plan)?,
            None => None,
        };
        let Some(resumed) = resumed else {
            return Ok(Progress::DONE);
        };
        self.number = self.number.max(resumed.number);
        if let Some(file) = resumed.file {
            // Files of earlier versions do not say it.
            self.count_age_from(resumed.begun.unwrap_or_else(|| self.clock.wall()));
            let path = file.sealed().1;
            let resumed = file
                .written_so_far()
                .and_then(|mut output| self.outgo.resume_from(&mut output));
            resumed.map_err(|error| cannot_read(path, error))?;
            self.file = Some(file);
        }
        // What is committed is seen, if nobody saw to that by then.
        self.publish(epoch)?;
        Ok(Progress::DONE)
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.publish(epoch)?;
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        self.ledger.as_ref().is_some_and(Ledger::is_waiting)
    }

    fn close(&mut self) {
        self.file = None;
    }
}

#[cfg(test)]
mod survival_tests;
#[cfg(test)]
mod tests;
