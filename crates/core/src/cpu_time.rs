//! CPU time of the calling thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the user and system time of the calling thread so far. Costs a system call: call it at
/// most once per chunk.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_and_never_gives_it_back() {
        let before = thread_cpu_time();
        let mut last = before;
        let mut sum = 0_u64;
        while last == before {
            for n in 0..10_000_u64 {
                sum = std::hint::black_box(sum.wrapping_add(n));
            }
            let now = thread_cpu_time();
            assert!(now >= last);
            last = now;
        }
    }
}
