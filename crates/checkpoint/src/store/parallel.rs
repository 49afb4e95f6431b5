//! Work that several threads share.

use std::thread;

use ardea_core::{Error, ErrorCode, Result};

/// Does `work` in this thread and in others, so many in all; each takes what is left to do until nothing is. What the system refuses threads for, the
/// others do.
///
/// # Errors
/// The first of `work`; the others still come to their end.
pub(crate) fn in_parallel(threads: usize, work: &(dyn Fn() -> Result<()> + Sync)) -> Result<()> {
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map(|_| {
                let thread = thread::Builder::new().name("ardea-read".into());
                thread.spawn_scoped(scope, work)
            })
            .collect();
        let mut result = work();
        for helper in helpers {
            // Without a thread the others do its work.
            let Ok(helper) = helper else { continue };
            let helped = helper.join().unwrap_or_else(|_| {
                let what = "a thread that read a snapshot panicked";
                Err(Error::new(ErrorCode::Internal, what))
            });
            result = result.and(helped);
        }
        result
    })
}
