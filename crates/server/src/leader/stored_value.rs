//! Values of metadata store nodes in a readable form, for tools.

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::StatePath;
use ardea_metastore::layout::{submission_of_epochs, submission_of_lease};
use serde_json::{Value, json};

use crate::leader::StoredJob;
use crate::leader::store::read_lease;
use crate::leader::stored_epochs;

/// Returns the value of the node at `path` as JSON. Job definitions and checkpoint records are
/// decoded; other nodes must hold JSON. The result is `None` if the value is not JSON.
///
/// If the value was written by another version of Ardea and is not JSON, the result is the text of
/// the version error.
///
/// # Errors
///
/// [`ErrorCode::MetastoreCorrupt`] if a definition, a checkpoint record or a lease is damaged, so
/// that the job cannot continue. Damage to other nodes is no error, because leaders rewrite them or
/// they are for display only.
pub fn stored_value(path: &StatePath, value: &[u8]) -> Result<Option<Value>> {
    let as_json = || serde_json::from_slice(value).ok();
    let names: Vec<&str> = path.names().collect();
    let read = match names[..] {
        ["jobs", _, "definition"] => StoredJob::decode(value)
            .map(|job| Some(json!({ "submitted": &*job.submitted, "record": &*job.record }))),
        ["jobs", _, epochs] if submission_of_epochs(epochs).is_some() => {
            stored_epochs::decode(value).map(|record| Some(json!(&*record)))
        }
        ["jobs", _, lease] if submission_of_lease(lease).is_some() => {
            read_lease(value).map(|_| as_json())
        }
        _ => Ok(as_json()),
    };
    read.or_else(|error| match error.code() {
        ErrorCode::MetastoreCorrupt => Err(error),
        _ => Ok(as_json().or_else(|| Some(json!(error.to_string())))),
    })
}

/// Returns the error of [`stored_value`] if the node's value is damaged and the job cannot continue
/// with it.
pub fn damage_of(path: &StatePath, value: &[u8]) -> Option<Error> {
    stored_value(path, value).err()
}

#[cfg(test)]
mod tests {
    use ardea_metastore::layout::JobLayout;

    use super::*;
    use crate::leader::stored_job::tests::job;

    #[test]
    fn a_definition_is_unpacked_and_other_nodes_are_read_as_json() {
        let layout = JobLayout::of("word-count").unwrap();
        let (stored, _) = job(10, 2);
        let value = stored.encode().unwrap();
        let told = |path, value: &[u8]| stored_value(path, value).unwrap();
        let job = told(layout.definition(), &value).unwrap();
        let definition = &job["submitted"]["definition"];
        assert_eq!(definition["job"]["name"], "word-count");
        assert_eq!(definition["program"]["executable"], "bin/word-count");
        assert!(job["record"].is_object(), "{job}");
        let fact = told(layout.scheduler(), br#"{"name": "local"}"#);
        assert_eq!(fact, Some(json!({ "name": "local" })));
        assert_eq!(told(layout.scheduler(), b"\xff"), None);
    }

    #[test]
    fn what_another_version_has_written_is_told_as_json_or_else_why_it_is_not() {
        let layout = JobLayout::of("word-count").unwrap();
        let lease = layout.master(42).unwrap();
        let told = stored_value(&lease, br#"{"version":2}"#).unwrap();
        assert_eq!(told, Some(json!({ "version": 2 })));
        let mut later = job(10, 2).0.encode().unwrap();
        later[4] = 9;
        let told = stored_value(layout.definition(), &later).unwrap().unwrap();
        assert!(told.as_str().unwrap().contains("layout 9"), "{told}");
    }

    #[test]
    fn a_definition_and_a_lease_are_damaged_that_can_not_be_read() {
        let layout = JobLayout::of("word-count").unwrap();
        let (definition, lease) = (layout.definition(), layout.master(42).unwrap());
        let value = job(10, 2).0.encode().unwrap();
        let is_damaged = |path, value: &[u8]| damage_of(path, value).is_some();
        assert!(!is_damaged(definition, &value));
        assert!(is_damaged(definition, &value[..40]));
        for value in [&b"{}"[..], b"\xff", br#"{"version":1}"#] {
            assert!(is_damaged(&lease, value));
        }
        // A value of a later version is not damaged, and other kinds of nodes are never reported as
        // damaged.
        let mut later = value;
        later[4] = 9;
        assert!(!is_damaged(definition, &later));
        assert!(!is_damaged(&lease, br#"{"version":2}"#));
        assert!(!is_damaged(layout.scheduler(), b"{}"));
        assert!(!is_damaged(layout.base(), b""));
    }
}
