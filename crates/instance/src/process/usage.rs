//! The processor time and the memory of another process, from `/proc`.

use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::Pid;

/// Returns the processor time and the resident bytes of a process; `None` if it has ended.
pub(super) fn usage_of(process: Pid) -> Option<(Duration, u64)> {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    read_stat(&std::fs::read_to_string(path).ok()?)
}

fn read_stat(stat: &str) -> Option<(Duration, u64)> {
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // The field after the name is the third one.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let pages: u64 = fields.nth(8)?.parse().ok()?;
    let nanos = (user + system).saturating_mul(1_000_000_000 / clock_ticks_per_second().max(1));
    Some((
        Duration::from_nanos(nanos),
        pages.saturating_mul(page_size() as u64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_program_name() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194304 100 0 0 0 100 50 0 0 20 0 1 0 9 4096 3 1";
        let (cpu, resident) = read_stat(stat).unwrap();
        let ticks = clock_ticks_per_second();
        assert_eq!(cpu, Duration::from_nanos(150 * (1_000_000_000 / ticks)));
        assert_eq!(resident, 3 * page_size() as u64);
    }

    #[test]
    fn this_process_has_memory() {
        let (_, resident) = usage_of(rustix::process::getpid()).unwrap();
        assert!(resident > 100_000);
    }
}
