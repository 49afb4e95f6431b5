//! `ardea describe`: the full description of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::command_line::OfflineCluster;
use ardea::console::Failure;
use ardea::console::format_number::{counted, moment, since};
use ardea_config::{format_duration, readable_bytes};
use ardea_core::ErrorCode;
use ardea_rest::{
    ContainerView, EpochsView, JobDescription, JobEnding, NoteView, PastJobDescription, ProblemView,
};
use serde_json::json;

use crate::args::RemoteJob;
use crate::columns::table;
use crate::commands::list::lasted;

/// The number of latest notes that are shown without `--verbose`.
const NOTES: usize = 10;

/// Prints the description: paragraphs and tables, or an object.
pub fn run(args: &RemoteJob, context: &Context) -> Result<(), Failure> {
    let cluster = match ClusterConnection::of(&args.place, context) {
        Ok(cluster) => cluster,
        Err(failure) => return print_stored(args, context, failure),
    };
    let job = match cluster.wait_for(cluster.client.describe(&args.job)) {
        Ok(job) => job,
        Err(Failure::Error(error)) if error.code() == ErrorCode::NoSuchJob => {
            let past = cluster.wait_for(cluster.client.past(&args.job))?;
            return ended(&past, error.into(), context);
        }
        Err(failure) => return Err(failure),
    };
    show(&job, context)
}

fn show(job: &JobDescription, context: &Context) -> Result<(), Failure> {
    context.print(&text(job, context.verbose), || json!(job))
}

/// Prints the job's records in the metadata store while no host is up.
fn print_stored(args: &RemoteJob, context: &Context, failure: Failure) -> Result<(), Failure> {
    let remembered = OfflineCluster::after_failure(&args.place, context, failure)?;
    if let Some(job) = remembered.wait_for(remembered.cluster.describe(&args.job))? {
        remembered.print_origin(context);
        return show(&job, context);
    }
    let past = remembered.wait_for(remembered.cluster.past(&args.job))?;
    if past.is_empty() {
        return Err(remembered.absence_failure(&args.job, None));
    }
    remembered.print_origin(context);
    ended(&past, remembered.failure, context)
}

/// Prints the record of the latest past job of this name; fails with `failure` if there is none.
fn ended(past: &[PastJobDescription], failure: Failure, context: &Context) -> Result<(), Failure> {
    let Some((last, earlier)) = past.split_first() else {
        return Err(failure);
    };
    context.print(&past_text(last, earlier.len(), context.verbose), || {
        json!(last)
    })
}

fn past_text(past: &PastJobDescription, earlier: usize, is_verbose: bool) -> String {
    let summary = &past.summary;
    let how = match (summary.ending, summary.has_run) {
        (JobEnding::Finished, _) => "finished: all of its sources had ended",
        (JobEnding::Followed, _) => "replaced by another program",
        (JobEnding::RolledBack, _) => {
            "rolled back: it did not start, and the previous program was restarted"
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
    text += &connections(&job.containers);
    text += &left_out(&job.containers);
    text + &problems(&job.problems) + &notes(&job.notes, is_verbose)
}

/// Returns the host of a container: the name that `drain` takes, else the address of its machine.
fn host_of(container: &ContainerView) -> String {
    let host = container.host_name.clone();
    host.or_else(|| container.host.clone()).unwrap_or_default()
}

/// Lists the connections of each container by their transports, without those to processes of
/// instances.
fn connections(containers: &[ContainerView]) -> String {
    let numbers: BTreeSet<u32> = containers.iter().map(|one| one.id.0).collect();
    let lines = containers.iter().filter_map(|one| {
        let mut by_transport = BTreeMap::<&str, Vec<String>>::new();
        for (peer, transport) in &one.transports {
            if numbers.contains(peer) {
                let peers = by_transport.entry(transport).or_default();
                peers.push(peer.to_string());
            }
        }
        let groups = by_transport.into_iter();
        let groups: Vec<String> = groups
            .map(|(transport, peers)| format!("{} by {transport}", peers.join(" ")))
            .collect();
        let what = format!("  {} to {}\n", one.id, groups.join(", "));
        (!groups.is_empty()).then_some(what)
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\nconnections\n{lines}"),
    }
}

/// Lists the amounts of container output that were discarded.
fn left_out(containers: &[ContainerView]) -> String {
    let long = containers.iter().filter(|one| one.output_removed_bytes > 0);
    let lines = long.map(|one| {
        format!(
            "  container {}: {} of its output are not kept (cluster.log_size, cluster.log_files)\n",
            one.id,
            readable_bytes(one.output_removed_bytes)
        )
    });
    lines.collect()
}

/// Lists the instances of a container, each with its process if it has its own.
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
            "on {} at {} (leader epoch {})",
            master.host, master.address, master.epoch
        );
        lines.push(("leader", text));
    }
    let upgrade = job.upgrade.as_ref();
    lines.extend(upgrade.map(|upgrade| ("upgrade", upgrade.text.clone())));
    lines.extend(job.epochs.iter().flat_map(epochs));
    let settings = job.settings.iter();
    lines.extend(settings.map(|(key, value)| ("setting", format!("{key} = {value}"))));
    fields(lines)
}

/// Describes a job's guarantee, its last committed epoch, and its attempt.
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
    // An attempt that has not begun yet will restore the committed epoch.
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
        life += &format!("; the job was restored {times} since its leader took over");
    }
    let mut lines = vec![
        ("guarantee", epochs.guarantee.clone()),
        ("committed", committed),
        (
            "interval",
            format_duration(Duration::from_millis(epochs.interval_ms)),
        ),
        ("attempt", life),
    ];
    if epochs.aborted_count > 0 {
        let times = counted_times(epochs.aborted_count);
        lines.push((
            "aborted",
            format!("an epoch, {times} since its leader took over"),
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

/// Formats names and values, one per line.
fn fields(lines: Vec<(&str, String)>) -> String {
    let rows: Vec<Vec<String>> = lines
        .into_iter()
        .map(|(name, value)| vec![name.to_string(), value])
        .collect();
    // Without the table's empty heading.
    let text = table(&["", ""], &rows);
    text.split_once('\n')
        .map_or(String::new(), |(_, rest)| rest.to_string())
}
