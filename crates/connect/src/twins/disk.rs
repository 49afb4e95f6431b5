//! Brings files to the disk beside everything else.

use std::fs::File;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Files on their way to the disk, on a thread of their own: a slow disk holds up no results.
#[derive(Default)]
pub(super) struct ToDisk {
    /// Whether the disk has not got yet what was asked for.
    is_wanted: bool,
    running: Option<Running>,
}

struct Running {
    thread: JoinHandle<io::Result<()>>,
    /// Whether it began after what is wanted was asked for.
    covers: bool,
}

impl ToDisk {
    /// What has been written so far is to be on the disk.
    pub fn ask(&mut self) {
        self.is_wanted = true;
        if let Some(running) = &mut self.running {
            running.covers = false;
        }
    }

    /// Whether all that was asked for is there; doesn't wait.
    ///
    /// # Errors
    /// What the disk says. Nothing is known of what it has then.
    pub fn is_there(&mut self, files: impl FnOnce() -> io::Result<[File; 2]>) -> io::Result<bool> {
        if let Some(running) = self.running.take_if(|running| running.thread.is_finished()) {
            let synced = running.thread.join();
            synced.unwrap_or_else(|_| Err(io::Error::other("it could not be brought there")))?;
            self.is_wanted &= !running.covers;
        }
        if self.is_wanted && self.running.is_none() {
            let files = files()?;
            let sync = move || files.iter().try_for_each(File::sync_data);
            let thread = Builder::new().name("twins to disk".into()).spawn(sync)?;
            self.running = Some(Running {
                thread,
                covers: true,
            });
        }
        Ok(!self.is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::eventually;

    #[test]
    fn what_was_asked_for_is_there_after_a_while_and_each_time_anew() {
        let file = tempfile::tempfile().unwrap();
        let files = || Ok([file.try_clone()?, file.try_clone()?]);
        let mut disk = ToDisk::default();
        assert!(disk.is_there(files).unwrap(), "nothing was asked for");
        for _ in 0..3 {
            disk.ask();
            assert!(!disk.is_there(files).unwrap());
            // What is asked for now is not covered by what has begun before.
            disk.ask();
            eventually("on the disk", || disk.is_there(files).unwrap());
        }
    }

    #[test]
    fn what_the_disk_says_is_told() {
        let mut disk = ToDisk::default();
        disk.ask();
        let away = || Err(io::Error::other("on fire"));
        assert!(disk.is_there(away).is_err());
    }
}
