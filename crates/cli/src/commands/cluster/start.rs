//! `ardea cluster start`: hosts of a cluster on this machine.

use ardea::cluster::{HostStart, Launcher, Modules, Started, host_process};
use ardea_api::ClusterSettings;
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
    if args.foreground {
        let name = args.name.clone().unwrap_or_else(own_name);
        let mut start = HostStart::of(name, &cluster, cluster.port);
        start.attributes.extend(args.attributes.iter().cloned());
        return be(start, context.quiet, Some(&cluster));
    }
    let launcher = Launcher::of(cluster.clone());
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
        if !started.is_empty() {
            say_other_port(&cluster, &apis);
        }
    }
    Ok(())
}

/// Says so if none of the hosts has the port that commands of people would try first, since something else has it.
fn say_other_port(cluster: &ClusterSettings, apis: &[&str]) {
    let port = cluster.port;
    let has_it = |api: &&str| api.ends_with(&format!(":{port}"));
    if !cluster.is_port_chosen && !apis.iter().any(has_it) {
        print_error(&format!(
            "port {port} is taken by something else: commands find the other one, and cluster.port chooses one\n"
        ));
    }
}

/// Is a host that was started by another process.
pub fn be_host(start: HostStart) -> Result<(), Failure> {
    // Refused to the leader of a process group, which no terminal's Ctrl-C reaches anyway.
    let _ = rustix::process::setsid();
    be(start, false, None)
}

fn be(start: HostStart, quiet: bool, cluster: Option<&ClusterSettings>) -> Result<(), Failure> {
    let name = start.name.clone();
    Ok(host_process(start, Modules::builtin(), |api| {
        if !quiet {
            print_error(&format!("host {name} is up: {api}\n"));
            if let Some(cluster) = cluster {
                say_other_port(cluster, &[api]);
            }
        }
    })?)
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
