//! `ardea top`: the current state of a job, updated continuously.

mod live;

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Duration;

use ardea::command_line::ClusterConnection;
use ardea::command_line::Context;
use ardea::console::can_redraw;
use ardea::console::format_number::{duration, short};
use ardea::console::{Failure, print_error};
use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode};
use ardea_rest::{ContainerTop, TopView, VertexTop};
use serde_json::json;

use crate::args::TopArgs;
use crate::columns::table;
use crate::stdout;

/// A heading that begins with `>` marks a column of numbers.
const VERTICES: [&str; 14] = [
    "vertex",
    ">instances",
    ">in/s",
    ">out/s",
    ">busy",
    ">blocked",
    "waits for",
    ">queue",
    ">cpu",
    ">idle",
    ">latency",
    ">behind",
    ">restarts",
    ">problems",
];
const MESSAGES: [&str; 7] = [
    "spout",
    ">emitted/s",
    ">acked/s",
    ">failed/s",
    ">pending",
    ">median",
    ">99 %",
];
const STATE: [&str; 5] = ["state of", ">keys", ">memory", ">keys on disk", ">on disk"];
const CONTAINERS: [&str; 5] = ["container", "host", ">cores", ">memory", ">restarts"];

/// Prints the state once, or shows it until Ctrl-C or the job's end; in a pipe, and as JSON, prints
/// it repeatedly.
pub fn run(args: &TopArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of_job(&args.job.place, &args.job.job, context)?;
    let job = &args.job.job;
    let first = cluster.wait_for(cluster.client.top(job))?;
    let is_live = can_redraw(&io::stdout()) && !args.once && !context.json;
    if !is_live {
        print(&first, context)?;
    }
    if args.once {
        return Ok(());
    }
    let watched = match is_live {
        true => live::show(&cluster.client, &first, args.every, context),
        false => print_repeatedly(&cluster, args, context),
    };
    match watched {
        Err(Failure::Error(error)) if has_ended(&error) => {
            if !context.quiet && !context.json {
                print_error(&format!("{}\n", error.message()));
            }
            Ok(())
        }
        watched => watched,
    }
}

/// Prints the state repeatedly.
fn print_repeatedly(
    cluster: &ClusterConnection,
    args: &TopArgs,
    context: &Context,
) -> Result<(), Failure> {
    loop {
        thread::sleep(args.every);
        print(
            &cluster.wait_for(cluster.client.top(&args.job.job))?,
            context,
        )?;
    }
}

/// Returns true if the error means that the job has ended, which is a normal end.
fn has_ended(error: &Error) -> bool {
    error.code() == ErrorCode::NoSuchJob
}

fn print(view: &TopView, context: &Context) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&json!(view));
    }
    let vertices: Vec<Vec<String>> = view.vertices.iter().map(of_vertex).collect();
    let messages: Vec<Vec<String>> = view.vertices.iter().filter_map(of_messages).collect();
    let state: Vec<Vec<String>> = view.vertices.iter().filter_map(of_state).collect();
    let containers: Vec<Vec<String>> = view.containers.iter().map(of_container).collect();
    let mut text = format!("{} is {}\n\n", view.job, view.phase.as_str());
    text += &table(&VERTICES, &vertices);
    text += &slow(view);
    if !messages.is_empty() {
        text += &format!("\n{}", table(&MESSAGES, &messages));
    }
    if !state.is_empty() {
        text += &format!("\n{}", table(&STATE, &state));
    }
    text += &format!("\n{}\n", table(&CONTAINERS, &containers));
    stdout::print(&text)
}

/// Lists the vertices that are slow or fail repeatedly, with the vertices that wait for them.
fn slow(view: &TopView) -> String {
    let mut waiting = BTreeMap::<&str, Vec<&str>>::new();
    for top in &view.vertices {
        if let Some(slow) = &top.waits_for {
            waiting.entry(slow).or_default().push(&top.vertex);
        }
        if top.is_failing {
            waiting.entry(&top.vertex).or_default();
        }
    }
    let fails = |name: &str| {
        let mut vertices = view.vertices.iter();
        vertices.any(|top| top.vertex == name && top.is_failing)
    };
    let lines = waiting.into_iter().map(|(slow, waiting)| {
        let what = match fails(slow) {
            true => "fails again and again",
            false => "is slow",
        };
        match &waiting[..] {
            [] => format!("{slow} {what}\n"),
            [one] => format!("{slow} {what}: {one} waits for it\n"),
            some => format!("{slow} {what}: {} wait for it\n", some.join(", ")),
        }
    });
    lines.collect()
}

/// Returns the cells of a vertex, its name first.
fn of_vertex(top: &VertexTop) -> Vec<String> {
    vec![
        top.vertex.clone(),
        top.instances.to_string(),
        figure(top.records_in_per_s, short),
        figure(top.records_out_per_s, short),
        figure(top.busy, percent),
        figure(top.backpressure, percent),
        top.waits_for.clone().unwrap_or_default(),
        figure(top.queue_fill, percent),
        figure(top.busy_cpu, percent),
        figure(top.idle, percent),
        figure(top.latency_p99_s, seconds),
        figure(top.lag_s, seconds),
        top.restarts.to_string(),
        top.problems.to_string(),
    ]
}

/// Returns the cells of a spout's messages, its name first.
fn of_messages(top: &VertexTop) -> Option<Vec<String>> {
    let messages = top.messages.as_ref()?;
    Some(vec![
        top.vertex.clone(),
        figure(messages.emitted_per_s, short),
        figure(messages.acked_per_s, short),
        figure(messages.failed_per_s, short),
        messages.pending.to_string(),
        figure(messages.p50_s, seconds),
        figure(messages.p99_s, seconds),
    ])
}

/// Returns the cells of a vertex's state sizes, its name first.
fn of_state(top: &VertexTop) -> Option<Vec<String>> {
    let state = top.state?;
    Some(vec![
        top.vertex.clone(),
        short(state.keys as f64),
        readable_bytes(state.bytes),
        short(state.disk_keys as f64),
        readable_bytes(state.disk_bytes),
    ])
}

fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

fn of_container(top: &ContainerTop) -> Vec<String> {
    vec![
        top.container.to_string(),
        (top.host_name.clone().or_else(|| top.host.clone())).unwrap_or_default(),
        figure(top.cpu_cores, |cores| format!("{cores:.2}")),
        top.memory_bytes.map_or("–".into(), readable_bytes),
        top.restarts.to_string(),
    ]
}

fn figure(value: Option<f64>, shown: impl FnOnce(f64) -> String) -> String {
    value.map_or("–".into(), shown)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
