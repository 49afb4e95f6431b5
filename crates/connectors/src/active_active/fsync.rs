//! Flushing of files to disk on a separate thread.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;

use ardea_core::Waker;

/// A worker that flushes files on a separate thread, so that a slow disk does not delay results.
#[derive(Default)]
pub(super) struct FsyncWorker {
    /// True if requested data is not durable yet.
    is_wanted: bool,
    running: Option<Running>,
}

struct Running {
    /// Receives the result of the flush.
    result: Receiver<io::Result<()>>,
    /// True if the flush began after the last request, so that it covers all requested bytes.
    covers: bool,
}

impl FsyncWorker {
    /// Requests that all bytes written so far become durable.
    pub fn request(&mut self) {
        self.is_wanted = true;
        if let Some(running) = &mut self.running {
            running.covers = false;
        }
    }

    /// Returns true if all requested data is durable. Does not block; the waker is called when a
    /// flush ends.
    ///
    /// # Errors
    /// The I/O error of the flush, after which the content of the disk is unknown.
    pub fn is_there(
        &mut self,
        files: impl FnOnce() -> io::Result<[File; 2]>,
        waker: &Waker,
    ) -> io::Result<bool> {
        if let Some(running) = &self.running {
            match running.result.try_recv() {
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => {
                    self.running = None;
                    return Err(io::Error::other("the flush thread has failed"));
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
                // The receiver may have been dropped.
                let _ = tell.send(files.iter().try_for_each(File::sync_data));
                waker.wake();
            };
            Builder::new().name("replica fsync".into()).spawn(sync)?;
            self.running = Some(Running {
                result: said,
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
        let files = || -> io::Result<[File; 2]> { Ok([file.try_clone()?, file.try_clone()?]) };
        let waker = Waker::none();
        let mut disk = FsyncWorker::default();
        assert!(
            disk.is_there(files, &waker).unwrap(),
            "nothing was requested"
        );
        for _ in 0..3 {
            disk.request();
            assert!(!disk.is_there(files, &waker).unwrap());
            // This request is not covered by the flush that has begun.
            disk.request();
            eventually("on the disk", || disk.is_there(files, &waker).unwrap());
        }
    }

    #[test]
    fn what_the_disk_says_is_told() {
        let mut disk = FsyncWorker::default();
        disk.request();
        let away = || Err(io::Error::other("on fire"));
        assert!(disk.is_there(away, &Waker::none()).is_err());
    }
}
