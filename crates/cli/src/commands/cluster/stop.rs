//! `ardea cluster stop`: ends the host of a cluster on this machine.

use ardea_api::ClusterSettings;
use ardea_core::{Error, ErrorCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::args::{ClusterStopArgs, Where};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::Reached;
use crate::run_file::RunFile;
use crate::stdout;

/// Tells the host to end, and waits until it has.
pub fn run(args: &ClusterStopArgs, context: &Context) -> Result<(), Failure> {
    let mut place = Where {
        cluster: args.cluster.clone(),
        at: None,
    };
    let cluster = context.cluster(&place)?;
    let Some(host) = RunFile::running(&cluster)? else {
        return tell(&cluster, None, context);
    };
    place.at = Some(host.api.clone());
    let reached = Reached::of(&place, context);
    if args.kill_jobs {
        kill_jobs(reached.as_ref().map_err(Clone::clone)?)?;
    } else if let Ok(reached) = &reached {
        warn_of_jobs(reached, context);
    }
    let pid = i32::try_from(host.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid
        && host.is_running()
    {
        kill_process(pid, Signal::TERM).map_err(|error| {
            let what = format!("cannot end process {}", host.pid);
            Error::new(ErrorCode::WrongState, what)
                .because(std::io::Error::from(error))
                .hint("it may be another user's")
        })?;
    }
    wait(&cluster, &host)?;
    tell(&cluster, Some(&host), context)
}

fn wait(cluster: &ClusterSettings, host: &RunFile) -> Result<(), Failure> {
    let deadline = std::time::Instant::now() + cluster.patience;
    while host.is_running() {
        if std::time::Instant::now() >= deadline {
            let what = format!(
                "the host of cluster {} (process {}) has not ended after {} s",
                cluster.name,
                host.pid,
                cluster.patience.as_secs_f64()
            );
            let error = Error::new(ErrorCode::StateUnavailable, what);
            return Err(error
                .hint(format!("kill -9 {}; its jobs go on", host.pid))
                .into());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}

fn kill_jobs(cluster: &Reached) -> Result<(), Failure> {
    for job in cluster.ask(cluster.client.list())? {
        cluster.ask(cluster.client.kill(&job.name))?;
    }
    cluster.wait_until("the end of all jobs", || {
        Ok(cluster.ask(cluster.client.list())?.is_empty())
    })
}

/// Jobs that go on without a host are worth a word.
fn warn_of_jobs(cluster: &Reached, context: &Context) {
    let jobs = cluster.ask(cluster.client.list()).unwrap_or_default();
    if jobs.is_empty() || context.quiet || context.json {
        return;
    }
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    print_error(&format!(
        "these jobs go on, and nobody watches them on this machine until it is started again: {}\n",
        names.join(", ")
    ));
}

fn tell(
    cluster: &ClusterSettings,
    host: Option<&RunFile>,
    context: &Context,
) -> Result<(), Failure> {
    if context.json {
        let pid = host.map(|host| host.pid);
        return stdout::print_json(&json!({ "cluster": cluster.name, "stopped": pid }));
    }
    let what = match host {
        Some(_) => "is stopped on this machine",
        None => "is not up on this machine",
    };
    if !context.quiet {
        print_error(&format!("cluster {} {what}\n", cluster.name));
    }
    Ok(())
}
