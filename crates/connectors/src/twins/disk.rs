//! Brings files to the disk beside everything else.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;

use ardea_core::Waker;

/// Files on their way to the disk, on a thread of their own: a slow disk holds up no results.
#[derive(Default)]
pub(super) struct ToDisk {
    /// Whether the disk has not got yet what was asked for.
    is_wanted: bool,
    running: Option<Running>,
}

struct Running {
    /// Tells what the disk said.
    said: Receiver<io::Result<()>>,
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

    /// Whether all that was asked for is there; doesn't wait, but wakes when there is news.
    ///
    /// # Errors
    /// What the disk says. Nothing is known of what it has then.
    pub fn is_there(
        &mut self,
        files: impl FnOnce() -> io::Result<[File; 2]>,
        waker: &Waker,
    ) -> io::Result<bool> {
        if let Some(running) = &self.running {
            match running.said.try_recv() {
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => {
                    self.running = None;
                    return Err(io::Error::other("nobody brought it there"));
                }
                Ok(said) => {
                    let covers = running.covers;
                    self.running = None;
                    said?;
                    self.is_wanted &= !covers;
                }
            }
        }
        if self.is_wanted {
            let (tell, said) = channel();
            let (files, waker) = (files()?, waker.clone());
            let sync = move || {
                // Who asked may have gone.
                let _ = tell.send(files.iter().try_for_each(File::sync_data));
                waker.wake();
            };
            Builder::new().name("twins to disk".into()).spawn(sync)?;
            self.running = Some(Running { said, covers: true });
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
        let files = || -> io::Result<[File; 2]> { Ok([file.try_clone()?, file.try_clone()?]) };
        let waker = Waker::none();
        let mut disk = ToDisk::default();
        assert!(
            disk.is_there(files, &waker).unwrap(),
            "nothing was asked for"
        );
        for _ in 0..3 {
            disk.ask();
            assert!(!disk.is_there(files, &waker).unwrap());
            // What is asked for now is not covered by what has begun before.
            disk.ask();
            eventually("on the disk", || disk.is_there(files, &waker).unwrap());
        }
    }

    #[test]
    fn what_the_disk_says_is_told() {
        let mut disk = ToDisk::default();
        disk.ask();
        let away = || Err(io::Error::other("on fire"));
        assert!(disk.is_there(away, &Waker::none()).is_err());
    }
}
