//! The tree as text, for whoever looks for a fault.

use crate::{Node, StateManager, StatePath};
use ardea_core::Result;
use std::fmt::Write;

/// The most characters of a value that are shown.
const SHOWN: usize = 60;

/// Writes the tree below `root` as text, a node a line: name, version, session, size and, if it is text, how the value
/// begins.
///
/// Nodes are read one after the other while others may change them: this is a picture for people, no snapshot. It
/// takes two requests a node.
pub async fn dump(state: &dyn StateManager, root: &StatePath) -> Result<String> {
    let mut text = format!("{root} ({})", state.place());
    if let Some(node) = state.get(root).await? {
        describe(&node, &mut text);
    }
    text.push('\n');
    // What is still to be written, last first: the path, and the lines to the left of it.
    let mut ahead = Vec::new();
    push_children(state, root, "", &mut ahead).await?;
    while let Some((path, margin, is_last)) = ahead.pop() {
        let name = path.name().unwrap_or("/");
        text.push_str(&margin);
        text.push_str(if is_last { "└─ " } else { "├─ " });
        text.push_str(name);
        match state.get(&path).await? {
            Some(node) => describe(&node, &mut text),
            None => text.push_str("  (gone meanwhile)"),
        }
        text.push('\n');
        let margin = margin + if is_last { "   " } else { "│  " };
        push_children(state, &path, &margin, &mut ahead).await?;
    }
    Ok(text)
}

async fn push_children(
    state: &dyn StateManager,
    path: &StatePath,
    margin: &str,
    ahead: &mut Vec<(StatePath, String, bool)>,
) -> Result<()> {
    let names = state.children(path).await?;
    for (index, name) in names.iter().enumerate().rev() {
        let is_last = index + 1 == names.len();
        ahead.push((path.child(name)?, margin.to_string(), is_last));
    }
    Ok(())
}

fn describe(node: &Node, text: &mut String) {
    // Writing to a string can't fail.
    let _ = write!(text, "  {}", node.version);
    if let Some(session) = &node.session {
        let _ = write!(text, "  session {session}");
    }
    if node.value.is_empty() {
        return;
    }
    let _ = write!(text, "  {} bytes", node.value.len());
    let Ok(value) = std::str::from_utf8(&node.value) else {
        return;
    };
    let shown: String = value.chars().take(SHOWN).collect();
    let more = if shown.len() < value.len() { "…" } else { "" };
    let _ = write!(text, "  {shown:?}{more}");
}
