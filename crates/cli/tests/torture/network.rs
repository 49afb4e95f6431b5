//! The location of the cluster's hosts: network namespaces, which can be partitioned, or this
//! machine's own network.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ardea_metastore::conformance::Skipped;

use crate::ground::{HOSTS, HostNamespaces};

/// The number of hosts on this machine's own network.
const HOSTS_HERE: usize = 3;

/// The port of the REST interface of a host with its own address.
const PORT: u16 = 7400;

/// The hosts, numbered from 1.
pub enum HostNetwork {
    /// Each host has its own network namespace.
    Spaces(Box<HostNamespaces>),
    /// The hosts share this machine's network, and listen on these ports.
    Here(Vec<u16>),
}

impl HostNetwork {
    /// Creates hosts with their own network namespaces.
    pub fn spaces() -> Result<Self, Skipped> {
        Ok(HostNetwork::Spaces(Box::new(HostNamespaces::new()?)))
    }

    /// Creates hosts on this machine's network.
    pub fn here() -> Self {
        // Ports below the ephemeral range, since a restarted host needs its own port again, and
        // different from the first ports of test servers. Runs side by side in one process search
        // apart: a host of one is not up yet when the other searches.
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let begin = std::process::id().wrapping_mul(97).wrapping_add(10_000);
        let begin = begin.wrapping_add(run.wrapping_mul(500));
        let ports = (0..20_000).map(|step| 10_000 + begin.wrapping_add(step) % 20_000);
        let ports = ports.filter_map(|port| u16::try_from(port).ok());
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let ports: Vec<u16> = ports.filter(is_free).take(HOSTS_HERE).collect();
        assert_eq!(ports.len(), HOSTS_HERE, "there are free ports");
        HostNetwork::Here(ports)
    }

    pub fn hosts(&self) -> usize {
        match self {
            HostNetwork::Spaces(_) => HOSTS,
            HostNetwork::Here(ports) => ports.len(),
        }
    }

    /// Returns the address and port of a host.
    pub fn address(&self, host: usize) -> (String, u16) {
        match self {
            HostNetwork::Spaces(ground) => (ground.address(host), PORT),
            HostNetwork::Here(ports) => (self.own_address(), ports[host - 1]),
        }
    }

    /// Returns the address of this machine that all hosts reach.
    pub fn own_address(&self) -> String {
        match self {
            HostNetwork::Spaces(ground) => ground.here(),
            HostNetwork::Here(_) => Ipv4Addr::LOCALHOST.to_string(),
        }
    }

    /// Returns a command of a program on a host.
    pub fn on(&self, host: usize, program: &Path) -> Command {
        match self {
            HostNetwork::Spaces(ground) => {
                let mut command = ground.on(host);
                command.arg(program);
                command
            }
            HostNetwork::Here(_) => Command::new(program),
        }
    }

    /// Returns all processes on a host whose containers are below `folder`.
    pub fn processes(&self, host: usize, folder: &Path) -> Vec<i32> {
        if let HostNetwork::Spaces(ground) = self {
            return ground.processes(host);
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_there = |pid: &i32| {
            let within: Option<PathBuf> = fs::read_link(format!("/proc/{pid}/cwd")).ok();
            within.is_some_and(|within| within.starts_with(folder))
        };
        pids.filter(is_there).collect()
    }

    /// Cuts or heals connections, see [`HostNamespaces::command`]. Does nothing without namespaces.
    pub fn command(&mut self, line: &str) {
        if let HostNetwork::Spaces(ground) = self {
            ground.command(line);
        }
    }
}
