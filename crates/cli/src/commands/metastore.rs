//! `ardea metastore dump` and `remove`: the contents of a cluster's metadata store, and its damaged
//! nodes.

use std::sync::Arc;

use ardea::command_line::{ClusterArgs, Context};
use ardea::console::Failure;
use ardea::job::runtime;
use ardea::job::state_of;
use ardea_core::{Error, ErrorCode};
use ardea_metastore::{MetadataStore, Node, ReadResult, StatePath, Tree, read_node};
use ardea_rest::ClusterSettings;
use ardea_server::leader::{damage_of, stored_value, sweep};
use serde_json::{Value, json};

use crate::args::{MetastoreDumpArgs, MetastoreRemoveArgs};
use crate::stdout;

/// The maximum number of characters of a value that are shown without `--whole`.
const SHOWN: usize = 200;

/// Prints the tree: one line per node, or nested objects.
pub fn dump(args: &MetastoreDumpArgs, context: &Context) -> Result<(), Failure> {
    let cluster = named(args.cluster.as_ref(), context)?;
    let below = StatePath::parse(&args.below)?;
    let mut tree = runtime()?.block_on(async {
        let state = opened(&cluster).await?;
        ardea_metastore::dump(&*state, &below).await
    })?;
    let is_nothing = tree.node.is_none() && tree.damage.is_none() && tree.children.is_empty();
    if is_nothing && !below.is_root() {
        return Err(absent(&cluster, &below).into());
    }
    name_damage(&mut tree);
    if context.json {
        let state =
            json!({ "cluster": cluster.name, "state": cluster.state, "tree": object(&tree) });
        return stdout::print_json(&state);
    }
    let text = tree.text(|path, node| {
        let value = stored_value(path, &node.value).ok()??.to_string();
        Some(if args.whole { value } else { shortened(value) })
    });
    stdout::print(&format!("{}\n{text}", cluster.state))
}

/// Removes a damaged node.
pub fn remove(args: &MetastoreRemoveArgs, context: &Context) -> Result<(), Failure> {
    let cluster = named(args.cluster.as_ref(), context)?;
    let path = StatePath::parse(&args.path)?;
    let outcome = runtime()?.block_on(async {
        let state = opened(&cluster).await?;
        let found = read_node(&*state, &path).await?;
        let is_damaged = match &found {
            ReadResult::Absent => return Err(absent(&cluster, &path)),
            ReadResult::Intact(node) => damage_of(&path, &node.value).is_some(),
            ReadResult::Damaged(_) => true,
        };
        if !is_damaged {
            return Err(whole(&path));
        }
        if state.children(&path).await?.is_empty() {
            state.delete(&path, found.expected()).await?;
            // If the node was a job's definition, removes the job's other nodes: its leader stops
            // without a lease. Hosts sweep too, but later.
            let _ = sweep(&*state).await;
            return Ok("is removed");
        }
        // A node with children has no value.
        state.set(&path, b"", found.expected()).await?;
        Ok("is mended: its damaged value was removed, and its children were kept")
    })?;
    context.print_outcome("path", path.as_str(), outcome)
}

fn named(cluster: Option<&String>, context: &Context) -> Result<ClusterSettings, Failure> {
    Ok(context.cluster(&ClusterArgs {
        cluster: cluster.cloned(),
        at: None,
    })?)
}

async fn opened(cluster: &ClusterSettings) -> Result<Arc<dyn MetadataStore>, Error> {
    state_of(cluster).await?.ok_or_else(|| {
        let (name, state) = (&cluster.name, &cluster.state);
        let what = format!("the cluster {name:?} has no state: there is no {state}");
        Error::new(ErrorCode::InvalidConfig, what).hint(
            "name the cluster with --cluster, or its metadata store with --set cluster.state=…; `ardea cluster start` creates one",
        )
    })
}

fn absent(cluster: &ClusterSettings, path: &StatePath) -> Error {
    let what = format!("{} holds no {path}", cluster.state);
    Error::new(ErrorCode::InvalidConfig, what).hint("`ardea metastore dump` prints all nodes")
}

fn whole(path: &StatePath) -> Error {
    let what = format!("{path} is not damaged, and was not removed");
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("`ardea metastore dump` names damaged nodes; `ardea kill JOB` ends a job")
}

/// Marks nodes that can't be decoded as damaged: exactly those that `remove` accepts.
fn name_damage(tree: &mut Tree) {
    if let Some(node) = &tree.node {
        tree.damage = damage_of(&tree.path, &node.value);
    }
    tree.children.iter_mut().for_each(name_damage);
}

/// Truncates a long value.
fn shortened(value: String) -> String {
    match value.char_indices().nth(SHOWN) {
        None => value,
        Some((at, _)) => format!("{}…", &value[..at]),
    }
}

/// Returns a node with all its descendants as JSON. Versions are strings, since they exceed the
/// precision of JSON numbers.
fn object(tree: &Tree) -> Value {
    let mut fields = json!({ "path": tree.path.as_str() });
    if let Some(node) = &tree.node {
        fields["version"] = json!(node.version.to_string());
        fields["bytes"] = json!(node.value.len());
        if let Some(session) = &node.session {
            fields["session"] = json!(session.to_string());
        }
        fields["value"] = value(&tree.path, node);
    }
    if let Some(damage) = &tree.damage {
        fields["damage"] = json!(damage.to_string());
    }
    fields["children"] = tree.children.iter().map(object).collect();
    fields
}

/// Returns the value of a node: decoded, or else as text, or `null` if it is empty or not text.
fn value(path: &StatePath, node: &Node) -> Value {
    let text = || std::str::from_utf8(&node.value).ok();
    let stored = stored_value(path, &node.value).unwrap_or_default();
    stored
        .or_else(|| Some(json!(text().filter(|text| !text.is_empty())?)))
        .unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_snapshot_between_characters() {
        assert_eq!(shortened("short".into()), "short");
        let long = shortened("ä".repeat(SHOWN + 1));
        assert_eq!(long, format!("{}…", "ä".repeat(SHOWN)));
    }
}
