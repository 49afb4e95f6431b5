//! `ardea pause`, `resume`, `kill`, `restart`, `recover` and `rescale`: commands to a job of a
//! cluster.

use std::io::{self, BufRead, IsTerminal};
use std::time::Instant;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea::job::StartupWatch;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{
    ContainersUpdate, JobDescription, JobSummary, LogicalPlan, ParallelismUpdate, Phase,
    RecoverRequest,
};

use crate::args::{KillArgs, RecoverArgs, RemoteJob, RescaleArgs, RestartArgs};

/// Resumes the sources.
pub fn resume(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, &args.job, context)?;
    cluster.wait_for(cluster.client.resume(&args.job))?;
    let described = cluster.wait_for(cluster.client.describe(&args.job))?;
    let what = match described.summary.phase {
        Phase::SafeMode => "is in safe mode: its sources read again after `ardea recover`",
        _ => "is resumed",
    };
    context.print_outcome("job", &args.job, what)
}

/// Pauses the sources.
pub fn pause(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, &args.job, context)?;
    cluster.wait_for(cluster.client.pause(&args.job))?;
    context.print_outcome(
        "job",
        &args.job,
        "is paused: its sources read nothing until it is resumed",
    )
}

/// Stops the job for good, after a confirmation on a terminal.
pub fn kill(args: &KillArgs, context: &Context) -> Result<(), Failure> {
    let (name, place) = (&args.job.job, &args.job.place);
    let cluster = ClusterConnection::of_job(place, name, context)?;
    let described = cluster.wait_for(cluster.client.describe(name))?;
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
            return context.print_outcome("job", name, "was not killed");
        }
    }
    let submission = &summary.submission;
    cluster.wait_for(cluster.client.kill_submission(name, submission))?;
    if args.detach {
        return context.print_outcome("job", name, "is being killed");
    }
    cluster.wait_until(&format!("the end of {name}"), || {
        let now = submission_of(&cluster, name, submission)?;
        Ok(now.is_none_or(|now| matches!(now.phase, Phase::Gone | Phase::Finished)))
    })?;
    context.print_outcome("job", name, "is killed")
}

/// Returns the current summary of a submission of a job; `None` if the submission is gone.
fn submission_of(
    cluster: &ClusterConnection,
    job: &str,
    submission: &str,
) -> Result<Option<JobSummary>, Failure> {
    match cluster.wait_for(cluster.client.describe(job)) {
        Ok(now) => {
            let is_it = now.summary.submission == submission;
            Ok(is_it.then_some(now.summary))
        }
        Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Restarts a container.
pub fn restart(args: &RestartArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, &args.job, context)?;
    let container = ContainerId(args.container);
    cluster.wait_for(cluster.client.restart(&args.job, container))?;
    let what = format!("restarts container {container}");
    context.print_outcome("job", &args.job, &what)
}

/// Restarts a job in safe mode.
pub fn recover(args: &RecoverArgs, context: &Context) -> Result<(), Failure> {
    let job = &args.job.job;
    let cluster = ClusterConnection::of_job(&args.job.place, job, context)?;
    let request = RecoverRequest {
        from_epoch: args.from,
        from_nothing: args.from_nothing,
    };
    let before = cluster.wait_for(cluster.client.describe(job))?.summary;
    cluster.wait_for(cluster.client.recover(job, &request))?;
    if args.detach {
        return context.print_outcome("job", job, "is being restarted");
    }
    let mut settling = StartupWatch::again(&before);
    let mut outcome = None;
    cluster.wait_until(&format!("{job} to run"), || {
        outcome = match submission_of(&cluster, job, &before.submission)? {
            Some(now) => {
                let settled = settling.update(&now, Instant::now());
                settled.map(|settled| settled.outcome(&now))
            }
            None => Some(Ok(Phase::Gone)),
        };
        Ok(outcome.is_some())
    })?;
    let what = match outcome.transpose()? {
        Some(Phase::Paused) => "runs again, and is paused: its sources read nothing",
        Some(Phase::Finished | Phase::Killing | Phase::Gone) => "was restarted, and has ended",
        _ => "runs again",
    };
    context.print_outcome("job", job, what)
}

/// Changes the parallelism of vertices, or the number of workers.
pub fn rescale(args: &RescaleArgs, context: &Context) -> Result<(), Failure> {
    match args.workers {
        Some(workers) => rescale_workers(args, workers, context),
        None => rescale_vertices(args, context),
    }
}

fn rescale_vertices(args: &RescaleArgs, context: &Context) -> Result<(), Failure> {
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
    let cluster = ClusterConnection::of_job(&args.place, &args.job, context)?;
    let graph = cluster.wait_for(cluster.client.plans(&args.job))?.logical;
    cluster.wait_for(cluster.client.update(&args.job, &update))?;
    let mut seen = None;
    if !args.detach {
        let has_all = |now: &JobDescription| {
            let mut asked = update.parallelism.iter();
            asked.all(|(name, count)| {
                let mut vertices = now.vertices.iter();
                vertices.any(|vertex| vertex.name == *name && vertex.parallelism == *count)
            })
        };
        let what = format!("the rescale of {}", args.job);
        seen = Some(wait_for_plan(&cluster, &args.job, &what, has_all, context)?);
    }
    let numbers: Vec<String> = update
        .parallelism
        .iter()
        .map(|(vertex, count)| format!("{vertex}={count}"))
        .collect();
    let verb = match seen {
        None => "is being rescaled",
        Some(Phase::SafeMode) => {
            "is in safe mode, and is rescaled when `ardea recover` restarts it"
        }
        Some(_) => "is rescaled",
    };
    let mut what = format!("{verb}: {}", numbers.join(", "));
    let along = grouped_vertices(&graph, &update);
    if !along.is_empty() {
        what += &format!(
            "; these vertices stay together with it and change as well: {}",
            along.join(", ")
        );
    }
    context.print_outcome("job", &args.job, &what)
}

fn rescale_workers(args: &RescaleArgs, workers: u32, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.place, &args.job, context)?;
    let update = ContainersUpdate {
        containers: workers,
    };
    cluster.wait_for(cluster.client.rescale(&args.job, &update))?;
    let mut seen = None;
    if !args.detach {
        let has = |now: &JobDescription| now.summary.container_count == workers;
        let what = format!("{} to be rescaled", args.job);
        seen = Some(wait_for_plan(&cluster, &args.job, &what, has, context)?);
    }
    let what = match seen {
        None => format!("is being rescaled to {workers} workers"),
        Some(Phase::SafeMode) => {
            "is in safe mode, and is rescaled when `ardea recover` restarts it".to_string()
        }
        Some(_) => format!("is rescaled: it has {workers} workers"),
    };
    context.print_outcome("job", &args.job, &what)
}

/// Waits until a job has the requested plan and runs; prints what the job waits for. Fails if the
/// change was rolled back.
fn wait_for_plan(
    cluster: &ClusterConnection,
    job: &str,
    what: &str,
    has: impl Fn(&JobDescription) -> bool,
    context: &Context,
) -> Result<Phase, Failure> {
    let (mut is_under_way, mut has_it, mut seen) = (false, false, Phase::Updating);
    let mut waited_for: Option<String> = None;
    cluster.wait_until(what, || {
        let now = cluster.wait_for(cluster.client.describe(job))?;
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
            // The plan takes effect when the user recovers the job.
            Phase::SafeMode => true,
            _ => false,
        })
    })?;
    if has_it || seen == Phase::SafeMode {
        return Ok(seen);
    }
    let failed = Error::new(
        ErrorCode::NoRoom,
        format!(
            "the change of job {job:?} was rolled back, since it could not be completed in time"
        ),
    );
    let failed = match waited_for {
        Some(why) => failed.because(why),
        None => failed,
    };
    Err(failed
        .hint("nothing was stopped: add a host, stop other jobs, or request less")
        .into())
}

/// Returns the vertices that change together with those of `update`, each as `NAME=PARALLELISM`.
fn grouped_vertices(graph: &LogicalPlan, update: &ParallelismUpdate) -> Vec<String> {
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
    // An unreadable answer counts as no.
    let _ = io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
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
            grouped_vertices(&graph, &ParallelismUpdate { parallelism })
        };
        assert_eq!(along(&[("b", 3)]), ["a=3", "c=3"]);
        assert_eq!(along(&[("b", 3), ("c", 3), ("d", 2)]), ["a=3"]);
        assert!(along(&[("d", 2)]).is_empty());
    }
}
