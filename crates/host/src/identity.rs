//! Who a host may be: a name that folders and paths can have, in the cluster whose state it is given.

use ardea_core::{Error, ErrorCode, Result};
use ardea_state_manager::{Found, StateManager, layout, look};

/// Refuses a name that can't be that of a folder, or leads out of the cluster's.
///
/// # Errors
///
/// [`InvalidConfig`](ErrorCode::InvalidConfig).
pub(crate) fn check_name(name: &str) -> Result<()> {
    layout::workers()?.child(name).map(drop).map_err(|error| {
        let what = format!("a host can't be named {name:?}");
        let why = error.without_hint();
        let hint = "take letters, digits, '-', '_' and '.', no '.' in front";
        Error::new(ErrorCode::InvalidConfig, what)
            .because(why)
            .hint(hint)
    })
}

/// Sees that the state is this cluster's: the first host writes down whose it is.
///
/// # Errors
///
/// [`WrongCluster`](ErrorCode::WrongCluster) if it is another's; that of the state manager if it doesn't answer.
pub(crate) async fn claim(state: &dyn StateManager, cluster: &str) -> Result<()> {
    let path = layout::cluster()?;
    loop {
        let found = look(state, &path).await?;
        if let Found::Whole(node) = &found {
            return match String::from_utf8_lossy(&node.value) {
                of if of == cluster => Ok(()),
                of => Err(another(state, &of, cluster)),
            };
        }
        match state.set(&path, cluster.as_bytes(), found.expected()).await {
            Ok(_) => return Ok(()),
            // Another host may have been faster, or this was done.
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::StateConflict | ErrorCode::StateUnknown
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

fn another(state: &dyn StateManager, of: &str, cluster: &str) -> Error {
    let place = state.place();
    let what = format!("{place} has the state of cluster {of}, and not of {cluster}");
    Error::new(ErrorCode::WrongCluster, what)
        .hint("name a place of its own with cluster.state, or the cluster with --cluster")
}

#[cfg(test)]
mod tests {
    use ardea_state_manager::{FileState, StateOptions};

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
        let error = claim(&state, "pier").await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongCluster, "{error}");
        assert!(error.to_string().contains("of cluster quay"), "{error}");
    }
}
