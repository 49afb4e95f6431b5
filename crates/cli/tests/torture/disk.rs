//! The place of the job's checkpoints: a small mounted disk, which can be filled, or else a folder.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::random::SeededRandom;

/// The size of the disk: many times the job's state.
const SIZE: &str = "size=64m,mode=755";

/// The file that fills the disk.
const BALLAST: &str = "ballast";
/// The name of the job's folder while it is away.
const AWAY: &str = "away";

/// The place of checkpoints. A mounted disk is unmounted when this value is dropped.
pub struct Disk {
    path: PathBuf,
    is_mounted: bool,
}

/// A damaged byte of a file, and its previous value.
pub struct Damaged {
    path: PathBuf,
    at: u64,
    byte: u8,
}

impl Disk {
    /// Creates the folder `path`, and mounts a disk on it if possible.
    pub fn at(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("a folder");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", SIZE, "torture"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        let is_mounted = mount.is_ok_and(|status| status.success());
        Disk { path, is_mounted }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the disk can be filled.
    pub fn is_small(&self) -> bool {
        self.is_mounted
    }

    /// Fills the disk. Other processes may still find a little space, or take the last.
    pub fn fill(&self) {
        if !self.is_mounted {
            return;
        }
        let mut ballast = File::create(self.path.join(BALLAST)).expect("a file");
        for size in [1 << 20, 4 << 10] {
            let block = vec![0; size];
            while ballast.write_all(&block).is_ok() {}
        }
    }

    pub fn free(&self) {
        let _ = fs::remove_file(self.path.join(BALLAST));
    }

    /// Returns the job's folder: the one with the newest checkpoint among those of all submissions.
    /// A folder without a checkpoint is just being created.
    fn folder(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.path).ok()?.flatten();
        let folders = entries.filter(|entry| entry.path().is_dir() && entry.file_name() != AWAY);
        let newest = |folder: &Path| {
            let files = fs::read_dir(folder).ok()?.flatten();
            let is_manifest =
                |file: &fs::DirEntry| file.file_name().to_string_lossy().ends_with(".manifest");
            let made = files.filter(is_manifest);
            made.filter_map(|file| file.metadata().and_then(|it| it.modified()).ok())
                .max()
        };
        let dated = folders.filter_map(|it| Some((newest(&it.path())?, it.path())));
        dated.max().map(|(_, path)| path)
    }

    /// Moves the job's folder away; returns its original path.
    pub fn take_away(&self) -> Option<PathBuf> {
        let folder = self.folder()?;
        fs::rename(&folder, self.path.join(AWAY)).expect("it is there");
        Some(folder)
    }

    pub fn bring_back(&self, folder: &Path) {
        fs::rename(self.path.join(AWAY), folder).expect("nobody has taken its place");
    }

    /// Inverts a byte in a file of the newest checkpoint: in its manifest, or in the newest block.
    pub fn damage(&self, chance: u64) -> Option<Damaged> {
        let mut dice = SeededRandom::of(chance);
        let ending = if dice.percent(50) {
            ".manifest"
        } else {
            ".block"
        };
        let files = fs::read_dir(self.folder()?).ok()?.flatten();
        let wanted = files.filter(|file| file.file_name().to_string_lossy().ends_with(ending));
        let newest = wanted.max_by_key(|file| file.metadata().and_then(|it| it.modified()).ok())?;
        let path = newest.path();
        // The file is not created again if it has just been removed.
        let mut file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        let length = file.metadata().ok()?.len();
        let at = dice.below(length.max(1));
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).ok()?;
        file.read_exact(&mut byte).ok()?;
        file.seek(SeekFrom::Start(at)).ok()?;
        file.write_all(&[!byte[0]]).ok()?;
        let byte = byte[0];
        Some(Damaged { path, at, byte })
    }

    /// Restores the damaged byte, if the file still exists.
    pub fn restore(&self, damaged: &Damaged) {
        let file = OpenOptions::new().write(true).open(&damaged.path);
        if let Ok(mut file) = file
            && file.seek(SeekFrom::Start(damaged.at)).is_ok()
        {
            let _ = file.write_all(&[damaged.byte]);
        }
    }

    /// Copies the contents to a folder, for the analysis of failures.
    pub fn copy_to(&self, folder: &Path) {
        let copied = Command::new("cp")
            .args(["-a", "--"])
            .arg(&self.path)
            .arg(folder)
            .status();
        if !copied.is_ok_and(|status| status.success()) {
            eprintln!("torture: the checkpoints could not be copied");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}
