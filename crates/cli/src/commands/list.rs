//! `ardea list`: the jobs of a cluster.

use std::time::Duration;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::command_line::OfflineCluster;
use ardea::console::format_number::{counted, duration, moment, since};
use ardea::console::{Failure, print_error};
use ardea_rest::{JobSummary, PastJobSummary, ProblemView};
use serde_json::json;

use crate::args::ListArgs;
use crate::columns::table;
use crate::stdout;

/// The maximum number of characters of a problem in a line; `describe` shows all of it.
const MAX_PROBLEM_CHARS: usize = 80;

/// Prints one line per job.
pub fn run(args: &ListArgs, context: &Context) -> Result<(), Failure> {
    let cluster = match ClusterConnection::of(&args.place, context) {
        Ok(cluster) => cluster,
        Err(failure) if args.all => return print_stored(args, context, failure),
        Err(failure) => return Err(failure),
    };
    let jobs = cluster.wait_for(cluster.client.list())?;
    let past = match args.all {
        true => cluster.wait_for(cluster.client.past_jobs())?,
        false => Vec::new(),
    };
    if jobs.is_empty() && !context.quiet && !context.json {
        print_error(&format!("cluster {} has no jobs\n", cluster.settings.name));
    }
    show(args, &jobs, &past, context)
}

/// Prints the records in the metadata store while no host is up.
fn print_stored(args: &ListArgs, context: &Context, failure: Failure) -> Result<(), Failure> {
    let remembered = OfflineCluster::after_failure(&args.place, context, failure)?;
    let jobs = remembered.wait_for(remembered.cluster.list())?;
    let past = remembered.wait_for(remembered.cluster.past_jobs())?;
    if jobs.is_empty() && past.is_empty() {
        return Err(remembered.failure);
    }
    remembered.print_origin(context);
    show(args, &jobs, &past, context)
}

fn show(
    args: &ListArgs,
    jobs: &[JobSummary],
    past: &[PastJobSummary],
    context: &Context,
) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&match args.all {
            true => json!({ "jobs": jobs, "past": past }),
            false => json!(jobs),
        });
    }
    let mut text = String::new();
    if !jobs.is_empty() {
        text += &jobs_table(jobs, args.all);
    }
    if !past.is_empty() {
        let between = if text.is_empty() { "" } else { "\n" };
        text += &format!("{between}past jobs, the latest first\n{}", past_table(past));
    }
    match text.is_empty() {
        true => Ok(()),
        false => stdout::print(&text),
    }
}

/// Formats the jobs as a table, with their submissions if other jobs of the same names are shown
/// too.
pub fn jobs_table(jobs: &[JobSummary], with_submissions: bool) -> String {
    let mut headings = vec![
        "job",
        "phase",
        "since",
        ">containers",
        ">up",
        ">instances",
        "problems",
    ];
    if with_submissions {
        headings.insert(1, "submission");
    }
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            let mut row = vec![
                job.name.clone(),
                job.phase.as_str().to_string(),
                since(job.since_ms),
                job.container_count.to_string(),
                up(job),
                job.instance_count.to_string(),
                problems(job),
            ];
            if with_submissions {
                row.insert(1, job.submission.clone());
            }
            row
        })
        .collect();
    let mut text = table(&headings, &rows);
    for job in jobs {
        if let Some(reason) = &job.reason {
            text += &format!("{}: {reason}\n", job.name);
        }
    }
    text
}

/// Returns the number of containers that are up, as text; the number is unknown during a change of
/// leader.
fn up(job: &JobSummary) -> String {
    match job.leader_changes {
        true => "–".to_string(),
        false => job.worker_count.to_string(),
    }
}

/// Returns a job's problems in a line, empty if there are none. The reason of its phase is printed
/// below the table.
fn problems(job: &JobSummary) -> String {
    let restarting = (job.restarting_count > 0)
        .then(|| format!("{} restarting", counted(job.restarting_count, "container")));
    let last = job.last_problem.as_ref();
    let last = last.map(|last| format!("{} ago: {}", since(last.at_ms), in_short(last)));
    let told = [restarting, last].into_iter().flatten();
    told.collect::<Vec<_>>().join("; ")
}

fn in_short(problem: &ProblemView) -> String {
    let message = &problem.message;
    let short = match message.char_indices().nth(MAX_PROBLEM_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.clone(),
    };
    format!("{}: {short}", problem.instance)
}

fn past_table(past: &[PastJobSummary]) -> String {
    let headings = [
        "job",
        "submission",
        "ended",
        "at",
        "after",
        ">containers",
        ">instances",
        "last problem",
    ];
    let rows: Vec<Vec<String>> = past
        .iter()
        .map(|past| {
            vec![
                past.name.clone(),
                past.submission.clone(),
                past.ending.as_str().to_string(),
                moment(past.ended_ms),
                lasted(past),
                past.container_count.to_string(),
                past.instance_count.to_string(),
                past.last_problem.as_ref().map(in_short).unwrap_or_default(),
            ]
        })
        .collect();
    table(&headings, &rows)
}

/// Returns the lifetime of a past job.
pub fn lasted(past: &PastJobSummary) -> String {
    let millis = past.ended_ms.saturating_sub(past.submitted_ms);
    duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_rest::Phase;

    #[test]
    fn what_is_wrong_with_a_job_stands_in_its_line_in_short() {
        let mut job = JobSummary {
            name: "bad".into(),
            submission: "1".into(),
            phase: Phase::Recovering,
            reason: None,
            since_ms: 0,
            container_count: 3,
            worker_count: 1,
            instance_count: 3,
            version: "0".into(),
            restarting_count: 2,
            leader_changes: false,
            last_problem: Some(ProblemView {
                instance: "lines#0".into(),
                count: 7,
                at_ms: u64::MAX,
                message: format!("ARD-301: {}", "ü".repeat(100)),
            }),
        };
        let told = problems(&job);
        let begin = "2 containers restarting; 0 µs ago: lines#0: ARD-301: ü";
        assert!(told.starts_with(begin) && told.ends_with("ü…"), "{told}");
        job.restarting_count = 0;
        job.last_problem = None;
        assert_eq!(problems(&job), "");
        job.reason = Some("it has no master".into());
        let table = jobs_table(&[job], false);
        assert_eq!(table.matches("it has no master").count(), 1, "{table}");
        assert!(table.ends_with("\nbad: it has no master\n"), "{table}");
    }
}
