//! `ardea describe`: all that is known of a job.

use ardea_api::JobDescription;
use serde_json::json;

use crate::args::RemoteJob;
use crate::columns::table;
use crate::context::Context;
use crate::failure::Failure;
use crate::figures::{moment, since};
use crate::reach::Reached;
use crate::stdout;

/// How many of the latest notes are shown unless all are asked for.
const NOTES: usize = 10;

/// Prints the description: paragraphs and tables, or an object.
pub fn run(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of(&args.place, context)?;
    let job = cluster.ask(cluster.client.describe(&args.job))?;
    if context.json {
        return stdout::print_json(&json!(job));
    }
    stdout::print(&text(&job, context.verbose))
}

fn text(job: &JobDescription, is_verbose: bool) -> String {
    let mut text = head(job);
    text += "\nvertices\n";
    let vertices = job.vertices.iter().map(|vertex| {
        vec![
            format!("  {}", vertex.name),
            vertex.parallelism.to_string(),
            vertex.resources.to_string(),
            vertex.restarts.to_string(),
            vertex.exceptions.to_string(),
        ]
    });
    text += &table(
        &["  name", ">instances", "each", ">restarts", ">exceptions"],
        &vertices.collect::<Vec<_>>(),
    );
    text += "\ncontainers\n";
    let containers = job.containers.iter().map(|container| {
        vec![
            format!("  {}", container.id),
            container.state.as_str().to_string(),
            container.host.clone().unwrap_or_default(),
            container.heard_ms.map(since).unwrap_or_default(),
            container.restarts.to_string(),
            container.instances.join(" "),
        ]
    });
    let headings = [
        "  number",
        "state",
        "host",
        "heard",
        ">restarts",
        "instances",
    ];
    text += &table(&headings, &containers.collect::<Vec<_>>());
    if !job.problems.is_empty() {
        text += "\nproblems\n";
        let problems = job.problems.iter().map(|problem| {
            vec![
                format!("  {}", problem.instance),
                problem.count.to_string(),
                since(problem.at_ms),
                problem.message.clone(),
            ]
        });
        let headings = ["  instance", ">times", "last", "message"];
        text += &table(&headings, &problems.collect::<Vec<_>>());
    }
    let notes = match is_verbose {
        true => &job.notes[..],
        false => &job.notes[job.notes.len().saturating_sub(NOTES)..],
    };
    if !notes.is_empty() {
        text += "\nwhat happened\n";
        let notes = notes
            .iter()
            .map(|note| vec![format!("  {}", moment(note.at_ms)), note.text.clone()]);
        text += &table(&["  when", "what"], &notes.collect::<Vec<_>>());
    }
    text
}

fn head(job: &JobDescription) -> String {
    let summary = &job.summary;
    let mut lines = vec![
        (
            "job",
            format!("{} (submission {})", summary.name, summary.submission),
        ),
        (
            "phase",
            format!("{} for {}", summary.phase.as_str(), since(summary.since_ms)),
        ),
    ];
    lines.extend(summary.reason.clone().map(|reason| ("reason", reason)));
    let program = &job.program;
    let called = std::iter::once(&program.executable).chain(&program.arguments);
    let called: Vec<&str> = called.map(String::as_str).collect();
    lines.push(("program", called.join(" ")));
    lines.push(("package", program.package.chars().take(16).collect()));
    lines.push(("version", summary.version.clone()));
    lines.push(("scheduler", job.scheduler.clone()));
    lines.push(("packing", job.packing.clone()));
    if let Some(master) = &job.master {
        let text = format!(
            "on {} at {} (epoch {})",
            master.host, master.address, master.epoch
        );
        lines.push(("master", text));
    }
    let settings = job.settings.iter();
    lines.extend(settings.map(|(key, value)| ("setting", format!("{key} = {value}"))));
    let rows: Vec<Vec<String>> = lines
        .into_iter()
        .map(|(name, value)| vec![name.to_string(), value])
        .collect();
    // Without its empty heading.
    let text = table(&["", ""], &rows);
    text.split_once('\n')
        .map_or(String::new(), |(_, rest)| rest.to_string())
}
