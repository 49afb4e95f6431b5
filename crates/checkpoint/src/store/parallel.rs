//! Execution of work that several threads share.

use std::thread;

use ardea_core::{Error, ErrorCode, Result};

/// Runs `work` on this thread and on additional ones, `threads` in total. On each thread, `work`
/// must take items until none are left. If the system refuses a thread, the others do its work.
///
/// # Errors
/// The first error of `work`. The other threads still run to their end.
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
            // The system refused the thread.
            let Ok(helper) = helper else { continue };
            let helped = helper.join().unwrap_or_else(|_| {
                let what = "a thread that read a checkpoint panicked";
                Err(Error::new(ErrorCode::Internal, what))
            });
            result = result.and(helped);
        }
        result
    })
}
