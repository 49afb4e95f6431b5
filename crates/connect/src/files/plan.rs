//! Where a file sink writes, and under which names.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{FileUse, Instance};

use super::part_file::{Compression, PART_SUFFIX, Place};

/// Where and how files are written.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub path: PathBuf,
    pub compression: Compression,
    pub rotate_bytes: Option<u64>,
    pub rotate_after: Option<Duration>,
    pub sync: bool,
}

impl Plan {
    pub fn rotates(&self) -> bool {
        self.rotate_bytes.is_some() || self.rotate_after.is_some()
    }

    /// The parts of a file's name around its numbers.
    fn name_parts(&self, instance: Instance) -> (String, String) {
        let name = self
            .path
            .file_name()
            .unwrap_or(OsStr::new("out"))
            .to_string_lossy();
        let dot = name
            .char_indices()
            .skip(1)
            .find(|(_, letter)| *letter == '.');
        let (stem, extension) = name.split_at(dot.map_or(name.len(), |(at, _)| at));
        let instance = match instance.parallelism {
            1 => String::new(),
            _ => format!("-{}", instance.index),
        };
        let suffix = self.compression.suffix();
        let suffix = if extension.ends_with(suffix) {
            ""
        } else {
            suffix
        };
        (format!("{stem}{instance}"), format!("{extension}{suffix}"))
    }

    /// The file of an instance; the one of that number if they have numbers.
    pub fn file(&self, instance: Instance, number: u64) -> PathBuf {
        if self.rotates() {
            self.numbered(instance, &format!("{number:06}"))
        } else {
            let (before, after) = self.name_parts(instance);
            self.path.with_file_name(format!("{before}{after}"))
        }
    }

    fn numbered(&self, instance: Instance, number: &str) -> PathBuf {
        let (before, after) = self.name_parts(instance);
        self.path
            .with_file_name(format!("{before}-{number}{after}"))
    }

    /// What an instance must have for itself: the names of its file, or the one pattern of all its files.
    pub fn names(&self, instance: Instance) -> Vec<PathBuf> {
        if self.rotates() {
            return vec![self.numbered(instance, "*")];
        }
        let path = self.file(instance, 0);
        match Place::of(&path) {
            Ok(Place::File { path, part }) => vec![path, part],
            // What is wrong with it is said when it is to be written.
            Ok(Place::Special) | Err(_) => vec![path],
        }
    }

    /// The files that so many instances write in place of older ones. Numbered ones go on from what is there, and replace none.
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

    /// The number behind the highest that a file has already. Behind the highest number there is comes none, so a file that has it
    /// is passed over.
    pub fn first_free_number(&self, instance: Instance) -> io::Result<u64> {
        let (before, after) = self.name_parts(instance);
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let entries = match fs::read_dir(directory.unwrap_or(Path::new("."))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut free = 0;
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let whole = name.strip_suffix(PART_SUFFIX).unwrap_or(&name);
            let digits = whole
                .strip_prefix(&before)
                .and_then(|rest| rest.strip_prefix('-'))
                .and_then(|rest| rest.strip_suffix(&after));
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
            path: path.into(),
            compression,
            rotate_bytes: None,
            rotate_after: None,
            sync: false,
        }
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
