//! The limits that a machine and a control group put on a process: waits for processors and memory,
//! and time held back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The processor statistics of the control group of this process, which is found once.
static CPU_STAT: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Returns the time for which the control group of this process has held it back; zero if no group
/// limits it.
pub(crate) fn throttled() -> Duration {
    let path = CPU_STAT.get_or_init(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let paths = cpu_stat_paths(&groups, Path::new("/sys/fs/cgroup"));
        paths.into_iter().find(|path| path.exists())
    });
    let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok());
    text.map_or(Duration::ZERO, |text| throttled_in(&text))
}

/// Returns the possible paths of a group's statistics, from the text of `/proc/self/cgroup`.
fn cpu_stat_paths(groups: &str, root: &Path) -> Vec<PathBuf> {
    let lines = groups.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, group) = line.split_once(':')?;
        let group = group.trim_start_matches('/');
        match controllers {
            "" => Some(vec![root.join(group), root.join("unified").join(group)]),
            list if list.split(',').any(|it| it == "cpu") => Some(vec![
                root.join(list).join(group),
                root.join("cpu").join(group),
            ]),
            _ => None,
        }
    });
    lines
        .flatten()
        .map(|folder| folder.join("cpu.stat"))
        .collect()
}

/// Reads the time held back from the text of a `cpu.stat`, of either version of control groups.
fn throttled_in(text: &str) -> Duration {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u64>().ok())
    };
    match (value("throttled_usec "), value("throttled_time ")) {
        (Some(micros), _) => Duration::from_micros(micros),
        (None, Some(nanos)) => Duration::from_nanos(nanos),
        (None, None) => Duration::ZERO,
    }
}

/// Returns the share of the last ten seconds in which a thread of the machine waited for a
/// resource, `cpu` or `memory`; `None` if the system does not measure it.
pub(crate) fn pressure(resource: &str) -> Option<f64> {
    share_in(&fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?)
}

/// Reads the share of ten seconds from the line `some avg10=1.50 avg60=…`.
fn share_in(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut fields = line.split_whitespace();
    let percent = fields.find_map(|field| field.strip_prefix("avg10="))?;
    percent.parse::<f64>().ok().map(|percent| percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_held_back_is_read_from_both_versions_of_control_groups() {
        let second = "usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!(throttled_in(second), Duration::from_micros(1500));
        let first = "nr_periods 0\nnr_throttled 2\nthrottled_time 7000\n";
        assert_eq!(throttled_in(first), Duration::from_nanos(7000));
        assert_eq!(throttled_in("usage_usec 5\n"), Duration::ZERO);
    }

    #[test]
    fn the_group_of_the_process_is_found_in_either_hierarchy() {
        let root = Path::new("/groups");
        let paths = cpu_stat_paths("0::/ardea/job\n", root);
        assert!(paths.contains(&PathBuf::from("/groups/ardea/job/cpu.stat")));
        let paths = cpu_stat_paths("4:memory:/m\n1:cpu,cpuacct:/limited\n", root);
        assert!(paths.contains(&PathBuf::from("/groups/cpu,cpuacct/limited/cpu.stat")));
        assert!(cpu_stat_paths("nonsense\n", root).is_empty());
    }

    #[test]
    fn the_share_of_waiting_threads_is_read_in_percent() {
        let text = "some avg10=50.54 avg60=40.87 avg300=16.21 total=1\nfull avg10=0.00\n";
        assert_eq!(share_in(text), Some(0.5054));
        assert_eq!(share_in("full avg10=1.00\n"), None);
    }
}
