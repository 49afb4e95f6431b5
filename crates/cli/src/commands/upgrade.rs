//! `ardea upgrade`: upgrades a job on a cluster to another program, keeping its state.

use ardea::cluster::Modules;
use ardea::job::{
    Console, RetainedSettings, UPGRADE_TIMEOUT, connect, schema, upgrade, upgrade_text,
};
use serde_json::json;

use super::submit::{BuiltinJob, become_program, shared_options};
use crate::args::UpgradeArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// Upgrades to a job that comes with ardea, with ardea as its program. A job program upgrades by
/// itself.
pub fn run(args: &UpgradeArgs, context: &Context) -> Result<(), Failure> {
    let name = Some(args.job.clone());
    let Some(own) = BuiltinJob::find(&args.what, &args.args)? else {
        return Err(delegate(args, context));
    };
    let cluster = context.cluster(&args.place)?;
    let target = connect(&cluster, &args.job, &Modules::builtin())?;
    let kept = RetainedSettings::of(&*target, &args.job, &schema())?;
    let (resolved, cluster) = context.of_cluster_over(Some(kept.file()), &args.place)?;
    let prepared = own.prepared_with(&name, &args.files, &resolved, &cluster)?;
    let mut console = Console::of_process(context.quiet || context.json);
    let patience = args.within.unwrap_or(UPGRADE_TIMEOUT);
    let waits = !args.detach;
    let mut upgraded = upgrade(&prepared, &*target, patience, waits, &mut |step| {
        console.show_step(&step)
    })?;
    upgraded.kept_settings = kept.effective(&resolved);
    console.clear();
    match context.json {
        true => stdout::print_json(&json!(upgraded)),
        false if context.quiet => Ok(()),
        false => stdout::print(&upgrade_text(&upgraded)),
    }
}

/// Replaces this process by the program, which performs the upgrade; returns only on failure.
fn delegate(args: &UpgradeArgs, context: &Context) -> Failure {
    let mut options = shared_options(&args.place, context);
    options.push(format!("--name={}", args.job));
    let files = args.files.iter();
    options.extend(files.map(|path| format!("--file={}", path.display())));
    let within = args.within.iter();
    options.extend(within.map(|within| format!("--within={}ms", within.as_millis())));
    options.extend(args.detach.then(|| "--detach".to_string()));
    become_program(&args.what, "upgrade", &options, &args.args)
}
