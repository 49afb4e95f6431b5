//! `ardea cluster start`: hosts of a cluster on this machine.

use ardea::cluster::{HostStart, Launcher, RunningHost, host_process};
use ardea::command_line::{ClusterArgs, Context};
use ardea::console::{Failure, MessageKind, print_error, print_notice};
use ardea::job::schema;
use ardea_config::{Origin, Resolved};
use ardea_rest::is_host_setting;
use serde_json::json;

use super::hosts_json;
use crate::args::ClusterStartArgs;
use crate::commands::settings_check;
use crate::stdout;

/// Starts hosts in the background and waits until they answer, or runs one in the foreground.
pub fn run(args: &ClusterStartArgs, context: &Context) -> Result<(), Failure> {
    let place = ClusterArgs {
        cluster: args.cluster.clone(),
        at: None,
    };
    let (resolved, cluster) = context.of_cluster(&place)?;
    settings_check::check(&resolved, &cluster, context)?;
    if let Some(told) = of_jobs(&resolved) {
        print_notice(MessageKind::Warning, &told, context.json);
    }
    let launcher = Launcher::of(cluster.clone());
    if args.foreground {
        let name = args.name.clone().unwrap_or_else(own_name);
        let mut start = HostStart::of(name, &cluster, cluster.port);
        start.attributes.extend(args.attributes.iter().cloned());
        host_process(start, context.modules.clone(), |host| {
            if !context.quiet {
                print_error(&format!("host {} is up: {}\n", host.name, host.api));
                print_taken_port(std::slice::from_ref(host), &launcher.running());
            }
        })?;
        return Ok(());
    }
    let started = launcher.start(args.workers as usize)?;
    let running: Vec<RunningHost> = launcher.running();
    let general: Vec<RunningHost> = running
        .into_iter()
        .filter(|host| host.job.is_none())
        .collect();
    if let Some(told) = without_effect(&resolved, &started, &general) {
        print_notice(MessageKind::Warning, &told, context.json);
    }
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
        print_taken_port(&started, &general);
    }
    Ok(())
}

/// Returns the settings from the command line that satisfy `is_meant`.
fn flags_matching(resolved: &Resolved, is_meant: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let keys = schema();
    let keys = keys.settings().iter().map(|setting| setting.key);
    keys.filter(|key| resolved.origin(key) == Some(&Origin::Flag) && is_meant(key))
        .collect()
}

/// Returns a warning if settings of the command line do not apply to hosts. Settings from files and
/// the environment cause no warning, since they may be for other commands.
fn of_jobs(resolved: &Resolved) -> Option<String> {
    // These two settings apply to commands, including this one.
    const OF_COMMANDS: [&str; 2] = ["cluster.api", "cluster.patience"];
    let keys = flags_matching(resolved, |key| {
        !is_host_setting(key) && !OF_COMMANDS.contains(&key)
    });
    let verb = if keys.len() == 1 { "means" } else { "mean" };
    (!keys.is_empty()).then(|| {
        let keys = keys.join(", ");
        format!("{keys} {verb} nothing to a host: set it where a job is submitted")
    })
}

/// Returns a warning if the hosts were up already, so that settings of the command line had no
/// effect.
fn without_effect(
    resolved: &Resolved,
    started: &[RunningHost],
    running: &[RunningHost],
) -> Option<String> {
    // These two settings select a cluster and do not change one.
    const WHICH: [&str; 2] = ["cluster.name", "cluster.directory"];
    let port = resolved.count("cluster.port").unwrap_or_default();
    let has_port = |host: &RunningHost| host.api.ends_with(&format!(":{port}"));
    let keys = flags_matching(resolved, |key| {
        let is_so = key == "cluster.port" && running.iter().any(has_port);
        is_host_setting(key) && !WHICH.contains(&key) && !is_so
    });
    (started.is_empty() && !keys.is_empty()).then(|| {
        format!(
            "{} had no effect, since the hosts are already up and read settings only when they start: run `ardea cluster stop`, which leaves jobs running, and start them again",
            keys.join(", ")
        )
    })
}

/// Prints a notice if none of the cluster's hosts here has the configured port, because it was in
/// use.
fn print_taken_port(started: &[RunningHost], running: &[RunningHost]) {
    if let Some(port) = taken_port(started, running) {
        print_error(&format!(
            "port {port} is in use, so the host uses another one, which commands find; cluster.port selects a port\n"
        ));
    }
}

fn taken_port(started: &[RunningHost], running: &[RunningHost]) -> Option<u16> {
    let port = started.iter().find_map(|host| host.taken_port)?;
    let has_it = |host: &RunningHost| host.api.ends_with(&format!(":{port}"));
    (!running.iter().any(has_it)).then_some(port)
}

/// Returns the name of this machine.
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
    use ardea_config::Resolver;

    use super::*;

    fn host(port: u16, taken_port: Option<u16>) -> RunningHost {
        RunningHost {
            name: "quay".into(),
            api: format!("http://127.0.0.1:{port}"),
            taken_port,
            pid: 1,
            job: None,
        }
    }

    #[test]
    fn what_a_host_is_told_in_vain_is_said() {
        let schema = schema();
        let of = |flags: &[&'static str]| {
            let resolver = Resolver::new(&schema).environment([("ARDEA_THREADS", "2")]);
            resolver.flags(flags.iter().copied()).resolve().unwrap()
        };
        let plain = of(&[
            "cluster.name=harbour",
            "cluster.port=7412",
            "cluster.patience=5s",
        ]);
        assert_eq!(of_jobs(&plain), None);
        let jobs = of(&[
            "cluster.packing=binpack",
            "worker.ports=7500",
            "cluster.port=0",
        ]);
        let told = of_jobs(&jobs).unwrap();
        assert!(
            told.starts_with("worker.ports, cluster.packing mean nothing to a host"),
            "{told}"
        );

        let (up, here) = (host(7411, None), host(7412, None));
        let one = std::slice::from_ref(&up);
        assert_eq!(without_effect(&plain, one, one), None);
        assert_eq!(without_effect(&plain, &[], &[up.clone(), here]), None);
        let told = without_effect(&plain, &[], &[up]).unwrap();
        assert!(told.starts_with("cluster.port had no effect"), "{told}");
    }

    #[test]
    fn a_port_is_told_to_be_taken_only_by_what_is_no_host_of_the_cluster() {
        let (first, wide) = (host(7400, None), host(7401, None));
        let late = host(7402, Some(7400));
        let told = |started: &RunningHost, running: &[&RunningHost]| {
            let running: Vec<RunningHost> = running.iter().map(|host| (*host).clone()).collect();
            taken_port(std::slice::from_ref(started), &running)
        };
        assert_eq!(told(&late, &[&late]), Some(7400));
        assert_eq!(told(&late, &[&wide, &late]), Some(7400));
        assert_eq!(told(&late, &[&first, &late]), None, "a host of its own");
        assert_eq!(told(&wide, &[&wide]), None, "nobody tried it");
    }
}
