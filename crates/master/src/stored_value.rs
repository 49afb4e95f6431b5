//! What stands in a node of the state manager, for people and programs that look into it.

use ardea_state_manager::StatePath;
use serde_json::{Value, json};

use crate::StoredJob;

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
}
