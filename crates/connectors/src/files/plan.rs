//! Output paths and file names of a file sink.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{FileUse, Instance, Result};
use ardea_filesystem::{Feature, probe};

use super::part_file::{Compression, OutputTarget, PART_SUFFIX, with_suffix};

/// The settings of a file sink.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub path: PathBuf,
    pub compression: Compression,
    pub rotate_bytes: Option<u64>,
    pub rotate_after: Option<Duration>,
    pub sync: bool,
    /// True if a file ends with each epoch.
    pub rotates_with_epochs: bool,
    /// The minimum size of a file that ends with an epoch.
    pub min_bytes: Option<u64>,
    /// The minimum age of a file that ends with an epoch.
    pub min_age: Option<Duration>,
}

impl Plan {
    /// Returns the plan of one file without rotation.
    pub fn new(path: &Path) -> Self {
        Plan {
            path: path.to_path_buf(),
            compression: Compression::of_name(path),
            rotate_bytes: None,
            rotate_after: None,
            sync: false,
            rotates_with_epochs: false,
            min_bytes: None,
            min_age: None,
        }
    }

    /// Returns true if a file of this size before compression and this age ends with the epoch that
    /// has just ended.
    pub fn ends_with_epoch(&self, written: u64, age: Duration) -> bool {
        let has_no_minimum = self.min_bytes.is_none() && self.min_age.is_none();
        let is_large = self.min_bytes.is_some_and(|least| written >= least);
        let is_old = self.min_age.is_some_and(|least| age >= least);
        self.rotates_with_epochs && written > 0 && (has_no_minimum || is_large || is_old)
    }

    /// Returns true if each file with content ends with the epoch.
    #[cfg(feature = "s3")]
    pub fn ends_with_every_epoch(&self) -> bool {
        self.rotates_with_epochs && self.min_bytes.is_none() && self.min_age.is_none()
    }

    pub fn rotates(&self) -> bool {
        self.rotate_bytes.is_some() || self.rotate_after.is_some() || self.rotates_with_epochs
    }

    /// Returns the parts of a file name before and after its numbers.
    fn name_parts(&self, instance: Instance) -> (Vec<u8>, Vec<u8>) {
        // The name need not be UTF-8.
        let name = self.path.file_name().unwrap_or(OsStr::new("out"));
        let name = name.as_bytes();
        let dot = name.iter().skip(1).position(|byte| *byte == b'.');
        let (stem, extension) = name.split_at(dot.map_or(name.len(), |at| at + 1));
        let (mut before, mut after) = (stem.to_vec(), extension.to_vec());
        if instance.parallelism > 1 {
            before.extend_from_slice(format!("-{}", instance.index).as_bytes());
        }
        let suffix = self.compression.suffix().as_bytes();
        if !after.ends_with(suffix) {
            after.extend_from_slice(suffix);
        }
        (before, after)
    }

    /// Returns the path of a file whose name is the concatenation of `pieces`.
    fn named(&self, pieces: &[&[u8]]) -> PathBuf {
        self.path
            .with_file_name(OsString::from_vec(pieces.concat()))
    }

    /// Returns the path of an instance's file; with rotation, of its file number `number`.
    pub fn file(&self, instance: Instance, number: u64) -> PathBuf {
        if self.rotates() {
            self.numbered(instance, &format!("{number:06}"))
        } else {
            let (before, after) = self.name_parts(instance);
            self.named(&[&before, &after])
        }
    }

    /// Returns the path of a numbered file of an instance, with `number` in its name.
    pub fn numbered(&self, instance: Instance, number: &str) -> PathBuf {
        let (before, after) = self.name_parts(instance);
        self.named(&[&before, b"-", number.as_bytes(), &after])
    }

    /// Returns the path of an instance's file without rotation. `generation` counts rescalings and
    /// restarts after the end of the job, so that earlier output is not replaced.
    pub fn file_of_generation(&self, instance: Instance, generation: u32) -> PathBuf {
        match generation {
            0 => self.file(instance, 0),
            _ => self.numbered(instance, &format!("r{generation}")),
        }
    }

    /// Returns the name of an unfinished numbered file of a job with state. It contains the number
    /// `run`.
    pub fn part_of_run(path: &Path, run: u64) -> PathBuf {
        with_suffix(path, &Plan::part_suffix(run))
    }

    fn part_suffix(run: u64) -> String {
        format!(".{run:016x}{PART_SUFFIX}")
    }

    /// Returns the unfinished numbered files of a run, of all instances.
    pub fn parts_of_run(&self, run: u64) -> io::Result<Vec<PathBuf>> {
        let suffix = Plan::part_suffix(run);
        let mut parts = Vec::new();
        for path in self.beside()? {
            let name = path.file_name().unwrap_or_default();
            if name.as_bytes().ends_with(suffix.as_bytes()) {
                parts.push(path);
            }
        }
        Ok(parts)
    }

    /// Returns the paths of all entries in the output directory.
    fn beside(&self) -> io::Result<Vec<PathBuf>> {
        let folder = self.path.parent();
        let folder = folder.filter(|parent| !parent.as_os_str().is_empty());
        let entries = match fs::read_dir(folder.unwrap_or(Path::new("."))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        // Built from the configured path, so that equal paths compare equal.
        let named = |entry: io::Result<fs::DirEntry>| -> io::Result<PathBuf> {
            let name = entry?.file_name();
            Ok(folder.map_or_else(|| PathBuf::from(&name), |folder| folder.join(&name)))
        };
        entries.map(named).collect()
    }

    /// Returns the paths that an instance claims: the names of its file, or the pattern of all its
    /// numbered files.
    pub fn names(&self, instance: Instance) -> Vec<PathBuf> {
        if self.rotates() {
            return vec![self.numbered(instance, "*")];
        }
        let path = self.file(instance, 0);
        match OutputTarget::of(&path) {
            Ok(OutputTarget::File { path, part }) => vec![path, part],
            // An error is reported when the file is opened.
            Ok(OutputTarget::Special) | Err(_) => vec![path],
        }
    }

    /// Checks whether the file system of an instance's files supports exactly-once output.
    ///
    /// # Errors
    /// [`StoreUnsuitable`](ardea_core::ErrorCode::StoreUnsuitable) if the file system does not
    /// support it.
    pub fn probe(&self, instance: Instance) -> Result<()> {
        let rename = match self.rotates() {
            true => Feature::RenameToFree,
            false => Feature::Rename,
        };
        let features = [Feature::Locks, rename, Feature::Sync, Feature::FolderSync];
        let path = self.file(instance, 0);
        // The target of a symbolic link.
        let path = match OutputTarget::of(&path) {
            Ok(OutputTarget::File { path, .. }) => path,
            Ok(OutputTarget::Special) | Err(_) => path,
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        probe(folder, &features, "output that is seen exactly once")
    }

    /// Returns true if the output is an existing device or pipe.
    pub fn is_special(&self, instance: Instance) -> bool {
        !self.rotates()
            && matches!(
                OutputTarget::of(&self.file(instance, 0)),
                Ok(OutputTarget::Special)
            )
    }

    /// Returns the files that the instances replace. Numbered files replace no file, since their
    /// numbers follow the existing ones.
    pub fn replaced(&self, parallelism: u32) -> Vec<FileUse> {
        if self.rotates() {
            return Vec::new();
        }
        let instances = (0..parallelism).map(|index| Instance { index, parallelism });
        instances
            .flat_map(|instance| self.names(instance))
            .map(FileUse::Writes)
            .collect()
    }

    /// Returns the number after the highest file number in use. A file with the number `u64::MAX`
    /// is ignored, since no number follows.
    pub fn first_free_number(&self, instance: Instance) -> io::Result<u64> {
        let (before, after) = self.name_parts(instance);
        let mut free = 0;
        for path in self.beside()? {
            let name = path.file_name().unwrap_or_default();
            let name = name.as_bytes();
            let whole = name.strip_suffix(PART_SUFFIX.as_bytes()).unwrap_or(name);
            let digits = whole
                .strip_prefix(&before[..])
                .and_then(|rest| rest.strip_prefix(b"-"))
                .and_then(|rest| rest.strip_suffix(&after[..]));
            let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            let number = digits.and_then(|digits| digits.parse::<u64>().ok());
            if let Some(next) = number.and_then(|number| number.checked_add(1)) {
                free = free.max(next);
            }
        }
        Ok(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(path: &str, compression: Compression) -> Plan {
        Plan {
            compression,
            ..Plan::new(Path::new(path))
        }
    }

    #[test]
    fn a_file_ends_with_an_epoch_as_soon_as_one_of_its_minimums_is_reached() {
        let second = Duration::from_secs;
        let mut plan = plan("o.txt", Compression::None);
        assert!(!plan.ends_with_epoch(1, second(1)), "it does not rotate");
        plan.rotates_with_epochs = true;
        assert!(plan.ends_with_epoch(1, second(0)) && !plan.ends_with_epoch(0, second(9)));
        plan.min_bytes = Some(100);
        assert!(plan.ends_with_epoch(100, second(0)) && !plan.ends_with_epoch(99, second(9)));
        plan.min_age = Some(second(5));
        assert!(plan.ends_with_epoch(100, second(0)) && plan.ends_with_epoch(1, second(5)));
        assert!(!plan.ends_with_epoch(99, second(4)));
    }

    #[test]
    fn asking_for_compression_adds_the_suffix_once() {
        let file = |path| plan(path, Compression::Gzip).file(Instance::ONLY, 0);
        assert_eq!(file("x/out.txt"), Path::new("x/out.txt.gz"));
        assert_eq!(file("x/.out.gz"), Path::new("x/.out.gz"));
    }

    #[test]
    fn it_replaces_files_and_their_parts_but_neither_devices_nor_numbered_files() {
        let replaced = |path, count| plan(path, Compression::None).replaced(count);
        let writes = |names: &[&str]| -> Vec<FileUse> {
            let writes = |name: &&str| FileUse::Writes(name.into());
            names.iter().map(writes).collect()
        };
        assert_eq!(
            replaced("no/o.txt", 1),
            writes(&["no/o.txt", "no/o.txt.part"])
        );
        let two = ["o-0.txt", "o-0.txt.part", "o-1.txt", "o-1.txt.part"];
        assert_eq!(replaced("o.txt", 2), writes(&two));
        assert_eq!(replaced("/dev/null", 1), writes(&["/dev/null"]));
        let mut rotating = plan("o.txt", Compression::None);
        rotating.rotate_bytes = Some(1);
        assert_eq!(rotating.replaced(2), []);
    }
}
