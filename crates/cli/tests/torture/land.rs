//! Where the hosts of the cluster are: network namespaces, which can be cut off from each other, or all of them on this machine.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use ardea_metastore::conformance::Skipped;

use crate::ground::{Ground, HOSTS};

/// How many hosts there are where all are on this machine.
const HOSTS_HERE: usize = 3;

/// Where a host's interface listens that has an address of its own.
const PORT: u16 = 7400;

/// The hosts, from 1 on.
pub enum Land {
    /// Each has a network of its own.
    Spaces(Box<Ground>),
    /// They share this machine's, and listen on these ports.
    Here(Vec<u16>),
}

impl Land {
    /// With networks of their own.
    pub fn spaces() -> Result<Self, Skipped> {
        Ok(Land::Spaces(Box::new(Ground::new()?)))
    }

    /// On this machine.
    pub fn here() -> Self {
        // Below those that outgoing connections have, since a host that is started again needs its own; and apart from where servers
        // of tests begin to look for theirs.
        let begin = std::process::id().wrapping_mul(97).wrapping_add(10_000);
        let ports = (0..20_000).map(|step| 10_000 + begin.wrapping_add(step) % 20_000);
        let ports = ports.filter_map(|port| u16::try_from(port).ok());
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let ports: Vec<u16> = ports.filter(is_free).take(HOSTS_HERE).collect();
        assert_eq!(ports.len(), HOSTS_HERE, "there are free ports");
        Land::Here(ports)
    }

    pub fn hosts(&self) -> usize {
        match self {
            Land::Spaces(_) => HOSTS,
            Land::Here(ports) => ports.len(),
        }
    }

    /// Where a host listens: address and port.
    pub fn address(&self, host: usize) -> (String, u16) {
        match self {
            Land::Spaces(ground) => (ground.address(host), PORT),
            Land::Here(ports) => (self.own_address(), ports[host - 1]),
        }
    }

    /// The address of this machine, for all hosts.
    pub fn own_address(&self) -> String {
        match self {
            Land::Spaces(ground) => ground.here(),
            Land::Here(_) => Ipv4Addr::LOCALHOST.to_string(),
        }
    }

    /// A program that runs on a host.
    pub fn on(&self, host: usize, program: &Path) -> Command {
        match self {
            Land::Spaces(ground) => {
                let mut command = ground.on(host);
                command.arg(program);
                command
            }
            Land::Here(_) => Command::new(program),
        }
    }

    /// All processes on a host, whose containers are below that folder.
    pub fn processes(&self, host: usize, folder: &Path) -> Vec<i32> {
        if let Land::Spaces(ground) = self {
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

    /// Cuts or heals, as [`Ground::command`] says. Only namespaces can be.
    pub fn command(&mut self, line: &str) {
        if let Land::Spaces(ground) = self {
            ground.command(line);
        }
    }
}
