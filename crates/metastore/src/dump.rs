//! The tree as it is, for whoever looks for a fault.

use std::fmt::Write;

use ardea_core::{Error, Result};

use crate::{Found, Node, StateManager, StatePath, look};

/// The most characters of a value that are shown, unless the reader knows better.
const SHOWN: usize = 60;

/// A node as it was when it was read, and those below it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Where it is.
    pub path: StatePath,
    /// What is there; `None` if it was gone when it was to be read. A root that holds nothing is not there either.
    pub node: Option<Node>,
    /// Why what is there can't be read, if it is damaged: there is no node then. A caller who knows what should stand in a
    /// node may say so of one that is there.
    pub damage: Option<Error>,
    /// What is below it, sorted by name.
    pub children: Vec<Tree>,
}

/// Reads the tree at `root`.
///
/// Nodes are read one after the other while others may change them: this is a picture for people, no snapshot. It
/// takes two requests a node.
///
/// # Errors
///
/// When the state manager does not answer. A damaged node is none: it is shown as such, and the others as they are.
pub async fn dump(state: &dyn StateManager, root: &StatePath) -> Result<Tree> {
    let mut children = Vec::new();
    for name in state.children(root).await? {
        // A path has few parts, so this is never deep.
        children.push(Box::pin(dump(state, &root.child(&name)?)).await?);
    }
    let (node, damage) = match look(state, root).await? {
        Found::Absent => (None, None),
        Found::Whole(node) => (Some(node), None),
        Found::Damaged(why) => (None, Some(why)),
    };
    Ok(Tree {
        path: root.clone(),
        node,
        damage,
        children,
    })
}

impl Tree {
    /// As text, a node a line: name, version, session, size, and the value as `shown` tells it; where that tells nothing,
    /// how the value begins, if it is text. Of what is damaged it is told why, and no value.
    pub fn text(&self, shown: impl Fn(&StatePath, &Node) -> Option<String>) -> String {
        let mut text = self.path.to_string();
        self.describe(&shown, &mut text);
        // What is still to be written, last first: the tree, the lines to the left of it, and whether it is its parent's last.
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

    /// The rest of its line.
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
            None => text.push_str("  (gone meanwhile)"),
        }
        if let Some(error) = &self.damage {
            let _ = write!(text, "  damaged: {error}");
        }
        text.push('\n');
    }
}

/// How a value begins, if it is text.
fn beginning(node: &Node) -> Option<String> {
    let value = std::str::from_utf8(&node.value).ok()?;
    let shown: String = value.chars().take(SHOWN).collect();
    let more = if shown.len() < value.len() { "…" } else { "" };
    Some(format!("{shown:?}{more}"))
}
