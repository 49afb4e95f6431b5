//! `ardea list`: the jobs of a cluster.

use ardea_api::JobSummary;
use serde_json::json;

use crate::args::Where;
use crate::columns::table;
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::figures::since;
use crate::reach::Reached;
use crate::stdout;

/// Prints a line a job.
pub fn run(place: &Where, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of(place, context)?;
    let jobs = cluster.ask(cluster.client.list())?;
    if context.json {
        return stdout::print_json(&json!(jobs));
    }
    if jobs.is_empty() && !context.quiet {
        print_error(&format!("cluster {} has no jobs\n", cluster.settings.name));
    }
    match jobs.is_empty() {
        true => Ok(()),
        false => stdout::print(&jobs_table(&jobs)),
    }
}

/// The jobs, as people read them.
pub fn jobs_table(jobs: &[JobSummary]) -> String {
    let headings = ["job", "phase", "since", ">containers", ">up", ">instances"];
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.name.clone(),
                job.phase.as_str().to_string(),
                since(job.since_ms),
                job.container_count.to_string(),
                job.worker_count.to_string(),
                job.instance_count.to_string(),
            ]
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
