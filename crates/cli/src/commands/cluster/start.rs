//! `ardea cluster start`: the host of a cluster on this machine.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ardea_api::ClusterSettings;
use ardea_core::{Error, ErrorCode};
use serde_json::json;

use crate::args::{ClusterStartArgs, Where};
use crate::cluster_process::{HostOptions, serve};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::run_file::{RunFile, log_path};
use crate::stdout;

/// How often it is looked whether the host is there.
const LOOK: Duration = Duration::from_millis(20);
/// How many of the last lines of its log are told of a host that ended at once.
const LAST_LINES: usize = 5;

/// Starts the host in the background and waits until it answers; or is the host.
pub fn run(args: &ClusterStartArgs, context: &Context) -> Result<(), Failure> {
    let place = Where {
        cluster: args.cluster.clone(),
        at: None,
    };
    let cluster = context.cluster(&place)?;
    if let Some(host) = RunFile::running(&cluster)? {
        return tell(&cluster, &host, "is up already", context);
    }
    if args.foreground {
        return be_the_host(&cluster, args, context);
    }
    let mut child = spawn(&cluster, args, context)?;
    let deadline = Instant::now() + cluster.patience;
    loop {
        if let Some(host) = RunFile::running(&cluster)? {
            return tell(&cluster, &host, "is up", context);
        }
        let ended = child.try_wait().map_err(|error| {
            Error::new(
                ErrorCode::ReadFailed,
                "cannot look after the host's process",
            )
            .because(error)
        })?;
        if ended.is_some() {
            // Somebody else's may have been quicker.
            if let Some(host) = RunFile::running(&cluster)? {
                return tell(&cluster, &host, "is up already", context);
            }
            return Err(ended_at_once(&cluster).into());
        }
        if Instant::now() >= deadline {
            // It would come up when nobody expects it any more.
            let _ = child.kill();
            let _ = child.wait();
            let what = format!(
                "the host of cluster {} did not come up within {} s",
                cluster.name,
                cluster.patience.as_secs_f64()
            );
            let hint = format!("{} says more", log_path(&cluster).display());
            return Err(Error::new(ErrorCode::StateUnavailable, what)
                .hint(hint)
                .into());
        }
        thread::sleep(LOOK);
    }
}

fn be_the_host(
    cluster: &ClusterSettings,
    args: &ClusterStartArgs,
    context: &Context,
) -> Result<(), Failure> {
    let options = HostOptions {
        workers: args.workers,
    };
    let watching = context.interrupts.watch();
    let mut outcome = Ok(());
    let mut own = None;
    let served = serve(
        cluster,
        options,
        &mut |api| {
            let host = RunFile::of_this_process(api);
            outcome = host.write(cluster);
            if outcome.is_ok() && !context.quiet {
                print_error(&format!("cluster {} is up: {api}\n", cluster.name));
            }
            own = Some(host);
        },
        &|| context.interrupts.count() > 0,
    );
    if let Some(host) = own {
        host.remove(cluster);
    }
    drop(watching);
    Ok(served.and(outcome)?)
}

/// The same command again, in the background: in a process group of its own, so that this terminal's Ctrl-C does not reach it.
fn spawn(
    cluster: &ClusterSettings,
    args: &ClusterStartArgs,
    context: &Context,
) -> Result<Child, Failure> {
    let log = open_log(cluster)?;
    let program = std::env::current_exe().map_err(|error| {
        Error::new(ErrorCode::ReadFailed, "cannot find this program's own file").because(error)
    })?;
    let mut command = Command::new(program);
    command.args(context.settings_options());
    command.args([
        "cluster",
        "start",
        "--foreground",
        "--cluster",
        &cluster.name,
    ]);
    command.args(args.workers.map(|count| format!("--workers={count}")));
    let (out, err) = (log.try_clone(), log);
    let out = out.map_err(|error| Failure::write("the host's log", error))?;
    command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0);
    let child = command.spawn().map_err(|error| {
        Error::new(ErrorCode::StartFailed, "cannot start the host's process")
            .because(error)
            .hint("check the limits of processes and memory (ulimit -u)")
    })?;
    Ok(child)
}

fn open_log(cluster: &ClusterSettings) -> Result<File, Failure> {
    let path = log_path(cluster);
    let folder = fs::create_dir_all(&cluster.directory);
    folder
        .and_then(|()| OpenOptions::new().create(true).append(true).open(&path))
        .map_err(|error| Failure::write(path.display().to_string(), error))
}

fn ended_at_once(cluster: &ClusterSettings) -> Error {
    let path = log_path(cluster);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    let what = format!("the host of cluster {} ended at once", cluster.name);
    Error::new(ErrorCode::StartFailed, what)
        .because(format!("it said:\n{last}\n"))
        .hint(format!("its log is {}", path.display()))
}

fn tell(
    cluster: &ClusterSettings,
    host: &RunFile,
    what: &str,
    context: &Context,
) -> Result<(), Failure> {
    if context.json {
        let name = &cluster.name;
        return stdout::print_json(&json!({ "cluster": name, "api": host.api, "pid": host.pid }));
    }
    if !context.quiet {
        print_error(&format!("cluster {} {what}: {}\n", cluster.name, host.api));
    }
    Ok(())
}
