//! The row groups of the files of a path, numbered in their order.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_connectors::OnDamage;
use ardea_connectors::files;
use ardea_core::{Error, Instance, Result};
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

use super::open_file::{OpenFile, ParquetIdentity};

/// A file to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InputFile {
    pub path: PathBuf,
    pub groups: FileGroups,
}

/// The row groups of a file, and the identity of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileGroups {
    /// The number of the first row group among those of all files.
    pub first: u64,
    pub count: u64,
    pub file: ParquetIdentity,
}

/// The files of a path when the job was started.
#[derive(Clone, Debug, Default)]
pub(super) struct RowGroupList {
    /// In the order of the numbers of their row groups.
    pub files: Vec<InputFile>,
    /// The errors of files that are left out.
    pub damaged: Vec<(PathBuf, Error)>,
}

impl RowGroupList {
    /// Reads the footers of the files of a path.
    fn read(path: &Path, suffix: Option<&str>, columns: &SchemaRef) -> Result<Self> {
        let mut list = RowGroupList::default();
        for path in files::local_files(path, suffix)? {
            let opened = OpenFile::open(&path);
            let checked = opened.and_then(|file| file.check_columns(columns).map(|_| file));
            match checked {
                Ok(file) => {
                    let groups = FileGroups {
                        first: list.row_groups(),
                        count: file.row_groups() as u64,
                        file: file.identity,
                    };
                    list.files.push(InputFile { path, groups });
                }
                Err(error) => list.damaged.push((path, error)),
            }
        }
        Ok(list)
    }

    /// Returns the number of row groups of all files.
    pub fn row_groups(&self) -> u64 {
        let last = self.files.last().map(|file| file.groups);
        last.map_or(0, |last| last.first.saturating_add(last.count))
    }

    /// Returns the file of a row group, and the number of the row group in it.
    pub fn find(&self, number: u64) -> Option<(&InputFile, usize)> {
        let after = self
            .files
            .partition_point(|file| file.groups.first <= number);
        // Files without row groups have the same number as the next one.
        let file = self.files.get(after.checked_sub(1)?)?;
        let group = number - file.groups.first;
        (group < file.groups.count).then_some((file, group as usize))
    }
}

/// The list of a source, read once per start of the job in a process, so that the instances agree.
#[derive(Debug)]
pub(super) struct SharedList {
    path: PathBuf,
    suffix: Option<String>,
    columns: SchemaRef,
    on_damage: OnDamage,
    /// The list for the current start, and the number of instances that have not got it yet.
    current: Mutex<Option<(Result<Arc<RowGroupList>>, u32)>>,
}

impl SharedList {
    pub fn new(
        (path, suffix): (PathBuf, Option<String>),
        columns: SchemaRef,
        on_damage: OnDamage,
    ) -> Self {
        SharedList {
            path,
            suffix,
            columns,
            on_damage,
            current: Mutex::new(None),
        }
    }

    /// Returns the files that a job started now would read.
    pub fn now(&self) -> Vec<PathBuf> {
        let listed = files::local_files(&self.path, self.suffix.as_deref());
        listed.unwrap_or_else(|_| vec![self.path.clone()])
    }

    /// Returns the list for an instance.
    ///
    /// # Errors
    /// That of the path, or unless damage is kept, of the first file that cannot be read.
    pub fn of(&self, instance: Instance) -> Result<Arc<RowGroupList>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (list, to_come) = match current.take() {
            Some((list, to_come)) => (list, to_come - 1),
            None => (self.read().map(Arc::new), instance.parallelism - 1),
        };
        if to_come > 0 {
            *current = Some((list.clone(), to_come));
        }
        list
    }

    fn read(&self) -> Result<RowGroupList> {
        let list = RowGroupList::read(&self.path, self.suffix.as_deref(), &self.columns)?;
        match list.damaged.first() {
            Some((_, error)) if self.on_damage == OnDamage::Fail => Err(error.clone()),
            _ => Ok(list),
        }
    }
}
