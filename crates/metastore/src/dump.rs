//! A textual dump of the tree, for debugging.

use std::fmt::Write;

use ardea_core::{Error, Result};

use crate::{MetadataStore, Node, ReadResult, StatePath, read_node};

/// Maximum number of characters shown of a value, unless the caller provides a description.
const SHOWN: usize = 60;

/// A node as it was read, with the nodes below it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Path of the node.
    pub path: StatePath,
    /// The node; `None` if it was deleted before it was read, or is damaged. The root has no node.
    pub node: Option<Node>,
    /// Damage of the node; `node` is then `None`. The caller may also set it on a node whose value
    /// it can't decode.
    pub damage: Option<Error>,
    /// Children, sorted by name.
    pub children: Vec<Tree>,
}

/// Reads the tree at `root`.
///
/// Nodes are read one after the other while they may change, so the result is not a consistent
/// snapshot. Needs two requests per node.
///
/// # Errors
///
/// If the metadata store does not respond. A damaged node is no error: it is shown as damaged.
pub async fn dump(state: &dyn MetadataStore, root: &StatePath) -> Result<Tree> {
    let mut children = Vec::new();
    for name in state.children(root).await? {
        // The recursion is bounded by the maximum depth of a path.
        children.push(Box::pin(dump(state, &root.child(&name)?)).await?);
    }
    let (node, damage) = match read_node(state, root).await? {
        ReadResult::Absent => (None, None),
        ReadResult::Intact(node) => (Some(node), None),
        ReadResult::Damaged(why) => (None, Some(why)),
    };
    Ok(Tree {
        path: root.clone(),
        node,
        damage,
        children,
    })
}

impl Tree {
    /// Formats the tree, one node per line: name, version, session, size, and the value as
    /// described by `shown`. Without a description, the beginning of the value is shown if it is
    /// text. For a damaged node the error is shown instead.
    pub fn text(&self, shown: impl Fn(&StatePath, &Node) -> Option<String>) -> String {
        let mut text = self.path.to_string();
        self.describe(&shown, &mut text);
        // Stack of the nodes still to be written, with their margin and true for the last child of
        // a parent.
        let mut ahead = Vec::new();
        self.push_children("", &mut ahead);
        while let Some((tree, margin, is_last)) = ahead.pop() {
            text.push_str(&margin);
            text.push_str(if is_last { "└─ " } else { "├─ " });
            text.push_str(tree.path.name().unwrap_or("/"));
            tree.describe(&shown, &mut text);
            tree.push_children(&(margin + if is_last { "   " } else { "│  " }), &mut ahead);
        }
        text
    }

    fn push_children<'t>(&'t self, margin: &str, ahead: &mut Vec<(&'t Tree, String, bool)>) {
        for (index, child) in self.children.iter().enumerate().rev() {
            let is_last = index + 1 == self.children.len();
            ahead.push((child, margin.to_string(), is_last));
        }
    }

    /// Appends the rest of the node's line.
    fn describe(&self, shown: &impl Fn(&StatePath, &Node) -> Option<String>, text: &mut String) {
        // Writing to a string can't fail.
        match &self.node {
            Some(node) => {
                let _ = write!(text, "  {}", node.version);
                if let Some(session) = &node.session {
                    let _ = write!(text, "  session {session}");
                }
                if !node.value.is_empty() {
                    let _ = write!(text, "  {} bytes", node.value.len());
                    if self.damage.is_none()
                        && let Some(value) = shown(&self.path, node).or_else(|| beginning(node))
                    {
                        let _ = write!(text, "  {value}");
                    }
                }
            }
            None if self.path.is_root() || self.damage.is_some() => {}
            None => text.push_str("  (deleted meanwhile)"),
        }
        if let Some(error) = &self.damage {
            let _ = write!(text, "  damaged: {error}");
        }
        text.push('\n');
    }
}

/// Returns the beginning of a value, if it is text.
fn beginning(node: &Node) -> Option<String> {
    let value = std::str::from_utf8(&node.value).ok()?;
    let shown: String = value.chars().take(SHOWN).collect();
    let more = if shown.len() < value.len() { "…" } else { "" };
    Some(format!("{shown:?}{more}"))
}
