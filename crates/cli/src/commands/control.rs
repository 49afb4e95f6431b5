//! `ardea activate`, `deactivate`, `kill`, `restart` and `update`: what a job of a cluster is told.

use std::io::{self, BufRead, IsTerminal};
use std::time::Instant;

use ardea::job::Settling;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{
    ContainersUpdate, JobDescription, JobSummary, LogicalPlan, ParallelismUpdate, Phase,
    RecoverRequest,
};
use serde_json::json;

use crate::args::{KillArgs, RecoverArgs, RemoteJob, RescaleArgs, RestartArgs, UpdateArgs};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::Reached;
use crate::stdout;

/// Has the sources read again.
pub fn activate(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of_job(&args.place, &args.job, context)?;
    cluster.ask(cluster.client.activate(&args.job))?;
    let described = cluster.ask(cluster.client.describe(&args.job))?;
    let what = match described.summary.phase {
        Phase::SafeMode => "is in safe mode, and reads again by `ardea recover`",
        _ => "is activated",
    };
    tell(context, &args.job, what)
}

/// Has the sources read nothing.
pub fn deactivate(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of_job(&args.place, &args.job, context)?;
    cluster.ask(cluster.client.deactivate(&args.job))?;
    tell(
        context,
        &args.job,
        "is deactivated: its sources read nothing until it is activated",
    )
}

/// Ends the job for good. On a terminal it asks first.
pub fn kill(args: &KillArgs, context: &Context) -> Result<(), Failure> {
    let (name, place) = (&args.job.job, &args.job.place);
    let cluster = Reached::of_job(place, name, context)?;
    let described = cluster.ask(cluster.client.describe(name))?;
    let summary = &described.summary;
    if !args.yes && io::stdin().is_terminal() && !context.json {
        let question = format!(
            "kill {name} ({}, {} instances in {} containers) on cluster {}? [y/N] ",
            summary.phase.as_str(),
            summary.instance_count,
            summary.container_count,
            cluster.settings.name,
        );
        if !agrees(&question) {
            return tell(context, name, "was not killed");
        }
    }
    let submission = &summary.submission;
    cluster.ask(cluster.client.kill_submission(name, submission))?;
    if args.detach {
        return tell(context, name, "is being killed");
    }
    cluster.wait_until(&format!("the end of {name}"), || {
        let now = submission_of(&cluster, name, submission)?;
        Ok(now.is_none_or(|now| matches!(now.phase, Phase::Gone | Phase::Finished)))
    })?;
    tell(context, name, "is killed")
}

/// A submission of a job as it is now; nothing if it is no longer there.
fn submission_of(
    cluster: &Reached,
    job: &str,
    submission: &str,
) -> Result<Option<JobSummary>, Failure> {
    match cluster.ask(cluster.client.describe(job)) {
        Ok(now) => {
            let is_it = now.summary.submission == submission;
            Ok(is_it.then_some(now.summary))
        }
        Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Starts a container again.
pub fn restart(args: &RestartArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of_job(&args.place, &args.job, context)?;
    let container = ContainerId(args.container);
    cluster.ask(cluster.client.restart(&args.job, container))?;
    let what = format!("restarts container {container}");
    tell(context, &args.job, &what)
}

/// Has a job in safe mode begin again.
pub fn recover(args: &RecoverArgs, context: &Context) -> Result<(), Failure> {
    let job = &args.job.job;
    let cluster = Reached::of_job(&args.job.place, job, context)?;
    let request = RecoverRequest {
        from_epoch: args.from,
        from_nothing: args.from_nothing,
    };
    let before = cluster.ask(cluster.client.describe(job))?.summary;
    cluster.ask(cluster.client.recover(job, &request))?;
    if args.detach {
        return tell(context, job, "begins again");
    }
    let mut settling = Settling::again(&before);
    let mut outcome = None;
    cluster.wait_until(&format!("{job} to run"), || {
        outcome = match submission_of(&cluster, job, &before.submission)? {
            Some(now) => {
                let settled = settling.sees(&now, Instant::now());
                settled.map(|settled| settled.outcome(&now))
            }
            None => Some(Ok(Phase::Gone)),
        };
        Ok(outcome.is_some())
    })?;
    let what = match outcome.transpose()? {
        Some(Phase::Paused) => "is there again, and deactivated: its sources read nothing",
        Some(Phase::Finished | Phase::Killing | Phase::Gone) => "has begun again, and ended",
        _ => "runs again",
    };
    tell(context, job, what)
}

/// Gives vertices other numbers of instances.
pub fn update(args: &UpdateArgs, context: &Context) -> Result<(), Failure> {
    let update = ParallelismUpdate {
        parallelism: args
            .parallelism
            .iter()
            .chain(&args.named)
            .cloned()
            .collect(),
    };
    if update.parallelism.len() < args.parallelism.len() + args.named.len() {
        return Err(Failure::usage(
            "a vertex is named twice",
            "name each once: VERTEX=N",
        ));
    }
    let cluster = Reached::of_job(&args.place, &args.job, context)?;
    let graph = cluster.ask(cluster.client.plans(&args.job))?.logical;
    cluster.ask(cluster.client.update(&args.job, &update))?;
    let mut seen = None;
    if !args.detach {
        let has_all = |now: &JobDescription| {
            let mut asked = update.parallelism.iter();
            asked.all(|(name, count)| {
                let mut vertices = now.vertices.iter();
                vertices.any(|vertex| vertex.name == *name && vertex.parallelism == *count)
            })
        };
        let what = format!("the update of {}", args.job);
        seen = Some(until_followed(
            &cluster, &args.job, &what, has_all, context,
        )?);
    }
    let numbers: Vec<String> = update
        .parallelism
        .iter()
        .map(|(vertex, count)| format!("{vertex}={count}"))
        .collect();
    let verb = match seen {
        None => "is being updated",
        Some(Phase::SafeMode) => "is in safe mode, and updated by `ardea recover`",
        Some(_) => "is updated",
    };
    let mut what = format!("{verb}: {}", numbers.join(", "));
    let along = taken_along(&graph, &update);
    if !along.is_empty() {
        what += &format!("; with it, as they stay together: {}", along.join(", "));
    }
    tell(context, &args.job, &what)
}

/// Spreads a job over another number of workers.
pub fn rescale(args: &RescaleArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of_job(&args.place, &args.job, context)?;
    let update = ContainersUpdate {
        containers: args.workers,
    };
    cluster.ask(cluster.client.rescale(&args.job, &update))?;
    let mut seen = None;
    if !args.detach {
        let has = |now: &JobDescription| now.summary.container_count == args.workers;
        let what = format!("{} to be rescaled", args.job);
        seen = Some(until_followed(&cluster, &args.job, &what, has, context)?);
    }
    let what = match seen {
        None => format!("is being rescaled to {} workers", args.workers),
        Some(Phase::SafeMode) => "is in safe mode, and rescaled by `ardea recover`".to_string(),
        Some(_) => format!("is rescaled: it has {} workers", args.workers),
    };
    tell(context, &args.job, &what)
}

/// Waits until a job has what was asked for, and runs by that; says what that waits for. Fails if the job has gone back to what it was.
fn until_followed(
    cluster: &Reached,
    job: &str,
    what: &str,
    has: impl Fn(&JobDescription) -> bool,
    context: &Context,
) -> Result<Phase, Failure> {
    let (mut is_under_way, mut has_it, mut seen) = (false, false, Phase::Updating);
    let mut waited_for: Option<String> = None;
    cluster.wait_until(what, || {
        let now = cluster.ask(cluster.client.describe(job))?;
        (seen, has_it) = (now.summary.phase, has(&now));
        if seen == Phase::Updating {
            is_under_way = true;
            let reason = now.summary.reason;
            if reason.is_some() && reason != waited_for {
                if !context.quiet && !context.json {
                    print_error(&format!("waits: {}\n", reason.as_deref().unwrap_or("")));
                }
                waited_for = reason;
            }
        }
        Ok(match seen {
            Phase::Running | Phase::Paused => has_it || is_under_way,
            // It is followed when somebody has the job begin again.
            Phase::SafeMode => true,
            _ => false,
        })
    })?;
    if has_it || seen == Phase::SafeMode {
        return Ok(seen);
    }
    let failed = Error::new(
        ErrorCode::NoRoom,
        format!("job {job:?} has gone back to what it was; it had waited for this"),
    );
    let failed = match waited_for {
        Some(why) => failed.because(why),
        None => failed,
    };
    Err(failed
        .hint("nothing of it has been stopped: add a host, stop other jobs, or ask for less")
        .into())
}

/// The vertices that change with those that are named, each with its number.
fn taken_along(graph: &LogicalPlan, update: &ParallelismUpdate) -> Vec<String> {
    let mut along = Vec::new();
    for group in graph.groups() {
        let named = group.iter().find_map(|name| update.parallelism.get(*name));
        let others = group.iter();
        let others = others.filter(|name| !update.parallelism.contains_key(**name));
        along.extend(named.iter().flat_map(|count| {
            let others = others.clone();
            others.map(move |name| format!("{name}={count}"))
        }));
    }
    along
}

fn agrees(question: &str) -> bool {
    print_error(question);
    let mut answer = String::new();
    // What can't be read is no yes.
    let _ = io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}

fn tell(context: &Context, job: &str, what: &str) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&json!({ "job": job, "outcome": what }));
    }
    if !context.quiet {
        print_error(&format!("{job} {what}\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ardea_rest::LogicalVertex;

    use super::*;

    #[test]
    fn what_stays_together_with_a_named_vertex_is_told_unless_it_is_named_too() {
        let vertices = ["a", "b", "c", "d"].map(|name| LogicalVertex {
            name: name.into(),
            parallelism: 1,
            isolation: "tasklet".into(),
            together: (name != "d").then(|| "a".into()),
        });
        let graph = LogicalPlan {
            vertices: vertices.into(),
            edges: Vec::new(),
        };
        let along = |named: &[(&str, u32)]| {
            let named = named.iter().map(|(name, count)| (name.to_string(), *count));
            let parallelism: BTreeMap<String, u32> = named.collect();
            taken_along(&graph, &ParallelismUpdate { parallelism })
        };
        assert_eq!(along(&[("b", 3)]), ["a=3", "c=3"]);
        assert_eq!(along(&[("b", 3), ("c", 3), ("d", 2)]), ["a=3"]);
        assert!(along(&[("d", 2)]).is_empty());
    }
}
