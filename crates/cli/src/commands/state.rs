//! `ardea state dump`: what a cluster remembers, as its state manager holds it.

use ardea::job::state_of;
use ardea_core::{Error, ErrorCode};
use ardea_master::stored_value;
use ardea_state_manager::{Node, StatePath, Tree};
use serde_json::{Value, json};

use crate::args::{StateDumpArgs, Where};
use crate::context::Context;
use crate::failure::Failure;
use crate::reach::runtime;
use crate::stdout;

/// The most characters of a value that are shown unless all is asked for.
const SHOWN: usize = 200;

/// Prints the tree, a node a line, or as objects within objects.
pub fn dump(args: &StateDumpArgs, context: &Context) -> Result<(), Failure> {
    let place = Where {
        cluster: args.cluster.clone(),
        at: None,
    };
    let cluster = context.cluster(&place)?;
    let below = StatePath::parse(&args.below)?;
    let tree = runtime()?.block_on(async {
        match state_of(&cluster).await? {
            Some(state) => ardea_state_manager::dump(&*state, &below).await,
            None => Err(nothing(&cluster.name, &cluster.state)),
        }
    })?;
    let is_nothing = tree.node.is_none() && tree.damage.is_none() && tree.children.is_empty();
    if is_nothing && !below.is_root() {
        let what = format!("{} holds no {below}", cluster.state);
        let error = Error::new(ErrorCode::InvalidConfig, what);
        return Err(error
            .hint("`ardea state dump` prints all that is there")
            .into());
    }
    if context.json {
        let state =
            json!({ "cluster": cluster.name, "state": cluster.state, "tree": object(&tree) });
        return stdout::print_json(&state);
    }
    let text = tree.text(|path, node| {
        let value = stored_value(path, &node.value)?.to_string();
        Some(if args.whole { value } else { shortened(value) })
    });
    stdout::print(&format!("{}\n{text}", cluster.state))
}

fn nothing(cluster: &str, state: &str) -> Error {
    let what = format!("the cluster {cluster:?} has no state: there is no {state}");
    Error::new(ErrorCode::InvalidConfig, what).hint(
        "name the cluster with --cluster, or where its state is with --set cluster.state=…; `ardea cluster start` makes one",
    )
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
    stored_value(path, &node.value)
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
