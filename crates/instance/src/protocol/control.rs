//! The optional parts of the protocol, for instances of the job's own program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The optional parts of the protocol that an instance uses; by default none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GuestOptions {
    /// True if the instance accepts CONTROL.
    #[serde(default)]
    pub control: bool,
    /// True if the key of each entry of the state begins with the name of the state. Entries may
    /// then have no partition.
    #[serde(default)]
    pub named_state: bool,
    /// True if the instance answers COMMIT by COMMIT.
    #[serde(default)]
    pub commits: bool,
}

/// The payload of CONTROL: the present state of the topology. Fields that are missing are
/// unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InstanceControl {
    /// True if the spout may emit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// The parallelism of each component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<BTreeMap<String, u32>>,
    /// An epoch that has no checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<u64>,
}

/// The payload of COUNTS: the records that the instance has counted since the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VertexCounts {
    /// Late records.
    pub late: u64,
    /// Records that missed some of their windows.
    pub late_in_part: u64,
    /// Records that could not be processed.
    pub bad: u64,
}

impl VertexCounts {
    /// Returns the growth since `before`.
    pub fn since(self, before: VertexCounts) -> VertexCounts {
        VertexCounts {
            late: self.late.saturating_sub(before.late),
            late_in_part: self.late_in_part.saturating_sub(before.late_in_part),
            bad: self.bad.saturating_sub(before.bad),
        }
    }
}

/// The payload of DEADLETTER.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GuestDeadLetter {
    /// The origin of the record.
    pub origin: String,
    /// The record as text.
    pub raw: String,
    /// The reason.
    pub reason: String,
    /// True if the record counts as one that user code failed to process.
    #[serde(default)]
    pub failed: bool,
}

/// Appends the key of an entry with the name of its state.
pub fn write_named_key(state: &str, key: &[u8], out: &mut Vec<u8>) {
    // A longer name is cut off by the host's check of the state.
    let length = u16::try_from(state.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&state.as_bytes()[..usize::from(length)]);
    out.extend_from_slice(key);
}

/// Returns the name of the state and the key of an entry; `None` if the key has no name.
pub fn split_named_key(key: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = key.split_first_chunk()?;
    let (name, key) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(name).ok()?, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_state_and_its_key_are_read_as_they_were_written() {
        let mut key = Vec::new();
        write_named_key("counts", b"to", &mut key);
        assert_eq!(split_named_key(&key), Some(("counts", &b"to"[..])));
        for cut in 0..8 {
            assert_eq!(split_named_key(&key[..cut]), None);
        }
    }

    #[test]
    fn a_control_holds_changes_only() {
        let control = InstanceControl {
            active: Some(false),
            ..InstanceControl::default()
        };
        assert_eq!(
            serde_json::to_string(&control).unwrap(),
            r#"{"active":false}"#
        );
    }
}
