//! Resource limits of a process.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::command::InstanceCommand;

/// Sets the limits of `command` on a process. Returns a warning for each limit that can't be set.
pub(super) fn apply(process: Pid, command: &InstanceCommand) -> Vec<String> {
    let wanted = [
        (Resource::As, "address space", command.address_space_bytes),
        (Resource::Nofile, "open files", command.open_files),
    ];
    let mut warnings = Vec::new();
    for (resource, name, limit) in wanted {
        let Some(limit) = limit else { continue };
        let limits = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        if let Err(error) = prlimit(Some(process), resource, limits) {
            warnings.push(format!("its {name} can't be limited to {limit}: {error}"));
        }
    }
    warnings
}
