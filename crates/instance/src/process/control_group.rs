//! A control group (version 2) for the processes of an instance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use crate::command::InstanceCommand;

/// The period of cpu quotas in microseconds.
const PERIOD_MICROS: u64 = 100_000;

/// A control group, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Creates a group below that of this process with the limits of `command`, and moves `process`
    /// into it. Returns `None` if the command has no such limit.
    ///
    /// # Errors
    /// If there are no groups, if a controller is not enabled for groups below that of this
    /// process, or if this process may not create one.
    pub(super) fn for_process(
        process: Pid,
        command: &InstanceCommand,
    ) -> io::Result<Option<ControlGroup>> {
        if command.cpu_millicores.is_none() && command.memory_bytes.is_none() {
            return Ok(None);
        }
        let base = own_group()?;
        Self::below(&base, process, command).map(Some)
    }

    fn below(base: &Path, process: Pid, command: &InstanceCommand) -> io::Result<ControlGroup> {
        let controllers = [
            ("cpu", command.cpu_millicores),
            ("memory", command.memory_bytes),
        ];
        let enabled = fs::read_to_string(base.join("cgroup.subtree_control"))?;
        let is_missing = |name: &str| {
            enabled
                .split_whitespace()
                .all(|controller| controller != name)
        };
        let mut limited = controllers.iter().filter(|(_, limit)| limit.is_some());
        if let Some((name, _)) = limited.find(|(name, _)| is_missing(name)) {
            let base = base.display();
            let what = format!("the controller `{name}` is not enabled for groups below {base}");
            return Err(io::Error::other(what));
        }
        let id = process.as_raw_nonzero();
        let group = ControlGroup(base.join(format!("ardea-instance-{id}")));
        fs::create_dir(&group.0)?;
        if let Some(millicores) = command.cpu_millicores {
            // The kernel's minimum is one millisecond.
            let quota = millicores.saturating_mul(PERIOD_MICROS / 1_000).max(1_000);
            fs::write(group.0.join("cpu.max"), format!("{quota} {PERIOD_MICROS}"))?;
        }
        if let Some(bytes) = command.memory_bytes {
            fs::write(group.0.join("memory.max"), bytes.to_string())?;
        }
        fs::write(group.0.join("cgroup.procs"), id.to_string())?;
        Ok(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // It fails while descendants of the process still end.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the group of this process.
fn own_group() -> io::Result<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let place = place.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then_some(place)
    });
    let group = mount.zip(path);
    let group = group.map(|(mount, path)| Path::new(mount).join(path));
    group.ok_or_else(|| io::Error::other("there are no control groups of version 2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_gets_a_group_with_its_limits() {
        let base = tempfile::tempdir().unwrap();
        let command = InstanceCommand::new("x")
            .cpu_millicores(1_500)
            .memory_bytes(4_096);
        let process = rustix::process::getpid();
        let enable = |names| fs::write(base.path().join("cgroup.subtree_control"), names).unwrap();
        enable("cpu io\n");
        let error = ControlGroup::below(base.path(), process, &command).unwrap_err();
        assert!(error.to_string().contains("`memory`"), "{error}");
        enable("cpu memory\n");
        let group = ControlGroup::below(base.path(), process, &command).unwrap();
        let read = |name| fs::read_to_string(group.0.join(name)).unwrap();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("memory.max"), "4096");
        assert_eq!(read("cgroup.procs"), process.as_raw_nonzero().to_string());
    }
}
