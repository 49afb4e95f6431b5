//! `ardea plan`: the execution plan of a job.

mod for_cluster;

use std::path::Path;

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_core::{Dag, Edge, Isolation, Parallelism, VertexId};
use ardea_engine::{ExecutionPlan, ModeChoice, recordable_vertices};
use serde_json::{Value, json};

use crate::args::PlanArgs;
use crate::commands::examples;
use crate::{stdout, topology_file};

/// Prints the job's graph and the tasklets that the engine would create, without running it. For a
/// job of a cluster, prints its current plan; for a topology in a file or a job program, its
/// packing plan.
pub fn run(args: &PlanArgs, context: &Context) -> Result<(), Failure> {
    let (name, rest) = args.job.split();
    let path = Path::new(name);
    let is_file = topology_file::is_one(path) || path.components().count() > 1;
    if is_file || args.dry_run {
        return for_cluster::packed(path, rest, args, context);
    }
    if args.traffic {
        return for_cluster::traffic(name, rest, args, context);
    }
    if args.place.cluster.is_some() || args.place.at.is_some() {
        return for_cluster::running(name, rest, args, context);
    }
    let job = match examples::find(name) {
        Ok(job) => job,
        // The name is not that of a job that comes with ardea, so it is taken for a job of a
        // cluster. A word that starts with `-` is neither.
        Err(unknown) if !name.starts_with('-') => {
            return for_cluster::running_or(name, rest, unknown, args, context);
        }
        Err(unknown) => return Err(unknown),
    };
    if examples::asks_for_help(rest) {
        return stdout::print(&examples::usage(job));
    }
    let config = context.node_config(args.job.threads)?;
    let pipeline = (job.build)(rest)?;
    let dag = pipeline.to_dag(config.threads)?;
    let plan = ExecutionPlan::of(&dag, config.threads, config.fuse)?;
    let mode = ModeChoice::of(&dag, &config)?;
    if context.json {
        let mut value = graph_json(&dag, &plan)?;
        value["job"] = json!(pipeline.name());
        value["threads"] = json!(config.threads.get());
        value["mode"] = json!(mode.name());
        value["objections"] = json!(mode.objections);
        if config.micro_batch.record.is_some() {
            value["not_recorded"] = not_recorded(&dag).into();
        }
        return stdout::print_json(&value);
    }
    let text = format!(
        "{}\n\ngraph\n{}\non {} cooperative threads\n{}\nmode\n{}",
        pipeline.name(),
        graph_text(&dag)?,
        config.threads,
        indented(&plan.to_string()),
        indented(&mode.to_string())
    );
    if config.micro_batch.record.is_some() {
        let reasons = not_recorded(&dag);
        return stdout::print(&format!(
            "{text}\nnot recorded\n{}",
            indented(&reasons.join("\n"))
        ));
    }
    stdout::print(&text)
}

/// Returns the steps whose micro-batches are not recorded, with the reasons.
fn not_recorded(dag: &Dag) -> Vec<String> {
    let vertices = recordable_vertices(dag).into_iter();
    vertices
        .filter_map(|(name, reason)| Some(format!("{name}: {}", reason?)))
        .collect()
}

/// Lists each vertex with its outgoing edges, sources first.
fn graph_text(dag: &Dag) -> Result<String, Failure> {
    let mut text = String::new();
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        text += &format!(
            "  {} ({}{})\n",
            vertex.name(),
            parallelism(vertex.wanted_parallelism()),
            match vertex.wanted_isolation() {
                Isolation::Tasklet => "",
                Isolation::Thread => ", own thread",
                Isolation::Process => ", own process",
            }
        );
        for edge in dag.outputs(id) {
            let edge = &dag.edges()[edge.index()];
            let latency = edge.wanted_latency();
            let latency = latency.map_or_else(String::new, |it| format!(", latency {it:?}"));
            text += &format!("    → {} [{}{latency}]\n", target(dag, edge), routing(edge));
        }
    }
    Ok(text)
}

/// Returns the consumer of an edge, with the number of the input if it has several.
fn target(dag: &Dag, edge: &Edge) -> String {
    let (vertex, input) = edge.target();
    let name = dag.get(vertex).name();
    if dag.inputs(vertex).len() > 1 {
        format!("{name} input {}", input.index())
    } else {
        name.to_string()
    }
}

fn routing(edge: &Edge) -> String {
    format!("{:?}", edge.wanted_routing())
}

fn parallelism(parallelism: Parallelism) -> String {
    match parallelism {
        Parallelism::Auto => "one per thread".into(),
        Parallelism::Exactly(count) => format!("{count}"),
        Parallelism::Zero => "0".into(),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn graph_json(dag: &Dag, plan: &ExecutionPlan) -> Result<Value, Failure> {
    let name = |id: VertexId| dag.get(id).name().to_string();
    let isolation = |isolation: Isolation| match isolation {
        Isolation::Tasklet => "tasklet",
        Isolation::Thread => "thread",
        Isolation::Process => "process",
    };
    let mut vertices = Vec::new();
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        vertices.push(json!({
            "name": name(id),
            "parallelism": match vertex.wanted_parallelism() {
                Parallelism::Auto => Value::Null,
                Parallelism::Exactly(count) => json!(count.get()),
                Parallelism::Zero => json!(0),
            },
            "isolation": isolation(vertex.wanted_isolation()),
        }));
    }
    let edges: Vec<Value> = dag
        .edges()
        .iter()
        .map(|edge| {
            json!({
                "from": name(edge.source().0),
                "output": edge.source().1.index(),
                "to": name(edge.target().0),
                "input": edge.target().1.index(),
                "routing": routing(edge),
                "priority": edge.wanted_priority().0,
                "latency_us": edge.wanted_latency().map(|it| it.as_micros() as u64),
            })
        })
        .collect();
    let tasklets: Vec<Value> = plan
        .tasklets
        .iter()
        .map(|tasklet| {
            let names: Vec<&str> = tasklet.names.iter().map(|name| &**name).collect();
            json!({
                "vertices": names,
                "parallelism": tasklet.parallelism,
                "isolation": isolation(tasklet.isolation),
            })
        })
        .collect();
    Ok(json!({ "vertices": vertices, "edges": edges, "tasklets": tasklets }))
}
