//! The validation of a topology: every fault is found before the start, and reported with the
//! alternatives.

use std::collections::{HashMap, HashSet};

use ardea_config::nearest;
use ardea_core::{Edge, Error, ErrorCode, Result, is_invisible};

use crate::anchor::Task;
use crate::builder::Reliability;
use crate::component::{Component, Kind, ResourceRequirements, Subscription};
use crate::grouping::Grouping;
use crate::outputs::{OutputStream, Outputs};
use crate::topology::TopologyConfig;

/// Checks a topology, and returns the outputs of each component.
pub(crate) fn check(
    name: &str,
    components: &[Component],
    config: &TopologyConfig,
) -> Result<Vec<Outputs>> {
    check_components(name, components, config)?;
    let mut outputs = Vec::new();
    for component in components {
        let streams = component
            .kind
            .outputs()
            .map_err(|error| error.in_vertex(&component.name, 0))?;
        check_streams(component, &streams)?;
        outputs.push(streams);
    }
    let by_name: HashMap<&str, usize> = components
        .iter()
        .enumerate()
        .map(|(index, component)| (&*component.name, index))
        .collect();
    for component in components {
        for input in &component.inputs {
            let Some(&from) = by_name.get(&*input.component) else {
                return Err(unknown_component(component, input, components));
            };
            check_edge(component, input, &outputs[from])?;
        }
    }
    check_cycles(components, &by_name)?;
    check_readers(components, &outputs)?;
    Ok(outputs)
}

/// Refuses a spout with outputs but without subscribers. A spout that declares no output is its own
/// sink.
fn check_readers(components: &[Component], outputs: &[Outputs]) -> Result<()> {
    let is_read = |name: &str| {
        let mut inputs = components.iter().flat_map(|component| &component.inputs);
        inputs.any(|input| &*input.component == name)
    };
    for (component, outputs) in components.iter().zip(outputs) {
        let name = &*component.name;
        if component.is_spout() && !outputs.streams.is_empty() && !is_read(name) {
            let what = format!("the spout {name:?} has no subscriber");
            return Err(at_line(component.line, what).hint(format!(
                "add a bolt that reads {name:?}, or remove the spout"
            )));
        }
    }
    Ok(())
}

fn invalid(what: String) -> Error {
    Error::new(ErrorCode::InvalidJob, what)
}

/// Checks each component separately, and the number of components.
pub(crate) fn check_components(
    name: &str,
    components: &[Component],
    config: &TopologyConfig,
) -> Result<()> {
    if !components.iter().any(Component::is_spout) {
        return Err(invalid(format!("the topology {name:?} has no spout"))
            .hint("tuples come from spouts: add one"));
    }
    if config.reliability == Reliability::AtLeastOnce {
        check_tasks(name, components)?;
    }
    if config.message_timeout.is_zero() {
        return Err(invalid("the message timeout is zero".into())
            .hint("set the longest time that a message may take"));
    }
    let mut names = HashSet::new();
    for component in components {
        check_component(component, &components[0], names.insert(&component.name))
            .map_err(|(what, hint)| at_line(component.line, what).hint(hint))?;
    }
    Ok(())
}

/// Refuses more spouts or instances than the id of a tuple tree can distinguish.
fn check_tasks(name: &str, components: &[Component]) -> Result<()> {
    let spouts = components.iter().filter(|component| component.is_spout());
    let (count, most) = (spouts.clone().count(), Task::MOST_SPOUTS);
    if count > most {
        let what =
            format!("{name:?} has {count} spouts, and at most {most} can be tracked with acks");
        return Err(invalid(what).hint("merge some of them, or turn acks off: at most once"));
    }
    for spout in spouts {
        let (of, instances, most) = (&spout.name, spout.parallelism, Task::MOST_INSTANCES);
        if instances > most {
            let what = format!(
                "the spout {of:?} has {instances} instances, and at most {most} can be tracked with acks"
            );
            return Err(at_line(spout.line, what).hint("lower its parallelism, or turn acks off"));
        }
    }
    Ok(())
}

/// Checks one component; returns the fault and a hint.
fn check_component(
    component: &Component,
    first: &Component,
    is_new: bool,
) -> Result<(), (String, String)> {
    let name = &component.name;
    let fault = |what: String, hint: &str| Err((what, hint.to_string()));
    if !is_new {
        let what = format!("two components are named {name:?}");
        return fault(what, "give each spout and bolt a name of its own");
    }
    if name.trim().is_empty() || name.contains(is_invisible) {
        let what = format!("no spout and no bolt can be named {name:?}");
        return fault(what, "give it a name that can be seen, such as counts");
    }
    if component.parallelism == 0 {
        let what = format!("{name:?} has a parallelism of zero");
        return fault(what, "give it at least one instance");
    }
    if let Some(cores) = component.wants.cpu_cores
        && !ResourceRequirements::CORES.contains(&cores)
    {
        let what = format!("{name:?} wants {cores} cores for each instance");
        return fault(what, "use a number from 0.001 to 1000000");
    }
    if component.wants.memory_bytes == Some(0) {
        let what = format!("{name:?} wants no memory at all");
        return fault(what, "set the amount that each instance needs, or omit it");
    }
    if matches!(component.kind, Kind::Bolt(_)) && component.inputs.is_empty() {
        let hint = format!("add an input: .shuffle({:?})", first.name);
        return fault(format!("the bolt {name:?} has no input"), &hint);
    }
    if component.tick.is_some_and(|tick| tick.is_zero()) {
        let what = format!("{name:?} is to tick every zero seconds");
        return fault(what, "give it an interval, or none");
    }
    Ok(())
}

fn at_line(line: Option<u64>, what: String) -> Error {
    match line {
        Some(line) => invalid(format!("line {line}: {what}")),
        None => invalid(what),
    }
}

fn check_streams(component: &Component, outputs: &Outputs) -> Result<()> {
    let mut names = HashSet::new();
    for stream in &outputs.streams {
        let (of, name) = (&component.name, &stream.name);
        if !names.insert(name) {
            return Err(invalid(format!("{of:?} declares two streams {name:?}"))
                .hint("give each stream a name of its own"));
        }
        let mut fields = HashSet::new();
        if let Some(twice) = stream.fields.iter().find(|field| !fields.insert(*field)) {
            return Err(invalid(format!(
                "the stream {name:?} of {of:?} declares the field {twice:?} twice"
            ))
            .hint("give each field of a stream a name of its own"));
        }
        if stream.fields.is_empty() {
            return Err(
                invalid(format!("the stream {name:?} of {of:?} has no field"))
                    .hint("declare the fields of its tuples"),
            );
        }
    }
    Ok(())
}

/// Returns the edge as displayed in messages.
fn edge(to: &Component, input: &Subscription) -> String {
    let line = input.line.map(|line| format!(" (line {line})"));
    format!(
        "{:?} (stream {:?}) → {:?}, {:?}{}",
        input.component,
        input.stream,
        to.name,
        input.grouping,
        line.unwrap_or_default()
    )
}

fn unknown_component(to: &Component, input: &Subscription, components: &[Component]) -> Error {
    let names: Vec<&str> = components.iter().map(|c| &*c.name).collect();
    let error = invalid(format!(
        "there is no component {:?} for the edge {}",
        input.component,
        edge(to, input)
    ));
    suggest(error, &input.component, &names, "the components are")
}

fn suggest(error: Error, word: &str, known: &[&str], are: &str) -> Error {
    let list = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(meant) => error.hint(format!("did you mean {meant:?}? {are} {list}")),
        None => error.hint(format!("{are} {list}")),
    }
}

fn check_edge(to: &Component, input: &Subscription, outputs: &Outputs) -> Result<()> {
    let found = outputs.streams.iter().find(|s| s.name == input.stream);
    let Some(stream) = found else {
        let names: Vec<&str> = outputs.streams.iter().map(|s| &*s.name).collect();
        let (of, name) = (&input.component, &input.stream);
        let error = invalid(format!(
            "{of:?} has no stream {name:?} for the edge {}",
            edge(to, input)
        ));
        return Err(if names.is_empty() {
            error.hint("it declares no output")
        } else {
            suggest(error, name, &names, "its streams are")
        });
    };
    let is_direct = matches!(input.grouping, Grouping::Direct);
    if is_direct != stream.is_direct {
        let error = invalid(format!(
            "the edge {} reads a stream that is {}direct",
            edge(to, input),
            if stream.is_direct { "" } else { "not " }
        ));
        return Err(if stream.is_direct {
            error.hint("read it with .direct(…)")
        } else {
            error.hint("declare it with direct_stream, or read it with another grouping")
        });
    }
    if input.latency.is_some_and(|it| it > Edge::MAX_LATENCY) {
        let what = format!(
            "the edge {} has a latency budget of more than {:?}",
            edge(to, input),
            Edge::MAX_LATENCY
        );
        return Err(invalid(what).hint("set a shorter budget; 0 passes each tuple on at once"));
    }
    match &input.grouping {
        Grouping::Fields(fields) => check_fields(to, input, stream, fields),
        _ => Ok(()),
    }
}

fn check_fields(
    to: &Component,
    input: &Subscription,
    stream: &OutputStream,
    fields: &[std::sync::Arc<str>],
) -> Result<()> {
    let known: Vec<&str> = stream.fields.iter().map(|field| &**field).collect();
    if fields.is_empty() {
        let error = invalid(format!("the edge {} groups by no field", edge(to, input)));
        return Err(error.hint(format!("the stream's fields are {}", known.join(", "))));
    }
    match fields.iter().find(|field| !known.contains(&&***field)) {
        None => Ok(()),
        Some(missing) => {
            let error = invalid(format!(
                "there is no field {missing:?} for the edge {}",
                edge(to, input)
            ));
            Err(suggest(error, missing, &known, "the stream's fields are"))
        }
    }
}

/// Refuses topologies with a cycle.
fn check_cycles(components: &[Component], by_name: &HashMap<&str, usize>) -> Result<()> {
    let readers = |from: usize| {
        let name = &components[from].name;
        let to = components.iter().enumerate();
        to.filter(move |(_, to)| to.inputs.iter().any(|input| input.component == *name))
            .map(|(index, _)| index)
    };
    // Components that are done and lead to no cycle.
    let mut is_clear = vec![false; components.len()];
    for start in by_name.values().copied() {
        let mut path = vec![start];
        let mut ways = vec![readers(start).collect::<Vec<_>>()];
        while let Some(way) = ways.last_mut() {
            match way.pop() {
                Some(next) if path.contains(&next) => {
                    let from = path.iter().position(|at| *at == next).unwrap_or(0);
                    return Err(cycle(components, &path[from..]));
                }
                Some(next) if is_clear[next] => {}
                Some(next) => {
                    path.push(next);
                    ways.push(readers(next).collect());
                }
                None => {
                    ways.pop();
                    if let Some(left) = path.pop() {
                        is_clear[left] = true;
                    }
                }
            }
        }
    }
    Ok(())
}

fn cycle(components: &[Component], path: &[usize]) -> Error {
    // Starts at the first component of the description, so that the message is deterministic.
    let first = path.iter().enumerate().min_by_key(|(_, at)| **at);
    let start = first.map_or(0, |(position, _)| position);
    let mut around: Vec<usize> = [&path[start..], &path[..start]].concat();
    around.extend(around.first().copied());
    let names: Vec<String> = around
        .iter()
        .map(|at| format!("{:?}", components[*at].name))
        .collect();
    let last = names.len().saturating_sub(2);
    invalid(format!("tuples would go round: {}", names.join(" → "))).hint(format!(
        "remove one of these edges, such as {}",
        names[last..].join(" → ")
    ))
}
