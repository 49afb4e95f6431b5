//! Checks of a host's identity: its name, and the cluster that its metadata store belongs to.

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{MetadataStore, ReadResult, layout, read_node};
use ardea_rest::invalid_name_reason;

/// Maximum number of claims with an unknown outcome that are retried.
const MOST_DOUBTS: u32 = 3;

/// Rejects a name that is no valid folder name.
///
/// # Errors
///
/// [`InvalidConfig`](ErrorCode::InvalidConfig).
pub(crate) fn check_name(name: &str) -> Result<()> {
    match invalid_name_reason(name) {
        None => Ok(()),
        Some(why) => {
            let what = format!("a host can't be named {name:?}");
            let error = Error::new(ErrorCode::InvalidConfig, what).because(why);
            Err(error.hint("choose another with --name"))
        }
    }
}

/// Returns true if the metadata store belongs to this cluster, and false if it belongs to none.
///
/// # Errors
///
/// [`WrongCluster`](ErrorCode::WrongCluster) if it belongs to another cluster; the store's error if
/// it is unavailable.
pub(crate) async fn is_claimed(state: &dyn MetadataStore, cluster: &str) -> Result<bool> {
    let found = read_node(state, &layout::cluster()?).await?;
    is_own(state, &found, cluster)
}

/// Claims the metadata store for this cluster, unless it is claimed already.
///
/// # Errors
///
/// As [`is_claimed`], and if the claim cannot be written.
pub(crate) async fn claim(state: &dyn MetadataStore, cluster: &str) -> Result<()> {
    let path = layout::cluster()?;
    let mut doubts = 0;
    loop {
        let found = read_node(state, &path).await?;
        if is_own(state, &found, cluster)? {
            return Ok(());
        }
        match state.set(&path, cluster.as_bytes(), found.expected()).await {
            Ok(_) => return Ok(()),
            // Another host has claimed the store concurrently.
            Err(error) if error.code() == ErrorCode::MetastoreConflict => {}
            // The outcome is unknown: read again.
            Err(error) if error.code() == ErrorCode::OutcomeUnknown && doubts < MOST_DOUBTS => {
                doubts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_own(state: &dyn MetadataStore, found: &ReadResult, cluster: &str) -> Result<bool> {
    match found {
        ReadResult::Intact(node) => match String::from_utf8_lossy(&node.value) {
            of if of == cluster => Ok(true),
            of => Err(another(state, &of, cluster)),
        },
        _ => Ok(false),
    }
}

fn another(state: &dyn MetadataStore, of: &str, cluster: &str) -> Error {
    let place = state.place();
    let what = format!("{place} has the metadata of cluster {of}, and not of {cluster}");
    Error::new(ErrorCode::WrongCluster, what)
        .hint("set cluster.state to another location, or name the cluster with --cluster; if cluster.state belongs to a removed cluster, empty it")
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
