//! `ardea map`: the maps of a cluster.

use std::thread;
use std::time::Duration;

use ardea::command_line::Context;
use ardea::command_line::{ClusterArgs, ClusterConnection};
use ardea::console::format_number::{counted, grouped};
use ardea::console::{Failure, print_error};
use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode, PARTITION_COUNT, escape_invisible};
use ardea_rest::{MapEntryView, MapEvent, MapPutRequest, MapQuery, MapsView};
use serde_json::{Value, json};

use crate::args::{
    MapArgs, MapCommand, MapFilterArgs, MapKeyArgs, MapPutArgs, MapScanArgs, MapWatchArgs,
};
use crate::columns::table;
use crate::stdout;

/// The delay before an interrupted stream of changes is requested again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The notice of an interrupted stream of changes.
const RECONNECT_NOTICE: &str = "the connection to the host that sends changes was lost: reconnecting; scan the map for missed changes";

/// Runs a subcommand.
pub fn run(command: MapCommand, context: &Context) -> Result<(), Failure> {
    match command {
        MapCommand::List(place) => list(&place, context),
        MapCommand::Get(args) => get(&args, context),
        MapCommand::Scan(args) => scan(&args, context),
        MapCommand::Watch(args) => watch(&args, context),
        MapCommand::Put(args) => put(&args, context),
        MapCommand::Remove(args) => remove(&args, context),
        MapCommand::Drop(args) => drop_map(&args, context),
    }
}

fn list(place: &ClusterArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(place, context)?;
    let maps = cluster.wait_for(cluster.client.maps())?;
    if context.json {
        return stdout::print_json(&json!(maps));
    }
    if maps.maps.is_empty() {
        print_status(
            &format!("cluster {} has no maps", cluster.settings.name),
            context,
        );
        return Ok(());
    }
    stdout::print(&maps_table(&maps))
}

fn maps_table(maps: &MapsView) -> String {
    let rows: Vec<Vec<String>> = maps
        .maps
        .iter()
        .map(|map| {
            vec![
                map.name.clone(),
                map.keys.clone(),
                map.values.clone(),
                grouped(map.entries),
                readable_bytes(map.bytes),
            ]
        })
        .collect();
    let text = table(&["map", "keys", "values", ">entries", ">memory"], &rows);
    let limit = readable_bytes(maps.limit_bytes);
    let copies = match maps.unsettled_partitions {
        0 => "with all their copies".to_string(),
        some => format!("{some} of {PARTITION_COUNT} partitions do not have all copies yet"),
    };
    let hosts = counted(maps.hosts, "host");
    format!("{text}stored by {hosts}, {copies}; at most {limit} per host, copies included\n")
}

fn get(args: &MapKeyArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.map.place, context)?;
    let entry = cluster.wait_for(cluster.client.map_entry(&args.map.map, &args.key))?;
    print_value(&entry, context)
}

/// Prints the value: on a terminal without its key.
fn print_value(entry: &MapEntryView, context: &Context) -> Result<(), Failure> {
    match context.json {
        true => stdout::print_json(&json!(entry)),
        false => stdout::print_json(&entry.value),
    }
}

fn query(filter: &MapFilterArgs, limit: Option<u32>) -> MapQuery {
    MapQuery {
        prefix: filter.prefix.clone(),
        field: filter.field.clone(),
        limit,
    }
}

fn scan(args: &MapScanArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.map.place, context)?;
    let query = query(&args.filter, Some(args.limit));
    let found = cluster.wait_for(cluster.client.map_entries(&args.map.map, &query))?;
    if context.json {
        return stdout::print_json(&json!(found));
    }
    stdout::print(&found.entries.iter().map(line).collect::<String>())?;
    if found.more {
        print_status(
            "there are more: raise --limit, or narrow it down with --prefix or --where",
            context,
        );
    }
    Ok(())
}

/// Formats an entry as a line.
fn line(entry: &MapEntryView) -> String {
    let key = match &entry.key {
        Value::String(text) => escape_invisible(text).into_owned(),
        other => other.to_string(),
    };
    format!("{key}  {}\n", entry.value)
}

/// Prints changes until the reader closes the output or an interrupt arrives. After the loss of a
/// host, requests the changes from another one, and prints that some may be missing.
fn watch(args: &MapWatchArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.map.place, context)?;
    let query = query(&args.filter, None);
    let mut changes = cluster.wait_for(cluster.client.map_changes(&args.map.map, &query))?;
    loop {
        match cluster.wait_for(changes.next()) {
            Ok(Some(event)) => stdout::print_json(&json!(event))?,
            Err(Failure::Error(error)) if !is_transient(&error) => return Err(error.into()),
            Ok(None) | Err(Failure::Error(_)) => {
                print_status(RECONNECT_NOTICE, context);
                thread::sleep(RETRY_DELAY);
                changes = cluster.wait_for(cluster.client.map_changes(&args.map.map, &query))?;
                stdout::print_json(&json!(MapEvent::Missed))?;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Returns true if the error is transient: another host, or the same one later, may have more
/// changes.
fn is_transient(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::Network | ErrorCode::Superseded | ErrorCode::StateUnavailable
    )
}

fn put(args: &MapPutArgs, context: &Context) -> Result<(), Failure> {
    let MapKeyArgs { map, key } = &args.key;
    let cluster = ClusterConnection::of(&map.place, context)?;
    let value = serde_json::from_str(&args.value);
    let request = MapPutRequest {
        value: value.unwrap_or_else(|_| Value::String(args.value.clone())),
    };
    let entry = cluster.wait_for(cluster.client.put_entry(&map.map, key, &request))?;
    match context.json {
        true => stdout::print_json(&json!(entry)),
        false => Ok(()),
    }
}

fn remove(args: &MapKeyArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.map.place, context)?;
    let had = cluster.wait_for(cluster.client.remove_entry(&args.map.map, &args.key))?;
    print_value(&had, context)
}

fn drop_map(args: &MapArgs, context: &Context) -> Result<(), Failure> {
    let cluster = ClusterConnection::of(&args.place, context)?;
    cluster.wait_for(cluster.client.drop_map(&args.map))?;
    match context.json {
        true => stdout::print_json(&json!({ "map": args.map, "outcome": "dropped" })),
        false => Ok(()),
    }
}

fn print_status(what: &str, context: &Context) {
    if !context.quiet && !context.json {
        print_error(&format!("{what}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line_whatever_its_key_is() {
        let entry = |key: Value| MapEntryView {
            key,
            value: json!({ "n": 1 }),
        };
        assert_eq!(line(&entry("JFK".into())), "JFK  {\"n\":1}\n");
        assert_eq!(line(&entry("a\nb".into())), "a\\nb  {\"n\":1}\n");
        assert_eq!(line(&entry(json!(["a", 1]))), "[\"a\",1]  {\"n\":1}\n");
    }
}
