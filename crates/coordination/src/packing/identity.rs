//! Identities of vertices, instances and containers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a vertex of a job. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VertexName(Arc<str>);

impl VertexName {
    /// Creates a name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        VertexName(name.into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for VertexName {
    fn from(name: &str) -> Self {
        VertexName::new(name)
    }
}

impl fmt::Display for VertexName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for VertexName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// The id of one parallel instance of a vertex, such as `counts#3` for the fourth instance of
/// `counts`.
///
/// It is displayed and serialised in this form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId {
    /// The vertex.
    pub vertex: VertexName,
    /// The index of the instance, from zero.
    pub index: u32,
}

impl InstanceId {
    /// Creates the id of instance `index` of `vertex`.
    pub fn new(vertex: impl Into<VertexName>, index: u32) -> Self {
        InstanceId {
            vertex: vertex.into(),
            index,
        }
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.vertex, self.index)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not an instance id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} names no instance: expected `vertex#index`, such as `counts#3`")]
pub struct IdentityError(String);

impl FromStr for InstanceId {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        // The text is split at the last `#`, since the name of a vertex may contain `#`.
        text.rsplit_once('#')
            .filter(|(vertex, _)| !vertex.is_empty())
            .and_then(|(vertex, index)| Some(InstanceId::new(vertex, index.parse().ok()?)))
            .ok_or_else(|| IdentityError(text.to_string()))
    }
}

impl Serialize for InstanceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for InstanceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The number of a container of a job. The built-in policies number containers from one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ContainerId(pub u32);

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_reads_back_as_it_is_written() {
        for id in [InstanceId::new("counts", 3), InstanceId::new("a#b", 0)] {
            assert_eq!(id.to_string().parse(), Ok(id.clone()));
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<InstanceId>(&json).unwrap(), id);
        }
    }

    #[test]
    fn what_names_no_instance_is_refused_with_an_example() {
        for text in [
            "",
            "counts",
            "#1",
            "counts#",
            "counts#-1",
            "counts#99999999999",
        ] {
            let error = text.parse::<InstanceId>().unwrap_err();
            assert!(error.to_string().contains("counts#3"), "{text}");
        }
    }
}
