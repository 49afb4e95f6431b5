//! `ardea map`.

use clap::Subcommand;

use super::cluster::Where;
use super::within;

pub(super) const MAP_HELP: &str = "\
Examples:
  ardea map list
  ardea map get delays JFK
  ardea map scan delays --prefix J --limit 20
  ardea map scan ships --where flag=NO --json
  ardea map watch ships --where port.country=NO
  ardea map put limits 7 '{\"most\": 200}'
  ardea map remove limits 7
  ardea map drop delays

Maps are made by jobs that write to them, and outlive these. Keys and values are JSON; a key or value that is a text is written as it is. The memory \
that maps may take on each host is cluster.map_memory.";

/// `ardea map …`.
#[derive(Subcommand, Debug)]
pub enum MapCommand {
    /// List the maps of a cluster: the types of their keys and values, how many entries they have, and what these take in memory
    List(Where),
    /// Print what a key of a map has, as JSON
    Get(MapKeyArgs),
    /// Print entries of a map, sorted by key: the key, then the value as JSON
    Scan(MapScanArgs),
    /// Print what happens to a map from now on, a line of JSON for each change, until Ctrl-C
    Watch(MapWatchArgs),
    /// Give a key of a map a value
    Put(MapPutArgs),
    /// Remove a key of a map; prints what it had
    Remove(MapKeyArgs),
    /// Remove all that a map has, and its name; a job that writes to it makes it anew
    Drop(MapArgs),
}

/// A map.
#[derive(clap::Args, Debug)]
pub struct MapArgs {
    /// The map's name; `ardea map list` lists them
    #[arg(value_name = "MAP")]
    pub map: String,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
}

/// A key of a map.
#[derive(clap::Args, Debug)]
pub struct MapKeyArgs {
    /// Which map.
    #[command(flatten)]
    pub map: MapArgs,
    /// The key: as it is if keys are texts, else as JSON
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub key: String,
}

/// Which entries.
#[derive(clap::Args, Debug)]
pub struct MapFilterArgs {
    /// Only those whose key begins so: a text as it is, any other key as its JSON
    #[arg(long, value_name = "START", allow_hyphen_values = true)]
    pub prefix: Option<String>,
    /// Only those in whose value a field has this value; of a struct in it, OUTER.INNER=VALUE
    #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = field_is)]
    pub field: Option<String>,
}

/// `ardea map scan`.
#[derive(clap::Args, Debug)]
pub struct MapScanArgs {
    /// Which map.
    #[command(flatten)]
    pub map: MapArgs,
    /// Which entries.
    #[command(flatten)]
    pub filter: MapFilterArgs,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = ardea_rest::DEFAULT_MAP_ENTRIES, value_parser = limit)]
    pub limit: u32,
}

/// `ardea map watch`.
#[derive(clap::Args, Debug)]
pub struct MapWatchArgs {
    /// Which map.
    #[command(flatten)]
    pub map: MapArgs,
    /// Which entries; what is removed is told by its key alone.
    #[command(flatten)]
    pub filter: MapFilterArgs,
}

/// `ardea map put`.
#[derive(clap::Args, Debug)]
pub struct MapPutArgs {
    /// Which key.
    #[command(flatten)]
    pub key: MapKeyArgs,
    /// The value, as JSON; what is no JSON is a text
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
}

fn limit(text: &str) -> Result<u32, String> {
    within(1..=ardea_rest::MOST_MAP_ENTRIES, text)
}

fn field_is(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((field, _)) if !field.is_empty() => Ok(text.to_string()),
        _ => Err("write FIELD=VALUE, such as flag=NO".into()),
    }
}
