//! `plan`, `submit` and `upgrade`: a packaged job and a cluster.

use serde_json::json;

use super::{ClusterArgs, Context, SubmitOptions, UpgradeOptions};
use crate::console::Failure;
use crate::job::{
    Console, Prepared, RetainedSettings, SubmissionSpec, UPGRADE_TIMEOUT, connect, schema,
    submission_text, upgrade_text,
};

/// Prints the packing plan that a job would have, without contacting a cluster.
///
/// # Errors
/// As [`Prepared::of`].
pub fn plan(job: &SubmissionSpec, place: &ClusterArgs, context: &Context) -> Result<(), Failure> {
    let (resolved, cluster) = context.of_cluster(place)?;
    let plans = Prepared::of(job, &cluster, &resolved, &context.modules)?.plans();
    context.print(&plans, || json!(plans))
}

/// Submits a job, and waits until it runs unless it is detached.
///
/// # Errors
/// As [`Prepared::of`], [`connect`] and [`job::submit`](crate::job::submit()).
pub fn submit(
    mut job: SubmissionSpec,
    options: &SubmitOptions,
    context: &Context,
) -> Result<(), Failure> {
    job.name.clone_from(&options.name);
    job.files.extend(options.files.iter().cloned());
    let (resolved, cluster) = context.of_cluster(&options.place)?;
    let prepared = Prepared::of(&job, &cluster, &resolved, &context.modules)?;
    let target = connect(&cluster, &prepared.job().name, &context.modules)?;
    let patience = (!options.detach).then_some(cluster.patience);
    let mut console = Console::of_process(context.quiet || context.json);
    let submitted = crate::job::submit(&prepared, &target, patience, &mut |step| {
        console.show_step(&step);
    })?;
    console.clear();
    context.print_unless_quiet(&submission_text(&submitted), || json!(submitted))
}

/// Upgrades the job `name` to the program of `job`. Settings that are not given are those of the
/// running job.
///
/// # Errors
/// As [`Prepared::of`], [`connect`] and [`job::upgrade`](crate::job::upgrade()).
pub fn upgrade(
    mut job: SubmissionSpec,
    name: &str,
    options: &UpgradeOptions,
    context: &Context,
) -> Result<(), Failure> {
    job.name = Some(name.to_string());
    job.files.extend(options.files.iter().cloned());
    let (_, cluster) = context.of_cluster(&options.place)?;
    let target = connect(&cluster, name, &context.modules)?;
    let kept = RetainedSettings::of(&target, name, &schema())?;
    let (resolved, cluster) = context.of_cluster_over(Some(kept.file()), &options.place)?;
    let prepared = Prepared::of(&job, &cluster, &resolved, &context.modules)?;
    let patience = options.within.unwrap_or(UPGRADE_TIMEOUT);
    let mut console = Console::of_process(context.quiet || context.json);
    let mut upgraded =
        crate::job::upgrade(&prepared, &target, patience, !options.detach, &mut |step| {
            console.show_step(&step);
        })?;
    upgraded.kept_settings = kept.effective(&resolved);
    console.clear();
    context.print_unless_quiet(&upgrade_text(&upgraded), || json!(upgraded))
}
