//! The processes of a cluster on this machine, read from `/proc`.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// A process of a cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process {
    pub pid: i32,
    pub role: Role,
}

/// The role of a process.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// A host, by name.
    Host(String),
    /// The worker of a container: the job, and the container's number.
    Worker(String, u64),
    /// A process that a container has started.
    OfContainer,
    /// A command.
    Command,
}

/// Returns all processes whose environment contains this folder.
pub fn all_of(folder: &str) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<Process> = pids.filter_map(|pid| of_folder(pid, folder)).collect();
    found.sort();
    found
}

fn of_folder(pid: i32, folder: &str) -> Option<Process> {
    if pid == std::process::id() as i32 {
        return None;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let value = |name: &str| {
        let mut lines = environment.split('\0');
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    if !environment.contains(folder) || is_dead(pid) {
        return None;
    }
    let json = |name: &str| value(name).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let role = if let Some(worker) = json("ARDEA_WORKER") {
        // In a step of a Slurm job the worker is a child of the script that starts it.
        let is_program = value("SLURM_STEP_ID")
            .and(value("ARDEA_CONTAINER"))
            .is_some();
        let is_of_script = is_program && !parent_has(pid, "ARDEA_CONTAINER=");
        // A component in a process has a group of its own, too.
        let is_instance = value("ARDEA_INSTANCE").is_some();
        match !is_instance && (group(pid) == Some(pid) || is_of_script) {
            true => Role::Worker(
                worker["job"]["name"].as_str()?.to_string(),
                worker["worker"]["container"].as_u64()?,
            ),
            false => Role::OfContainer,
        }
    } else if let Some(host) = json("ARDEA_HOST") {
        Role::Host(host["name"].as_str()?.to_string())
    } else {
        Role::Command
    };
    Some(Process { pid, role })
}

/// Returns the fields of `/proc/PID/stat` after the name, which may contain any characters.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.map(str::to_string).collect())
}

fn is_dead(pid: i32) -> bool {
    stat(pid).is_none_or(|fields| matches!(&*fields[0], "Z" | "X"))
}

fn group(pid: i32) -> Option<i32> {
    stat(pid)?.get(2)?.parse().ok()
}

/// Returns true if the environment of a process's parent contains this text.
fn parent_has(pid: i32, variable: &str) -> bool {
    let parent = stat(pid).and_then(|fields| fields.get(1)?.parse::<i32>().ok());
    let environment = parent.and_then(|parent| fs::read(format!("/proc/{parent}/environ")).ok());
    environment.is_some_and(|environment| String::from_utf8_lossy(&environment).contains(variable))
}

/// Kills a process, if it still exists.
pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Stops a process without ending it.
pub fn freeze(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::STOP);
    }
}

/// Kills a process and those of its group.
pub fn kill_group(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Returns the resident memory of a process in bytes.
pub fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the number of open files of a process, including connections.
pub fn files(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Returns the number of threads of a process.
pub fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Returns the TCP ports at which a process listens.
pub fn ports(pid: i32) -> Vec<u16> {
    let listening = sockets(pid).into_iter();
    let listening = listening.filter(|socket| socket.state == "0A");
    listening.map(|socket| socket.here).collect()
}

/// Returns the TCP connections of a process: the local and the remote port.
pub fn connections(pid: i32) -> Vec<(u16, u16)> {
    let connected = sockets(pid).into_iter();
    let connected = connected.filter(|socket| socket.state == "01");
    connected
        .map(|socket| (socket.here, socket.there))
        .collect()
}

struct Socket {
    here: u16,
    there: u16,
    /// The state code in `/proc/net/tcp`.
    state: String,
}

/// Returns the TCP sockets of a process.
fn sockets(pid: i32) -> Vec<Socket> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = entries
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok());
    let own: BTreeSet<String> = links
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_string())
        })
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let sockets = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let socket = Socket {
            here: port(fields.get(1)?)?,
            there: port(fields.get(2)?)?,
            state: fields.get(3)?.to_string(),
        };
        own.contains(*fields.get(9)?).then_some(socket)
    });
    sockets.collect()
}
