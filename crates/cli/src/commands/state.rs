//! `ardea state dump` and `remove`: what a cluster remembers, as its state manager holds it, and what of it is damaged.

use std::sync::Arc;

use ardea::job::state_of;
use ardea_core::{Error, ErrorCode};
use ardea_metastore::{Found, Node, StateManager, StatePath, Tree, look};
use ardea_rest::ClusterSettings;
use ardea_server::leader::{damage_of, stored_value, sweep};
use serde_json::{Value, json};

use crate::args::{StateDumpArgs, StateRemoveArgs, Where};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::reach::runtime;
use crate::stdout;

/// The most characters of a value that are shown unless all is asked for.
const SHOWN: usize = 200;

/// Prints the tree, a node a line, or as objects within objects.
pub fn dump(args: &StateDumpArgs, context: &Context) -> Result<(), Failure> {
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

/// Removes a node that is damaged.
pub fn remove(args: &StateRemoveArgs, context: &Context) -> Result<(), Failure> {
    let cluster = named(args.cluster.as_ref(), context)?;
    let path = StatePath::parse(&args.path)?;
    let outcome = runtime()?.block_on(async {
        let state = opened(&cluster).await?;
        let found = look(&*state, &path).await?;
        let is_damaged = match &found {
            Found::Absent => return Err(absent(&cluster, &path)),
            Found::Whole(node) => damage_of(&path, &node.value).is_some(),
            Found::Damaged(_) => true,
        };
        if !is_damaged {
            return Err(whole(&path));
        }
        if state.children(&path).await?.is_empty() {
            state.delete(&path, found.expected()).await?;
            // If that was a job, whoever leads it notices by the lease. Hosts do this too, though not at once.
            let _ = sweep(&*state).await;
            return Ok("is removed");
        }
        // A node above others holds nothing.
        state.set(&path, b"", found.expected()).await?;
        Ok("is mended: it holds nothing but what is below it")
    })?;
    if context.json {
        return stdout::print_json(&json!({ "path": path.as_str(), "outcome": outcome }));
    }
    if !context.quiet {
        print_error(&format!("{path} {outcome}\n"));
    }
    Ok(())
}

fn named(cluster: Option<&String>, context: &Context) -> Result<ClusterSettings, Failure> {
    context.cluster(&Where {
        cluster: cluster.cloned(),
        at: None,
    })
}

async fn opened(cluster: &ClusterSettings) -> Result<Arc<dyn StateManager>, Error> {
    state_of(cluster).await?.ok_or_else(|| {
        let (name, state) = (&cluster.name, &cluster.state);
        let what = format!("the cluster {name:?} has no state: there is no {state}");
        Error::new(ErrorCode::InvalidConfig, what).hint(
            "name the cluster with --cluster, or where its state is with --set cluster.state=…; `ardea cluster start` makes one",
        )
    })
}

fn absent(cluster: &ClusterSettings, path: &StatePath) -> Error {
    let what = format!("{} holds no {path}", cluster.state);
    Error::new(ErrorCode::InvalidConfig, what).hint("`ardea state dump` prints all that is there")
}

fn whole(path: &StatePath) -> Error {
    let what = format!("{path} is not damaged, and is left as it is");
    Error::new(ErrorCode::InvalidConfig, what)
        .hint("`ardea state dump` names what is damaged; `ardea kill` ends a job")
}

/// Says of nodes that are there, but hold what nobody can read, that they are damaged: just those that `remove` takes.
fn name_damage(tree: &mut Tree) {
    if let Some(node) = &tree.node {
        tree.damage = damage_of(&tree.path, &node.value);
    }
    tree.children.iter_mut().for_each(name_damage);
}

/// How it begins, if it is long.
fn shortened(value: String) -> String {
    match value.char_indices().nth(SHOWN) {
        None => value,
        Some((at, _)) => format!("{}…", &value[..at]),
    }
}

/// A node with all below it. Versions are told as texts: they have more digits than a number of JSON is sure to keep.
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

/// What stands in a node: decoded, or else as text, or `null` if there is nothing or no text.
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
    fn long_values_are_cut_between_characters() {
        assert_eq!(shortened("short".into()), "short");
        let long = shortened("ä".repeat(SHOWN + 1));
        assert_eq!(long, format!("{}…", "ä".repeat(SHOWN)));
    }
}
