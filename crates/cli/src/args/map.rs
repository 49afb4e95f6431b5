//! The arguments of `ardea map`.

use ardea::command_line::{ClusterArgs, within};
use clap::Subcommand;

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

Jobs that write to maps create them; maps outlive these jobs. Keys and values are JSON; a text is written verbatim, without \
quotes. cluster.map_memory limits the memory of maps on each host.";

/// The subcommands of `ardea map`.
#[derive(Subcommand, Debug)]
pub enum MapCommand {
    /// List the maps of a cluster: the types of their keys and values, the number of entries, and
    /// their memory use
    List(ClusterArgs),
    /// Print the value of a key as JSON
    Get(MapKeyArgs),
    /// Print entries of a map, sorted by key: the key, then the value as JSON
    Scan(MapScanArgs),
    /// Print the changes of a map from now on, one line of JSON per change, until Ctrl-C
    Watch(MapWatchArgs),
    /// Set the value of a key
    Put(MapPutArgs),
    /// Remove a key of a map and print its value
    Remove(MapKeyArgs),
    /// Remove a map with all its entries; a job that writes to it creates it again
    Drop(MapArgs),
}

/// A map.
#[derive(clap::Args, Debug)]
pub struct MapArgs {
    /// Name of the map; `ardea map list` lists them
    #[arg(value_name = "MAP")]
    pub map: String,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// A key of a map.
#[derive(clap::Args, Debug)]
pub struct MapKeyArgs {
    /// The map.
    #[command(flatten)]
    pub map: MapArgs,
    /// The key: verbatim if keys are texts, else as JSON
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    pub key: String,
}

/// A filter of entries.
#[derive(clap::Args, Debug)]
pub struct MapFilterArgs {
    /// Only entries whose key starts with this: a text verbatim, any other key as its JSON
    #[arg(long, value_name = "START", allow_hyphen_values = true)]
    pub prefix: Option<String>,
    /// Only entries in whose value this field has this value; for a field of a nested struct,
    /// OUTER.INNER=VALUE
    #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = field_is)]
    pub field: Option<String>,
}

/// The arguments of `ardea map scan`.
#[derive(clap::Args, Debug)]
pub struct MapScanArgs {
    /// The map.
    #[command(flatten)]
    pub map: MapArgs,
    /// The filter.
    #[command(flatten)]
    pub filter: MapFilterArgs,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = ardea_rest::DEFAULT_MAP_ENTRIES, value_parser = limit)]
    pub limit: u32,
}

/// The arguments of `ardea map watch`.
#[derive(clap::Args, Debug)]
pub struct MapWatchArgs {
    /// The map.
    #[command(flatten)]
    pub map: MapArgs,
    /// The filter of changes; a removal is reported with its key only.
    #[command(flatten)]
    pub filter: MapFilterArgs,
}

/// The arguments of `ardea map put`.
#[derive(clap::Args, Debug)]
pub struct MapPutArgs {
    /// The key.
    #[command(flatten)]
    pub key: MapKeyArgs,
    /// The value as JSON; anything else is taken as a text
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
}

fn limit(text: &str) -> Result<u32, String> {
    within(1..=ardea_rest::MAX_MAP_ENTRIES, text)
}

fn field_is(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((field, _)) if !field.is_empty() => Ok(text.to_string()),
        _ => Err("write FIELD=VALUE, such as flag=NO".into()),
    }
}
