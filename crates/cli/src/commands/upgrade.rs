//! `ardea upgrade`: has the program of a job on a cluster followed by another, with its state.

use ardea::cluster::Modules;
use ardea::job::{
    Console, KeptSettings, UPGRADES_WITHIN, connect, schema, told_of_upgrade, upgrade,
};
use serde_json::json;

use super::submit::{Own, become_program, shared_options};
use crate::args::UpgradeArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::stdout;

/// Upgrades to a topology or a job that comes with ardea; a program that is a job does it itself.
pub fn run(args: &UpgradeArgs, context: &Context) -> Result<(), Failure> {
    let name = Some(args.job.clone());
    let Some(own) = Own::find(&args.what, &args.args)? else {
        return Err(hand_over(args, context));
    };
    let cluster = context.cluster(&args.place)?;
    let target = connect(&cluster, &args.job, &Modules::builtin())?;
    let kept = KeptSettings::of(&*target, &args.job, &schema())?;
    let (resolved, cluster) = context.of_cluster_over(Some(kept.file()), &args.place)?;
    let prepared = own.prepared_with(&name, &args.files, &resolved, &cluster)?;
    let mut console = Console::of_process(context.quiet || context.json);
    let patience = args.within.unwrap_or(UPGRADES_WITHIN);
    let waits = !args.detach;
    let mut upgraded = upgrade(&prepared, &*target, patience, waits, &mut |step| {
        console.tell(&step)
    })?;
    upgraded.kept_settings = kept.counting(&resolved);
    console.clear();
    match context.json {
        true => stdout::print_json(&json!(upgraded)),
        false if context.quiet => Ok(()),
        false => stdout::print(&told_of_upgrade(&upgraded)),
    }
}

/// Becomes the program, told to follow the job; comes back only if that failed.
fn hand_over(args: &UpgradeArgs, context: &Context) -> Failure {
    let mut options = shared_options(&args.place, context);
    options.push(format!("--name={}", args.job));
    let files = args.files.iter();
    options.extend(files.map(|path| format!("--file={}", path.display())));
    let within = args.within.iter();
    options.extend(within.map(|within| format!("--within={}ms", within.as_millis())));
    options.extend(args.detach.then(|| "--detach".to_string()));
    become_program(&args.what, "upgrade", &options, &args.args)
}
