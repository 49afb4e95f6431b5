//! What stands in a node of the state manager, for people and programs that look into it.

use ardea_core::{Error, ErrorCode};
use ardea_state_manager::StatePath;
use ardea_state_manager::layout::submission_led_by;
use serde_json::{Value, json};

use crate::StoredJob;
use crate::store::read_lease;

/// The value of the node at `path` as JSON: of a job's definition what was submitted and what its masters have decided, of all
/// others what is written there as JSON. `None` of what is neither.
///
/// A definition that can't be read is told as an object with the one field `unreadable`.
pub fn stored_value(path: &StatePath, value: &[u8]) -> Option<Value> {
    let names: Vec<&str> = path.names().collect();
    if !matches!(names[..], ["jobs", _, "definition"]) {
        return serde_json::from_slice(value).ok();
    }
    Some(match StoredJob::decode(value) {
        Ok(job) => json!({ "submitted": &*job.submitted, "record": &*job.record }),
        Err(error) => json!({ "unreadable": error.to_string() }),
    })
}

/// Why a job can't go on with the value of its node at `path`, if that is damaged: of its definition, or of a lease. The
/// others are written anew by whoever they are from. What another version of Ardea has written is not damaged.
pub fn damage_of(path: &StatePath, value: &[u8]) -> Option<Error> {
    let names: Vec<&str> = path.names().collect();
    let read = match names[..] {
        ["jobs", _, "definition"] => StoredJob::decode(value).map(drop),
        ["jobs", _, lease] if submission_led_by(lease).is_some() => read_lease(value).map(drop),
        _ => Ok(()),
    };
    let error = read.err();
    error.filter(|error| error.code() == ErrorCode::StateCorrupt)
}

#[cfg(test)]
mod tests {
    use ardea_state_manager::layout::JobLayout;

    use super::*;
    use crate::stored_job::tests::job;

    #[test]
    fn a_definition_is_unpacked_and_other_nodes_are_read_as_json() {
        let layout = JobLayout::of("word-count").unwrap();
        let (stored, _) = job(10, 2);
        let value = stored.encode().unwrap();
        let told = stored_value(layout.definition(), &value).unwrap();
        let definition = &told["submitted"]["definition"];
        assert_eq!(definition["job"]["name"], "word-count");
        assert_eq!(definition["program"]["executable"], "bin/word-count");
        assert!(told["record"].is_object(), "{told}");
        let lease = layout.master(42).unwrap();
        let told = stored_value(&lease, br#"{"version": 1}"#);
        assert_eq!(told, Some(json!({ "version": 1 })));
        assert_eq!(stored_value(&lease, b"\xff"), None);
        let damaged = stored_value(layout.definition(), &value[..9]).unwrap();
        assert!(damaged["unreadable"].is_string(), "{damaged}");
    }

    #[test]
    fn a_definition_and_a_lease_are_damaged_that_can_not_be_read() {
        let layout = JobLayout::of("word-count").unwrap();
        let (definition, lease) = (layout.definition(), layout.master(42).unwrap());
        let value = job(10, 2).0.encode().unwrap();
        let is_damaged = |path, value: &[u8]| damage_of(path, value).is_some();
        assert!(!is_damaged(definition, &value));
        assert!(is_damaged(definition, &value[..40]));
        assert!(is_damaged(&lease, b"{}"));
        // Of another version, and what is nothing of the kind.
        let mut later = value;
        later[4] = 9;
        assert!(!is_damaged(definition, &later));
        assert!(!is_damaged(layout.scheduler(), b"{}"));
        assert!(!is_damaged(layout.base(), b""));
    }
}
