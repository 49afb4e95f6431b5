//! Resource limits of containers, enforced by control groups of version 2 where permitted.
//!
//! Each container gets a control group below the runner's group. The runner's group is configured,
//! or that of the runner's process. A group with subgroups may contain no processes, so a runner
//! that uses the group of its process first moves that process into the subgroup `ardea-host`. A
//! service manager that delegates a group expects this (`Delegate=yes` in systemd, with
//! `KillMode=process`, so that containers outlive the service).

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use ardea_coordination::packing::Resources;
use ardea_core::{ErrorCode, Result};

use super::records::cannot;

/// The period of cpu quotas in microseconds.
const PERIOD_MICROS: u64 = 100_000;

/// The parent of the containers' control groups, or the reason why there are no groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Limits {
    /// Groups are created below this control group.
    Below(PathBuf),
    /// No limits are enforced, for this reason.
    Off(String),
}

impl Limits {
    /// Prepares the control group `below`, or by default the group of this process, as the parent.
    pub(super) fn prepare(below: Option<&Path>) -> Self {
        let own;
        let base = match below {
            Some(base) => base,
            None => match own_group() {
                Ok(Some(group)) => {
                    own = group;
                    &own
                }
                Ok(None) => return Limits::Off("there are no control groups of version 2".into()),
                Err(error) => return Limits::Off(format!("its control group is unknown: {error}")),
            },
        };
        let controllers = match std::fs::read_to_string(base.join("cgroup.controllers")) {
            Ok(controllers) => controllers,
            Err(error) => {
                return Limits::Off(format!("{} is no control group: {error}", base.display()));
            }
        };
        for needed in ["cpu", "memory"] {
            if !controllers.split_whitespace().any(|name| name == needed) {
                return Limits::Off(format!(
                    "the control group {} can't limit {needed}",
                    base.display()
                ));
            }
        }
        match enable(base) {
            Ok(()) => Limits::Below(base.to_path_buf()),
            Err(error) => Limits::Off(format!(
                "the control group {} can't be divided: {error}",
                base.display()
            )),
        }
    }

    /// Returns the reason why no limits are enforced; `None` if limits are enforced.
    pub(super) fn reason_off(&self) -> Option<&str> {
        match self {
            Limits::Below(_) => None,
            Limits::Off(why) => Some(why),
        }
    }

    /// Returns the path of the control group `name`, if the group exists.
    pub(super) fn existing(&self, name: &str) -> Option<PathBuf> {
        let Limits::Below(base) = self else {
            return None;
        };
        Some(base.join(name)).filter(|group| group.is_dir())
    }

    /// Creates the control group `name` with these limits. A resource of zero is not limited.
    /// Returns `None` if no limits are enforced.
    pub(super) fn group(&self, name: &str, resources: &Resources) -> Result<Option<PathBuf>> {
        let Limits::Below(base) = self else {
            return Ok(None);
        };
        let group = base.join(name);
        let made = || -> io::Result<()> {
            match std::fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            std::fs::write(group.join("cpu.max"), cpu_max(resources))?;
            std::fs::write(group.join("memory.max"), memory_max(resources))?;
            // If memory runs out, the kernel kills only the largest process, not the whole group.
            // This is the leaking instance if it has a separate process. Otherwise it is the
            // worker, whose end also ends the other processes.
            std::fs::write(group.join("memory.oom.group"), "0")
        };
        made().map_err(|error| cannot(ErrorCode::StartFailed, "make", &group, error))?;
        Ok(Some(group))
    }
}

/// Moves a process into a group.
pub(super) fn join(group: &Path, pid: i32) -> Result<()> {
    let file = group.join("cgroup.procs");
    std::fs::write(&file, pid.to_string())
        .map_err(|error| cannot(ErrorCode::StartFailed, "write", &file, error))
}

/// Removes the control group of an ended container. Returns a remark if the kernel has killed
/// processes of the group for lack of memory.
pub(super) fn leave(group: &Path) -> Option<String> {
    let events = std::fs::read_to_string(group.join("memory.events")).unwrap_or_default();
    let kills = events
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "));
    let limit = std::fs::read_to_string(group.join("memory.max")).unwrap_or_default();
    // The write kills all remaining processes of the group. On kernels without this file, they have
    // been killed one by one.
    let _ = std::fs::write(group.join("cgroup.kill"), "1");
    let _ = std::fs::remove_dir(group);
    let was_killed = kills.is_some_and(|count| count.trim() != "0");
    was_killed.then(|| {
        let limit = limit.trim();
        format!(
            "the kernel killed a process of it, since the container exceeded its memory limit of {limit} bytes"
        )
    })
}

fn enable(base: &Path) -> io::Result<()> {
    let control = base.join("cgroup.subtree_control");
    if std::fs::write(&control, "+cpu +memory").is_ok() {
        return Ok(());
    }
    let own = base.join("ardea-host");
    match std::fs::create_dir(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::write(own.join("cgroup.procs"), std::process::id().to_string())?;
    std::fs::write(&control, "+cpu +memory")
}

/// Returns the group of this process, if the machine has groups of version 2.
fn own_group() -> io::Result<Option<PathBuf>> {
    let groups = std::fs::read_to_string("/proc/self/cgroup")?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let place = place.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then_some(place)
    });
    Ok(mount
        .zip(path)
        .map(|(mount, path)| Path::new(mount).join(path)))
}

fn cpu_max(resources: &Resources) -> String {
    let mut text = String::new();
    match resources.cpu.0 {
        0 => text.push_str("max"),
        // The kernel's minimum is one millisecond.
        milli => {
            let quota = milli.saturating_mul(PERIOD_MICROS / 1000).max(1000);
            let _ = write!(text, "{quota}");
        }
    }
    let _ = write!(text, " {PERIOD_MICROS}");
    text
}

fn memory_max(resources: &Resources) -> String {
    match resources.memory_bytes {
        0 | u64::MAX => "max".to_string(),
        bytes => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_coordination::packing::MilliCores;

    fn base(controllers: &str) -> tempfile::TempDir {
        let base = tempfile::tempdir().expect("a folder");
        std::fs::write(base.path().join("cgroup.controllers"), controllers).expect("written");
        base
    }

    #[test]
    fn a_container_gets_a_group_with_its_limits() {
        let base = base("cpuset cpu io memory pids\n");
        let limits = Limits::prepare(Some(base.path()));
        assert_eq!(limits, Limits::Below(base.path().to_path_buf()));
        let resources = Resources {
            cpu: MilliCores(1_500),
            memory_bytes: 1 << 30,
            disk_bytes: 0,
        };
        let group = limits
            .group("job-3", &resources)
            .expect("made")
            .expect("a group");
        join(&group, 42).expect("joined");
        let read = |name| std::fs::read_to_string(group.join(name)).expect("read");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("memory.max"), "1073741824");
        assert_eq!(read("cgroup.procs"), "42");
        let unlimited = limits.group("job-4", &Resources::ZERO).expect("made");
        let unlimited = unlimited.expect("a group").join("cpu.max");
        assert_eq!(
            std::fs::read_to_string(unlimited).expect("read"),
            "max 100000"
        );
    }

    #[test]
    fn an_end_for_want_of_memory_is_told() {
        let base = base("cpu memory");
        std::fs::write(base.path().join("memory.events"), "oom 1\noom_kill 1\n").expect("written");
        std::fs::write(base.path().join("memory.max"), "4096\n").expect("written");
        assert!(leave(base.path()).is_some_and(|said| said.contains("4096 bytes")));
        std::fs::write(base.path().join("memory.events"), "oom_kill 0\n").expect("written");
        assert_eq!(leave(base.path()), None);
    }

    #[test]
    fn a_group_that_can_t_limit_says_so() {
        let limits = Limits::prepare(Some(base("cpuset io").path()));
        assert!(
            limits
                .reason_off()
                .is_some_and(|why| why.contains("can't limit cpu"))
        );
        let limits = Limits::prepare(Some(Path::new("/proc/none")));
        assert!(
            limits
                .reason_off()
                .is_some_and(|why| why.contains("no control group"))
        );
        assert_eq!(limits.group("x", &Resources::ZERO).expect("none"), None);
    }
}
