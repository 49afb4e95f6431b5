//! The messages of the handshake and of failures, as JSON documents.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::components::{ComponentConfiguration, InstanceRole};
use super::control::GuestOptions;
use super::frame::{FrameHead, FrameType, InstanceFrame};
use super::read::Violation;

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;

/// The versions of the protocol that a side speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// The oldest version.
    pub min: u32,
    /// The newest version.
    pub max: u32,
}

impl ProtocolRange {
    /// The versions of this crate.
    pub const OWN: ProtocolRange = ProtocolRange {
        min: PROTOCOL,
        max: PROTOCOL,
    };

    /// Returns the newest version that both sides speak.
    pub fn common(self, other: ProtocolRange) -> Option<u32> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// The payload of the host's HELLO.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostHello {
    /// The versions that the host speaks.
    pub protocol: ProtocolRange,
    /// The version of Ardea.
    pub ardea: String,
}

/// The payload of the instance's HELLO.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GuestHello {
    /// The versions that the instance speaks.
    pub protocol: ProtocolRange,
    /// The language of the instance, for messages.
    #[serde(default)]
    pub language: String,
    /// The record formats that the instance reads, the preferred one first.
    pub formats: Vec<String>,
    /// True if the instance has state: it answers barriers and accepts a restore.
    #[serde(default)]
    pub state: bool,
    /// True if the instance wants watermarks, which it returns.
    #[serde(default)]
    pub watermarks: bool,
    /// True if the instance can use rings in shared memory.
    #[serde(default)]
    pub rings: bool,
    /// The names of the roles that the instance can have.
    #[serde(default = "step_only")]
    pub roles: Vec<String>,
    /// The optional parts of the protocol that the instance uses.
    #[serde(flatten)]
    pub options: GuestOptions,
}

fn step_only() -> Vec<String> {
    vec![InstanceRole::Step.as_str().into()]
}

/// The payload of CONFIGURE.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InstanceConfiguration {
    /// The version of the protocol that both sides use from here on.
    pub protocol: u32,
    /// The name of the job.
    pub job: String,
    /// The name of the step.
    pub step: String,
    /// The index of the instance, from zero.
    pub instance: u32,
    /// The number of instances of the step.
    pub instances: u32,
    /// The format of records.
    pub format: String,
    /// The schema of records, if the format has one.
    #[serde(default)]
    pub schema: Option<Value>,
    /// True if records have a key and a partition.
    #[serde(default)]
    pub keyed: bool,
    /// The guarantee of the job: `none`, `at-least-once` or `exactly-once`.
    #[serde(default)]
    pub guarantee: String,
    /// True if RESTORE frames follow.
    #[serde(default)]
    pub restore: bool,
    /// True if the instance may offer a ring; the host then offers one as well.
    #[serde(default)]
    pub rings: bool,
    /// Parameters of the step, as its author gave them.
    #[serde(default)]
    pub parameters: Value,
    /// The role of the instance in a topology, with its streams.
    #[serde(flatten)]
    pub component: ComponentConfiguration,
}

/// The payload of ERROR: a failure that ends the job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GuestFailure {
    /// The failure, such as the text of an exception.
    pub message: String,
    /// The traceback or stack, as the language prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The row of the batch named by the frame's sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// True if a restart of the job fails in the same way.
    #[serde(default)]
    pub permanent: bool,
}

impl InstanceFrame {
    /// Creates a frame whose payload is a JSON document.
    pub fn json<T: Serialize>(kind: FrameType, sequence: u64, document: &T) -> Self {
        // The documents of this module have no values that JSON lacks.
        let payload = serde_json::to_vec(document).unwrap_or_default();
        InstanceFrame::new(FrameHead::new(kind, sequence), payload)
    }

    /// Returns the JSON document of the payload.
    ///
    /// # Errors
    /// A payload that is no such document.
    pub fn read_json<T: DeserializeOwned>(&self) -> Result<T, Violation> {
        serde_json::from_slice(&self.payload).map_err(|error| {
            let name = self.head.kind.as_str();
            Violation::new(format!("the document of {name} can't be read: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_use_the_newest_common_version() {
        let of = |min, max| ProtocolRange { min, max };
        assert_eq!(of(1, 3).common(of(2, 5)), Some(3));
        assert_eq!(of(1, 1).common(of(1, 9)), Some(1));
        assert_eq!(of(1, 1).common(of(2, 9)), None);
    }

    #[test]
    fn a_hello_needs_versions_and_formats_only() {
        let text = br#"{"protocol":{"min":1,"max":2},"formats":["json"],"later":true}"#;
        let frame = InstanceFrame::new(FrameHead::new(FrameType::Hello, 0), text.to_vec());
        let hello: GuestHello = frame.read_json().unwrap();
        assert_eq!((hello.protocol.max, hello.state), (2, false));
        assert_eq!(hello.roles, ["step"]);
    }
}
