//! Who a host may be: a name that folders and paths can have, in the cluster whose state it is given.

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{Found, StateManager, layout, look};
use ardea_rest::wrong_name;

/// How often the answer to a claim may be lost before that is the end of it.
const MOST_DOUBTS: u32 = 3;

/// Refuses a name that can't be that of a folder, or leads out of the cluster's.
///
/// # Errors
///
/// [`InvalidConfig`](ErrorCode::InvalidConfig).
pub(crate) fn check_name(name: &str) -> Result<()> {
    match wrong_name(name) {
        None => Ok(()),
        Some(why) => {
            let what = format!("a host can't be named {name:?}");
            let error = Error::new(ErrorCode::InvalidConfig, what).because(why);
            Err(error.hint("choose another with --name"))
        }
    }
}

/// Whether the state is this cluster's: no, if it is nobody's yet.
///
/// # Errors
///
/// [`WrongCluster`](ErrorCode::WrongCluster) if it is another's; that of the state manager if it doesn't answer.
pub(crate) async fn is_claimed(state: &dyn StateManager, cluster: &str) -> Result<bool> {
    let found = look(state, &layout::cluster()?).await?;
    is_own(state, &found, cluster)
}

/// Sees that the state is this cluster's: the first host writes down whose it is.
///
/// # Errors
///
/// As [`is_claimed`], and when it can't be written.
pub(crate) async fn claim(state: &dyn StateManager, cluster: &str) -> Result<()> {
    let path = layout::cluster()?;
    let mut doubts = 0;
    loop {
        let found = look(state, &path).await?;
        if is_own(state, &found, cluster)? {
            return Ok(());
        }
        match state.set(&path, cluster.as_bytes(), found.expected()).await {
            Ok(_) => return Ok(()),
            // Another host was faster.
            Err(error) if error.code() == ErrorCode::StateConflict => {}
            // It may have been done.
            Err(error) if error.code() == ErrorCode::StateUnknown && doubts < MOST_DOUBTS => {
                doubts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_own(state: &dyn StateManager, found: &Found, cluster: &str) -> Result<bool> {
    match found {
        Found::Whole(node) => match String::from_utf8_lossy(&node.value) {
            of if of == cluster => Ok(true),
            of => Err(another(state, &of, cluster)),
        },
        _ => Ok(false),
    }
}

fn another(state: &dyn StateManager, of: &str, cluster: &str) -> Error {
    let place = state.place();
    let what = format!("{place} has the state of cluster {of}, and not of {cluster}");
    Error::new(ErrorCode::WrongCluster, what)
        .hint("name a place of its own with cluster.state, or the cluster with --cluster; if that one is no more, empty the place")
}

#[cfg(test)]
mod tests {
    use ardea_metastore::{FileState, StateOptions};

    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["host-1", "a.b_c", "10.0.0.1"] {
            check_name(name).unwrap();
        }
        for name in ["", "a/b", "../../evil", ".", "..", "a b"] {
            let error = check_name(name).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{name}");
        }
    }

    #[tokio::test]
    async fn a_state_is_of_the_first_cluster_that_comes() {
        let folder = tempfile::tempdir().unwrap();
        let state = FileState::open(folder.path(), StateOptions::default());
        let state = state.await.unwrap();
        for _ in 0..2 {
            claim(&state, "quay").await.unwrap();
        }
        for refused in [
            claim(&state, "pier").await,
            is_claimed(&state, "pier").await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().code(), ErrorCode::WrongCluster);
        }
        let error = claim(&state, "pier").await.unwrap_err();
        assert!(error.to_string().contains("of cluster quay"), "{error}");
    }
}
