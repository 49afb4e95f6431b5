//! `ardea describe`: all that is known of a job.

use ardea_config::readable_bytes;
use ardea_core::ErrorCode;
use ardea_rest::{
    ContainerView, EpochsView, JobDescription, JobEnding, NoteView, PastJobDescription, ProblemView,
};
use serde_json::json;

use crate::args::RemoteJob;
use crate::columns::table;
use crate::commands::list::lasted;
use crate::context::Context;
use crate::failure::Failure;
use crate::reach::Reached;
use crate::stdout;
use crate::unattended::Remembered;
use ardea::console::figures::{counted, moment, since};

/// How many of the latest notes are shown unless all are asked for.
const NOTES: usize = 10;

/// Prints the description: paragraphs and tables, or an object.
pub fn run(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = match Reached::of(&args.place, context) {
        Ok(cluster) => cluster,
        Err(failure) => return remembered(args, context, failure),
    };
    let job = match cluster.ask(cluster.client.describe(&args.job)) {
        Ok(job) => job,
        Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => {
            let past = cluster.ask(cluster.client.past(&args.job))?;
            return ended(&past, error.into(), context);
        }
        Err(failure) => return Err(failure),
    };
    show(&job, context)
}

fn show(job: &JobDescription, context: &Context) -> Result<(), Failure> {
    match context.json {
        true => stdout::print_json(&json!(job)),
        false => stdout::print(&text(job, context.verbose)),
    }
}

/// Prints what the cluster's state tells where no host is up.
fn remembered(args: &RemoteJob, context: &Context, failure: Failure) -> Result<(), Failure> {
    let remembered = Remembered::instead(&args.place, context, failure)?;
    if let Some(job) = remembered.ask(remembered.cluster.describe(&args.job))? {
        remembered.say_so(context);
        return show(&job, context);
    }
    let past = remembered.ask(remembered.cluster.past(&args.job))?;
    if past.is_empty() {
        return Err(remembered.why_not(&args.job, None));
    }
    remembered.say_so(context);
    ended(&past, remembered.failure, context)
}

/// Prints what is remembered of a job that is gone, the latest of its name; else that there is none.
fn ended(past: &[PastJobDescription], failure: Failure, context: &Context) -> Result<(), Failure> {
    let Some((last, earlier)) = past.split_first() else {
        return Err(failure);
    };
    match context.json {
        true => stdout::print_json(&json!(last)),
        false => stdout::print(&past_text(last, earlier.len(), context.verbose)),
    }
}

fn past_text(past: &PastJobDescription, earlier: usize, is_verbose: bool) -> String {
    let summary = &past.summary;
    let how = match (summary.ending, summary.has_run) {
        (JobEnding::Finished, _) => "finished: all of its sources had ended",
        (JobEnding::Followed, _) => "followed by another program",
        (JobEnding::RolledBack, _) => {
            "rolled back: it did not come up, and the program before came back"
        }
        (JobEnding::Killed, true) => "killed",
        (JobEnding::Killed, false) => "killed before it ever ran",
    };
    let mut lines = vec![
        (
            "job",
            format!("{} (submission {})", summary.name, summary.submission),
        ),
        ("ended", how.to_string()),
        ("submitted", moment(summary.submitted_ms)),
        (
            "gone",
            format!("{}, after {}", moment(summary.ended_ms), lasted(summary)),
        ),
        (
            "had",
            format!(
                "{} in {}",
                counted(summary.instance_count, "instance"),
                counted(summary.container_count, "container")
            ),
        ),
        ("version", summary.version.clone()),
        ("scheduler", past.scheduler.clone()),
        ("packing", past.packing.clone()),
    ];
    if !past.machines.is_empty() {
        lines.push(("ran on", past.machines.join(", ")));
    }
    if earlier > 0 {
        let told = format!("{earlier} earlier of this name; `ardea list --all` shows them");
        lines.push(("before", told));
    }
    fields(lines) + &problems(&past.problems) + &notes(&past.notes, is_verbose)
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
            host_of(container),
            container.process.clone().unwrap_or_default(),
            container.heard_ms.map(since).unwrap_or_default(),
            container.restarts.to_string(),
            instances(container),
        ]
    });
    let headings = [
        "  number",
        "state",
        "host",
        "process",
        "heard",
        ">restarts",
        "instances",
    ];
    text += &table(&headings, &containers.collect::<Vec<_>>());
    text += &left_out(&job.containers);
    text + &problems(&job.problems) + &notes(&job.notes, is_verbose)
}

/// The host of a container: by the name that `drain` takes, else by the address of its machine.
fn host_of(container: &ContainerView) -> String {
    let host = container.host_name.clone();
    host.or_else(|| container.host.clone()).unwrap_or_default()
}

/// The output of containers that is not kept any more.
fn left_out(containers: &[ContainerView]) -> String {
    let long = containers
        .iter()
        .filter(|one| one.output_left_out_bytes > 0);
    let lines = long.map(|one| {
        format!(
            "  container {}: {} of its output are not kept (cluster.log_size, cluster.log_files)\n",
            one.id,
            readable_bytes(one.output_left_out_bytes)
        )
    });
    lines.collect()
}

/// The instances of a container, with their processes where they have one of their own.
fn instances(container: &ContainerView) -> String {
    let instances = container.instances.iter().map(|instance| {
        let process = container.instance_processes.get(instance);
        process.map_or_else(
            || instance.clone(),
            |process| format!("{instance} (pid {process})"),
        )
    });
    instances.collect::<Vec<_>>().join(" ")
}

fn problems(problems: &[ProblemView]) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let rows = problems.iter().map(|problem| {
        vec![
            format!("  {}", problem.instance),
            problem.count.to_string(),
            since(problem.at_ms),
            problem.message.clone(),
        ]
    });
    let headings = ["  where", ">times", "last", "message"];
    format!(
        "\nproblems\n{}",
        table(&headings, &rows.collect::<Vec<_>>())
    )
}

fn notes(notes: &[NoteView], is_verbose: bool) -> String {
    let notes = match is_verbose {
        true => notes,
        false => &notes[notes.len().saturating_sub(NOTES)..],
    };
    if notes.is_empty() {
        return String::new();
    }
    let rows = notes
        .iter()
        .map(|note| vec![format!("  {}", moment(note.at_ms)), note.text.clone()]);
    let rows: Vec<_> = rows.collect();
    format!(
        "\nwhat happened\n{}",
        table(&["  when (UTC)", "what"], &rows)
    )
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
    let upgrade = job.upgrade.as_ref();
    lines.extend(upgrade.map(|upgrade| ("upgrade", upgrade.text.clone())));
    lines.extend(job.epochs.iter().flat_map(epochs));
    let settings = job.settings.iter();
    lines.extend(settings.map(|(key, value)| ("setting", format!("{key} = {value}"))));
    fields(lines)
}

/// What a job promises, how far that is kept, and which life it is in.
fn epochs(epochs: &EpochsView) -> Vec<(&'static str, String)> {
    let committed = match (epochs.committed, epochs.committed_ms) {
        (None, _) => "no epoch yet".to_string(),
        (Some(epoch), None) => format!("epoch {epoch}"),
        (Some(epoch), Some(at)) => {
            let took = epochs.took_ms.unwrap_or_default();
            let bytes = readable_bytes(epochs.written_bytes.unwrap_or_default());
            format!(
                "epoch {epoch}, {} ago, after {took} ms, {bytes} written",
                since(at)
            )
        }
    };
    // What a life that has yet to begin will begin from is what is committed.
    let next = epochs.committed.filter(|_| !epochs.has_begun);
    let from = match epochs.restored_from.or(next) {
        Some(epoch) => format!("from epoch {epoch}"),
        None => "from the beginning".to_string(),
    };
    let mut life = match (epochs.has_begun, epochs.restored_in_ms) {
        (false, _) => format!("{} is to begin {from}", epochs.life),
        (true, None) => format!("{} began {from}", epochs.life),
        (true, Some(took)) => format!("{} began {from}, within {took} ms", epochs.life),
    };
    if epochs.rolled_back_count > 0 {
        let times = counted_times(epochs.rolled_back_count);
        life += &format!("; the job went back {times} since its master leads");
    }
    let mut lines = vec![
        ("guarantee", epochs.guarantee.clone()),
        ("committed", committed),
        ("life", life),
    ];
    if epochs.given_up_count > 0 {
        let times = counted_times(epochs.given_up_count);
        lines.push((
            "given up",
            format!("an epoch, {times} since its master leads"),
        ));
    }
    lines.extend(epochs.trouble.clone().map(|why| ("trouble", why)));
    lines
}

fn counted_times(times: u64) -> String {
    match times {
        1 => "once".to_string(),
        times => format!("{times} times"),
    }
}

/// Names and values, a line each.
fn fields(lines: Vec<(&str, String)>) -> String {
    let rows: Vec<Vec<String>> = lines
        .into_iter()
        .map(|(name, value)| vec![name.to_string(), value])
        .collect();
    // Without its empty heading.
    let text = table(&["", ""], &rows);
    text.split_once('\n')
        .map_or(String::new(), |(_, rest)| rest.to_string())
}
