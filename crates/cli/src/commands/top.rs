//! `ardea top`: how a job is doing, again and again.
//!
//! It is a job itself: a source asks the cluster, and live tables show what it says.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use ardea_api::{Client, ContainerTop, TopView, VertexTop};
use ardea_connect::live_table::{Row, Table};
use ardea_core::settings::readable_bytes;
use ardea_core::{
    InstanceContext, Isolation, Ordinal, Outbox, Processor, Progress, Result, Source, Timestamp,
    Unbounded, supplier,
};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::TopArgs;
use crate::columns::table;
use crate::context::Context;
use crate::failure::Failure;
use crate::figures::{duration, short};
use crate::reach::{Reached, runtime};
use crate::status_line::can_redraw;
use crate::stdout;

/// A heading that begins with `>` is of numbers.
const VERTICES: [&str; 12] = [
    "vertex",
    ">instances",
    ">in/s",
    ">out/s",
    ">busy",
    ">blocked",
    "waits for",
    ">queue",
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
const CONTAINERS: [&str; 5] = ["container", "host", ">cores", ">memory", ">restarts"];

/// Prints it once, or shows it until Ctrl-C; in a pipe, and as JSON, printed anew each time.
pub fn run(args: &TopArgs, context: &Context) -> Result<(), Failure> {
    let cluster = Reached::of_job(&args.job.place, &args.job.job, context)?;
    let job = &args.job.job;
    let first = cluster.ask(cluster.client.top(job))?;
    if args.once || context.json || !can_redraw(&io::stdout()) {
        print(&first, context)?;
        if args.once {
            return Ok(());
        }
        loop {
            thread::sleep(args.every);
            print(&cluster.ask(cluster.client.top(job))?, context)?;
        }
    }
    show(cluster.client.clone(), job, args.every, context)
}

fn print(view: &TopView, context: &Context) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&json!(view));
    }
    let vertices: Vec<Vec<String>> = view.vertices.iter().map(of_vertex).collect();
    let messages: Vec<Vec<String>> = view.vertices.iter().filter_map(of_messages).collect();
    let containers: Vec<Vec<String>> = view.containers.iter().map(of_container).collect();
    let mut text = format!("{} is {}\n\n", view.job, view.phase.as_str());
    text += &table(&VERTICES, &vertices);
    text += &slow(view);
    if !messages.is_empty() {
        text += &format!("\n{}", table(&MESSAGES, &messages));
    }
    text += &format!("\n{}\n", table(&CONTAINERS, &containers));
    stdout::print(&text)
}

/// Who is slow, or fails again and again, and who waits for it, a line each.
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

/// What there is to say of a vertex, its name first.
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
        figure(top.latency_p99_s, seconds),
        figure(top.lag_s, seconds),
        top.restarts.to_string(),
        top.problems.to_string(),
    ]
}

/// What there is to say of a spout's messages, its name first.
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

fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

fn of_container(top: &ContainerTop) -> Vec<String> {
    vec![
        top.container.to_string(),
        top.host.clone().unwrap_or_default(),
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

/// A row of one of the tables, or that it is not there any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Line {
    Vertex(usize, Vec<String>),
    Messages(usize, Vec<String>),
    Container(usize, Vec<String>),
    NoVertex(String),
    NoMessages(String),
    NoContainer(String),
}

/// Shows live tables until Ctrl-C, or until there is nothing to be shown any more.
fn show(client: Client, job: &str, every: Duration, context: &Context) -> Result<(), Failure> {
    let p = Pipeline::new(format!("top of {job}"));
    let (name, of) = (job.to_string(), job.to_string());
    let looks = supplier(move || Looks::at(client.clone(), name.clone(), every));
    let source: Source<Line, Unbounded> = Source::new("looks", looks).isolation(Isolation::Thread);
    let lines = p.read_from(source);
    let rows_of = |title: &str, columns: &[&str]| {
        Table::new(
            title.to_string(),
            columns.iter().map(|name| plain(name).to_string()),
        )
    };
    let (vertices, others) =
        lines.split(|line| matches!(line, Line::Vertex(..) | Line::NoVertex(_)));
    let (messages, containers) =
        others.split(|line| matches!(line, Line::Messages(..) | Line::NoMessages(_)));
    vertices.write_to(rows_of(&of, &VERTICES).sink(row));
    messages.write_to(rows_of("messages", &MESSAGES).sink(row));
    containers.write_to(rows_of("containers", &CONTAINERS).sink(row));
    let config = NodeConfig::with_threads(1);
    let dag = p.to_dag(config.threads)?;
    let node = Node::start(config)?;
    let running = node.submit(&dag, JobConfig::named(p.name()))?;
    let passing = context.interrupts.drain(&running);
    let outcome = running.join();
    drop(passing);
    Ok(outcome?)
}

/// A heading, without what it says of its column.
fn plain(heading: &str) -> &str {
    heading.trim_start_matches('>')
}

fn row(line: &Line) -> Row {
    let (at, cells, columns) = match line {
        Line::Vertex(at, cells) => (*at, cells, &VERTICES[..]),
        Line::Messages(at, cells) => (*at, cells, &MESSAGES[..]),
        Line::Container(at, cells) => (*at, cells, &CONTAINERS[..]),
        Line::NoVertex(key) | Line::NoMessages(key) | Line::NoContainer(key) => {
            return Row::gone(key);
        }
    };
    let key = cells.first().map_or("", String::as_str);
    // In the order in which they come.
    let mut row = Row::new(key).weight(-(at as f64));
    for (cell, column) in cells.iter().zip(columns).skip(1) {
        row = match column.starts_with('>') {
            true => row.number(cell),
            false => row.text(cell),
        };
    }
    row
}

/// Asks the cluster every so often; runs on a thread of its own.
struct Looks {
    client: Client,
    job: String,
    every: Duration,
    runtime: Option<Runtime>,
    next: Instant,
    waiting: Vec<Line>,
    shown: Vec<Line>,
}

impl Looks {
    fn at(client: Client, job: String, every: Duration) -> Self {
        Looks {
            client,
            job,
            every,
            runtime: None,
            next: Instant::now(),
            waiting: Vec::new(),
            shown: Vec::new(),
        }
    }

    /// What the tables are to show, with what they are to show no longer.
    fn look(&mut self) -> Result<()> {
        let Some(runtime) = &self.runtime else {
            return Ok(());
        };
        let view = runtime.block_on(self.client.top(&self.job))?;
        let vertices = view.vertices.iter().enumerate();
        let messages = view.vertices.iter().filter_map(of_messages).enumerate();
        let containers = view.containers.iter().enumerate();
        let lines: Vec<Line> = vertices
            .map(|(at, top)| Line::Vertex(at, of_vertex(top)))
            .chain(messages.map(|(at, cells)| Line::Messages(at, cells)))
            .chain(containers.map(|(at, top)| Line::Container(at, of_container(top))))
            .collect();
        let gone = self.shown.iter().filter_map(|before| {
            let is_there = lines.iter().any(|line| same(line, before));
            (!is_there).then(|| match before {
                Line::Container(_, cells) => Line::NoContainer(cells[0].clone()),
                Line::Vertex(_, cells) => Line::NoVertex(cells[0].clone()),
                Line::Messages(_, cells) => Line::NoMessages(cells[0].clone()),
                other => other.clone(),
            })
        });
        self.waiting = gone.chain(lines.iter().cloned()).collect();
        // Taken from the end.
        self.waiting.reverse();
        self.shown = lines;
        Ok(())
    }
}

/// Whether both are of one row.
fn same(one: &Line, other: &Line) -> bool {
    match (one, other) {
        (Line::Vertex(_, a), Line::Vertex(_, b)) => a.first() == b.first(),
        (Line::Messages(_, a), Line::Messages(_, b)) => a.first() == b.first(),
        (Line::Container(_, a), Line::Container(_, b)) => a.first() == b.first(),
        _ => false,
    }
}

impl Processor for Looks {
    fn init(&mut self, _: &InstanceContext) -> Result<()> {
        self.runtime = Some(runtime()?);
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.waiting.is_empty() && Instant::now() >= self.next {
            self.next = Instant::now() + self.every;
            self.look()?;
        }
        let mut lane = outbox.lane::<Line>(Ordinal::FIRST)?;
        let mut has_moved = false;
        while !lane.is_full()
            && let Some(line) = self.waiting.pop()
        {
            lane.push(line, Timestamp::MIN);
            has_moved = true;
        }
        Ok(match has_moved {
            true => Progress::MADE,
            false => Progress::NONE,
        })
    }
}
