//! The processor that reads row groups.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_connectors::OnDamage;
use ardea_connectors::sequence_splits::SequenceSplits;
use ardea_core::instance_state as kept;
use ardea_core::{
    BadRecords, Checkpointed, Epoch, Error, Instance, InstanceContext, JobSignals, OnError,
    Ordinal, Outbox, Processor, Progress, RestoredState, Result, SmallSnapshot, SnapshotRequest,
    SnapshotWriter, SourceControl, StateShape,
};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter;

use super::group_filter::GroupFilter;
use super::listing::{FileGroups, InputFile, RowGroupList};
use super::open_file::{GroupReader, OpenFile, cannot_read};
use crate::batch::{ColumnBatch, emit};
use crate::encode::write_json_lines;
use crate::stream::SourceFilters;

/// The name of the state with an entry for each file.
const FILES: &str = "files";
/// The name of the state with the positions in row groups.
const ROWS: &str = "rows";

/// The settings of a reader.
#[derive(Clone, Debug)]
pub(super) struct GroupReading {
    pub columns: SchemaRef,
    pub batch_rows: usize,
    pub on_error: OnError,
    pub on_damage: OnDamage,
    /// The filters directly after the source.
    pub filters: SourceFilters,
}

/// The row group that is being read.
struct CurrentGroup {
    reader: GroupReader,
    /// The number of the row group among those of all files, and in its file.
    number: u64,
    group: usize,
    /// The number of records that have been read.
    rows: u64,
}

/// The processor that reads the row groups of an instance one after the other.
pub(super) struct ReadGroupsP {
    filter: GroupFilter,
    reading: GroupReading,
    instance: Instance,
    /// The list, until the first call of `start` or a restore.
    listed: Option<Result<Arc<RowGroupList>>>,
    list: Arc<RowGroupList>,
    numbers: SequenceSplits,
    /// The file that was opened last.
    file: Option<OpenFile>,
    current: Option<CurrentGroup>,
    /// The number of records read of row groups that earlier attempts have begun.
    begun: BTreeMap<u64, u64>,
    bad: BadRecords,
    signals: Arc<JobSignals>,
    draft: SmallSnapshot,
    restored: RowGroupList,
}

impl ReadGroupsP {
    pub fn new(list: Result<Arc<RowGroupList>>, reading: GroupReading, instance: Instance) -> Self {
        ReadGroupsP {
            bad: BadRecords::new(reading.on_error),
            filter: GroupFilter::bind(&reading.filters.all(), &reading.columns),
            reading,
            instance,
            listed: Some(list),
            list: Arc::default(),
            numbers: SequenceSplits::new(instance, 0),
            file: None,
            current: None,
            begun: BTreeMap::new(),
            signals: Arc::default(),
            draft: SmallSnapshot::default(),
            restored: RowGroupList::default(),
        }
    }

    /// Takes the list, unless the state was restored.
    fn start(&mut self) -> Result<()> {
        let Some(listed) = self.listed.take() else {
            return Ok(());
        };
        // Later calls must fail as well.
        let list = listed.inspect_err(|error| self.listed = Some(Err(error.clone())))?;
        self.numbers.set_end(list.row_groups());
        self.list = list;
        if self.instance.index == 0 {
            for (path, error) in &self.list.damaged {
                self.report_damage(&path.display().to_string(), error)?;
            }
        }
        Ok(())
    }

    fn report_damage(&self, origin: &str, error: &Error) -> Result<()> {
        // Standard error may be closed; the dead letter has the same text.
        let _ = writeln!(io::stderr().lock(), "ardea: {error}; the rest is read");
        let mut damaged = BadRecords::new(OnError::DeadLetter);
        damaged.attach(self.bad.context());
        damaged.report(|| origin.to_string(), Vec::new, error)
    }

    /// Opens the next row group. Returns false if there is none.
    fn begin_next(&mut self) -> Result<bool> {
        let Some(run) = self.numbers.front() else {
            return Ok(false);
        };
        let Some((listed, group)) = self.list.find(run.first) else {
            self.numbers.advance(1);
            return Ok(true);
        };
        let rows = self.begun.remove(&run.first).unwrap_or(0);
        let path = listed.path.display().to_string();
        let place = (group, rows);
        match open_group(&mut self.file, listed, place, &self.reading, &self.filter) {
            Ok(None) => self.numbers.advance(1),
            Ok(Some(reader)) => {
                self.current = Some(CurrentGroup {
                    reader,
                    number: run.first,
                    group,
                    rows,
                });
            }
            Err(error) if self.reading.on_damage == OnDamage::Keep => {
                self.report_damage(&format!("{path}: row group {group}"), &error)?;
                self.numbers.advance(1);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Reads the next batch of the current row group.
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let Some(current) = &mut self.current else {
            return Ok(None);
        };
        let failed = match current.reader.next() {
            Ok(Some((columns, rows))) => {
                let first = current.rows;
                current.rows += rows as u64;
                return self.checked(columns, rows, first).map(Some);
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if let (Some(error), Some(file)) = (failed, &self.file) {
            let error = file.damaged(current.group, &error);
            if self.reading.on_damage == OnDamage::Fail {
                return Err(error);
            }
            let (path, group, rows) = (file.path().display(), current.group, current.rows);
            self.report_damage(&format!("{path}: row group {group}, record {rows}"), &error)?;
        }
        self.current = None;
        self.numbers.advance(1);
        Ok(None)
    }

    /// Returns a batch of the records without nulls in columns that are not nullable. The others
    /// are handled as bad records.
    fn checked(&self, columns: Vec<ArrayRef>, rows: usize, first: u64) -> Result<RecordBatch> {
        let (Some(current), Some(file)) = (&self.current, &self.file) else {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.reading.columns)));
        };
        let failed = |error: ArrowError| file.damaged(current.group, &error);
        let fields = self.reading.columns.fields().iter();
        let nulls = fields
            .zip(&columns)
            .filter(|(field, _)| !field.is_nullable());
        let nulls = nulls.fold(None, |nulls, (_, column)| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let Some(valid) = nulls.filter(|nulls| nulls.null_count() > 0) else {
            return current.reader.batch(columns, rows).map_err(failed);
        };
        for row in (0..rows).filter(|row| valid.is_null(*row)) {
            let origin = || {
                let (path, record) = (file.path().display(), first + row as u64);
                format!("{path}: row group {}, record {record}", current.group)
            };
            let raw = || {
                let fields = self.reading.columns.fields().iter().zip(&columns);
                let values = fields.map(|(it, column)| (it.name(), column.slice(row, 1), true));
                let mut line = Vec::new();
                if let Ok(record) = RecordBatch::try_from_iter_with_nullable(values) {
                    // A record that has no text is reported without it.
                    let _ = write_json_lines(&record, &mut line, |_, _| {});
                }
                line
            };
            self.bad
                .report(origin, raw, "null in a column that is not nullable")?;
        }
        let keep = BooleanArray::new(valid.into_inner(), None);
        let columns = columns.iter().map(|column| filter(column, &keep));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        current
            .reader
            .batch(columns, keep.true_count())
            .map_err(failed)
    }
}

/// Opens a row group at a record; returns `None` if the filter accepts no record of it. Keeps the
/// file open for the next one.
fn open_group(
    open: &mut Option<OpenFile>,
    listed: &InputFile,
    (group, row): (usize, u64),
    reading: &GroupReading,
    filter: &GroupFilter,
) -> Result<Option<GroupReader>> {
    let file = match open.take() {
        Some(file) if file.path() == listed.path => file,
        _ => OpenFile::open(&listed.path)?,
    };
    let file = open.insert(file);
    if file.identity != listed.groups.file {
        let why = "it was replaced after it was listed, or after the checkpoint";
        let hint = "put the file back that was being read, or start the job without the checkpoint";
        return Err(cannot_read(&listed.path, why).hint(hint).permanent());
    }
    if file.is_excluded(group, filter) {
        return Ok(None);
    }
    let columns = (&reading.columns, reading.batch_rows);
    file.read(group, row, columns).map(Some)
}

impl Processor for ReadGroupsP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.signals = Arc::clone(&context.signals);
        match context.guarantee.keeps_state() {
            // A restore may still set the position.
            true => Ok(()),
            false => self.start(),
        }
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        self.start()?;
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        if self.current.is_none() && !self.begin_next()? {
            return Ok(Progress::DONE);
        }
        if let Some(batch) = self.read()? {
            emit(outbox, Ordinal::FIRST, ColumnBatch::untimed(batch))?;
        }
        Ok(Progress::MADE)
    }

    fn close(&mut self) {
        (self.current, self.file) = (None, None);
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for ReadGroupsP {
    fn is_at_end(&self) -> bool {
        self.listed.is_none() && self.current.is_none() && self.numbers.is_at_end()
    }
}

impl Checkpointed for ReadGroupsP {
    fn states(&mut self) -> Vec<StateShape> {
        let own = [FILES, ROWS].map(StateShape::own);
        self.numbers.states().into_iter().chain(own).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        // The list must not change after the first snapshot, even one before the first record.
        self.start()?;
        self.numbers.take_snapshot(snapshot)?;
        let chunk = self.draft.begin();
        let index = self.instance.index;
        let current = self.current.iter().map(|it| (it.number, it.rows));
        let begun = self.begun.iter().map(|(number, rows)| (*number, *rows));
        let rows: Vec<_> = begun.chain(current).filter(|(_, rows)| *rows > 0).collect();
        kept::put(chunk, ROWS, (index, &[]), &rows)?;
        // An increment omits the list, which does not change.
        if snapshot.is_full() {
            let files = (0..).zip(&self.list.files);
            for (_, file) in files.filter(|(number, _)| self.instance.owns(*number)) {
                let path = file.path.as_os_str().as_bytes();
                kept::put(chunk, FILES, (index, path), &file.groups)?;
            }
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let numbers = self.numbers.write_snapshot(writer)?;
        match numbers.done {
            true => self.draft.write(writer),
            false => Ok(numbers),
        }
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state {
                FILES => {
                    let (_, path) = kept::written_by(&entry)?;
                    let path = PathBuf::from(OsStr::from_bytes(path));
                    let groups: FileGroups = kept::value(&entry)?;
                    self.restored.files.push(InputFile { path, groups });
                }
                ROWS => {
                    for (number, rows) in kept::value::<Vec<(u64, u64)>>(&entry)? {
                        let begun = self.begun.entry(number).or_default();
                        // An instance that did not own the row group may have an older value.
                        *begun = rows.max(*begun);
                    }
                }
                _ => self.numbers.restore_entry(&entry)?,
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        if !self.numbers.has_restored() {
            return Ok(Progress::DONE);
        }
        let mut list = std::mem::take(&mut self.restored);
        list.files
            .sort_unstable_by_key(|file| (file.groups.first, file.groups.count));
        self.numbers.set_end(list.row_groups());
        self.list = Arc::new(list);
        self.listed = None;
        let done = self.numbers.on_restored(epoch)?;
        let numbers = &self.numbers;
        self.begun.retain(|number, _| numbers.contains(*number));
        Ok(done)
    }
}
