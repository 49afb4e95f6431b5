//! `ardea top` on a terminal: a job whose source polls the cluster, and whose sinks are live
//! tables.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea::command_line::Context;
use ardea::connect::live_table::{Row, Table};
use ardea::connect::{PollStatus, SourceBatch, SourceBuilder};
use ardea::console::Failure;
use ardea::console::Keyboard;
use ardea::console::{GAP, terminal_columns};
use ardea::job::runtime;
use ardea_core::{Error, Result, Source, Unbounded};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use ardea_rest::{Client, TopView};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::{
    CONTAINERS, MESSAGES, STATE, VERTICES, of_container, of_messages, of_state, of_vertex,
};

/// The number of columns of vertices that stay together on a narrow terminal; the others become a
/// second table.
const FIRST_COLUMNS: usize = 8;

/// A row of one of the tables, or its removal.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Line {
    Vertex(usize, Vec<String>),
    Further(usize, Vec<String>),
    Messages(usize, Vec<String>),
    State(usize, Vec<String>),
    Container(usize, Vec<String>),
    NoVertex(String),
    NoFurther(String),
    NoMessages(String),
    NoState(String),
    NoContainer(String),
}

/// Shows live tables until `q` or Ctrl-C, or until the job has ended.
///
/// # Errors
/// The error of the cluster that ended the display, unless the job has ended.
pub(super) fn show(
    client: &Client,
    first: &TopView,
    every: Duration,
    context: &Context,
) -> Result<(), Failure> {
    let job = &first.job;
    let is_narrow = width(first) > terminal_columns(&io::stdout());
    let p = Pipeline::new(format!("top of {job}"));
    let (name, of, client) = (job.to_string(), job.to_string(), client.clone());
    let why = PollError::default();
    let told = why.clone();
    let source: Source<Line, Unbounded> = SourceBuilder::stream("looks")
        .blocking()
        .open(move |_, _: Option<()>| {
            Ok(TopReader {
                client: client.clone(),
                job: name.clone(),
                runtime: runtime()?,
                is_narrow,
                shown: Vec::new(),
            })
        })
        .poll(move |reader, batch: &mut SourceBatch<'_, Line>| {
            Ok(match reader.poll() {
                Ok(lines) => {
                    lines.into_iter().for_each(|line| batch.push(line));
                    PollStatus::IdleFor(every)
                }
                // The display job ends normally and its last tables stay; the caller reports the
                // error.
                Err(error) => {
                    *told.told() = Some(error);
                    PollStatus::End
                }
            })
        })
        .build();
    let lines = p.read_from(source);
    let rows_of = |title: &str, columns: &[&str]| {
        Table::new(
            title.to_string(),
            columns.iter().map(|name| plain(name).to_string()),
        )
    };
    let (vertices, others) =
        lines.split(|line| matches!(line, Line::Vertex(..) | Line::NoVertex(_)));
    let others = match is_narrow {
        false => {
            vertices.write_to(rows_of(&of, &VERTICES).sink(row));
            others
        }
        true => {
            vertices.write_to(rows_of(&of, &VERTICES[..FIRST_COLUMNS]).sink(row));
            let is_further = |line: &Line| matches!(line, Line::Further(..) | Line::NoFurther(_));
            let (further, others) = others.split(is_further);
            further.write_to(rows_of("latency and problems", &further_columns()).sink(row));
            others
        }
    };
    let (messages, others) =
        others.split(|line| matches!(line, Line::Messages(..) | Line::NoMessages(_)));
    messages.write_to(rows_of("messages", &MESSAGES).sink(row));
    let (state, containers) =
        others.split(|line| matches!(line, Line::State(..) | Line::NoState(_)));
    state.write_to(rows_of("state", &STATE).sink(row));
    containers.write_to(rows_of("containers", &CONTAINERS).sink(row));
    let config = NodeConfig::with_threads(1);
    let dag = p.to_dag(config.threads)?;
    let node = Node::start(config)?;
    let running = node.submit(&dag, JobConfig::named(p.name()))?;
    let passing = context.interrupts.drain(&running);
    let keyboard = Keyboard::taken(&context.interrupts);
    let outcome = running.join();
    drop(keyboard);
    drop(passing);
    outcome?;
    match why.told().take() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// The error that ended the polling, if any.
#[derive(Clone, Default)]
struct PollError(Arc<Mutex<Option<Error>>>);

impl PollError {
    fn told(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the headings or cells of the second table: the vertex's name, and the columns after the
/// first ones.
fn further<T: Clone>(all: &[T]) -> Vec<T> {
    let behind = all.iter().skip(FIRST_COLUMNS);
    all.iter().take(1).chain(behind).cloned().collect()
}

fn further_columns() -> Vec<&'static str> {
    further(&VERTICES)
}

/// Returns the estimated width of the table of vertices.
fn width(view: &TopView) -> usize {
    // Such as `1.25 M`, `12.5 ms`, `100 %`.
    const NUMBER: usize = 7;
    let names = view.vertices.iter().map(|top| top.vertex.chars().count());
    let longest = names.max().unwrap_or(0);
    let columns = VERTICES.iter().map(|heading| {
        let least = match heading.starts_with('>') {
            true => NUMBER,
            false => longest,
        };
        plain(heading).len().max(least)
    });
    columns.map(|wide| wide + GAP.len()).sum::<usize>() - GAP.len()
}

/// Returns a heading without its alignment marker.
fn plain(heading: &str) -> &str {
    heading.trim_start_matches('>')
}

fn row(line: &Line) -> Row {
    let further_columns = further_columns();
    let (at, cells, columns) = match line {
        Line::Vertex(at, cells) => (*at, cells, &VERTICES[..]),
        Line::Further(at, cells) => (*at, cells, &further_columns[..]),
        Line::Messages(at, cells) => (*at, cells, &MESSAGES[..]),
        Line::State(at, cells) => (*at, cells, &STATE[..]),
        Line::Container(at, cells) => (*at, cells, &CONTAINERS[..]),
        Line::NoVertex(key)
        | Line::NoFurther(key)
        | Line::NoMessages(key)
        | Line::NoState(key)
        | Line::NoContainer(key) => return Row::removed(key),
    };
    let key = cells.first().map_or("", String::as_str);
    // The weight keeps the rows in the order of arrival.
    let mut row = Row::new(key).weight(-(at as f64));
    for (cell, column) in cells.iter().zip(columns).skip(1) {
        row = match column.starts_with('>') {
            true => row.number(cell),
            false => row.text(cell),
        };
    }
    row
}

/// Reader of a job's state.
struct TopReader {
    client: Client,
    job: String,
    runtime: Runtime,
    is_narrow: bool,
    shown: Vec<Line>,
}

impl TopReader {
    /// Requests the state. Returns the rows to remove, and those to show.
    fn poll(&mut self) -> Result<Vec<Line>> {
        let view = self.runtime.block_on(self.client.top(&self.job))?;
        let vertices = view.vertices.iter().enumerate();
        let messages = view.vertices.iter().filter_map(of_messages).enumerate();
        let state = view.vertices.iter().filter_map(of_state).enumerate();
        let containers = view.containers.iter().enumerate();
        let lines: Vec<Line> = vertices
            .flat_map(|(at, top)| of_one(at, of_vertex(top), self.is_narrow))
            .chain(messages.map(|(at, cells)| Line::Messages(at, cells)))
            .chain(state.map(|(at, cells)| Line::State(at, cells)))
            .chain(containers.map(|(at, top)| Line::Container(at, of_container(top))))
            .collect();
        let gone = self.shown.iter().filter_map(|before| {
            let is_there = lines.iter().any(|line| same(line, before));
            (!is_there).then(|| match before {
                Line::Container(_, cells) => Line::NoContainer(cells[0].clone()),
                Line::Vertex(_, cells) => Line::NoVertex(cells[0].clone()),
                Line::Further(_, cells) => Line::NoFurther(cells[0].clone()),
                Line::Messages(_, cells) => Line::NoMessages(cells[0].clone()),
                Line::State(_, cells) => Line::NoState(cells[0].clone()),
                other => other.clone(),
            })
        });
        let changed = gone.chain(lines.iter().cloned()).collect();
        self.shown = lines;
        Ok(changed)
    }
}

/// Returns the rows of a vertex.
fn of_one(at: usize, mut cells: Vec<String>, is_narrow: bool) -> Vec<Line> {
    if !is_narrow {
        return vec![Line::Vertex(at, cells)];
    }
    let further = further(&cells);
    cells.truncate(FIRST_COLUMNS);
    vec![Line::Vertex(at, cells), Line::Further(at, further)]
}

/// Returns true if both lines belong to the same row of the same table.
fn same(one: &Line, other: &Line) -> bool {
    match (one, other) {
        (Line::Vertex(_, a), Line::Vertex(_, b)) => a.first() == b.first(),
        (Line::Further(_, a), Line::Further(_, b)) => a.first() == b.first(),
        (Line::Messages(_, a), Line::Messages(_, b)) => a.first() == b.first(),
        (Line::State(_, a), Line::State(_, b)) => a.first() == b.first(),
        (Line::Container(_, a), Line::Container(_, b)) => a.first() == b.first(),
        _ => false,
    }
}
