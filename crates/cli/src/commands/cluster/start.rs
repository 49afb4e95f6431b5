//! `ardea cluster start`: hosts of a cluster on this machine.

use ardea::cluster::{HostStart, Launcher, Modules, Started, host_process};
use serde_json::json;

use super::hosts_json;
use crate::args::{ClusterStartArgs, Where};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::stdout;

/// Starts hosts in the background and waits until they answer; or is one.
pub fn run(args: &ClusterStartArgs, context: &Context) -> Result<(), Failure> {
    let place = Where {
        cluster: args.cluster.clone(),
        at: None,
    };
    let cluster = context.cluster(&place)?;
    let launcher = Launcher::of(cluster.clone());
    if args.foreground {
        let name = args.name.clone().unwrap_or_else(own_name);
        let mut start = HostStart::of(name, &cluster, cluster.port);
        start.attributes.extend(args.attributes.iter().cloned());
        return be(start, |host| {
            if !context.quiet {
                say_up(host);
                say_taken_port(std::slice::from_ref(host), &launcher.running());
            }
        });
    }
    let started = launcher.start(args.workers as usize)?;
    let running: Vec<Started> = launcher.running();
    let general: Vec<Started> = running
        .into_iter()
        .filter(|host| host.job.is_none())
        .collect();
    if context.json {
        let hosts = hosts_json(&general);
        return stdout::print_json(&json!({ "cluster": cluster.name, "hosts": hosts }));
    }
    if !context.quiet {
        let what = match started.len() {
            0 => "is up already",
            _ => "is up",
        };
        let apis: Vec<&str> = general.iter().map(|host| host.api.as_str()).collect();
        print_error(&format!(
            "cluster {} {what}: {}\n",
            cluster.name,
            apis.join(", ")
        ));
        say_taken_port(&started, &general);
    }
    Ok(())
}

/// Says so if none of the cluster's hosts here has the port that commands of people would try first, since one that was started found
/// it taken.
fn say_taken_port(started: &[Started], running: &[Started]) {
    if let Some(port) = taken_port(started, running) {
        print_error(&format!(
            "port {port} is taken by something else: commands find the other one, and cluster.port chooses one\n"
        ));
    }
}

fn taken_port(started: &[Started], running: &[Started]) -> Option<u16> {
    let port = started.iter().find_map(|host| host.taken_port)?;
    let has_it = |host: &Started| host.api.ends_with(&format!(":{port}"));
    (!running.iter().any(has_it)).then_some(port)
}

/// Is a host that was started by another process.
pub fn be_host(start: HostStart) -> Result<(), Failure> {
    // Refused to the leader of a process group, which no terminal's Ctrl-C reaches anyway.
    let _ = rustix::process::setsid();
    be(start, say_up)
}

fn be(start: HostStart, ready: impl FnOnce(&Started) + Send) -> Result<(), Failure> {
    Ok(host_process(start, Modules::builtin(), ready)?)
}

fn say_up(host: &Started) {
    print_error(&format!("host {} is up: {}\n", host.name, host.api));
}

/// What this machine is called.
fn own_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    match name.is_empty() {
        true => "host".into(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(port: u16, taken_port: Option<u16>) -> Started {
        Started {
            name: "quay".into(),
            api: format!("http://127.0.0.1:{port}"),
            taken_port,
            pid: 1,
            job: None,
        }
    }

    #[test]
    fn a_port_is_told_to_be_taken_only_by_what_is_no_host_of_the_cluster() {
        let (first, wide) = (host(7400, None), host(7401, None));
        let late = host(7402, Some(7400));
        let told = |started: &Started, running: &[&Started]| {
            let running: Vec<Started> = running.iter().map(|host| (*host).clone()).collect();
            taken_port(std::slice::from_ref(started), &running)
        };
        assert_eq!(told(&late, &[&late]), Some(7400));
        assert_eq!(told(&late, &[&wide, &late]), Some(7400));
        assert_eq!(told(&late, &[&first, &late]), None, "a host of its own");
        assert_eq!(told(&wide, &[&wide]), None, "nobody tried it");
    }
}
