//! The manifest of a savepoint.
//!
//! The manifest is the file `savepoint.manifest`. Its first line is `ardea savepoint 1 xxh3
//! 0123456789abcdef`: the version of the format, and the checksum of everything after the line. The
//! rest is JSON. Members may be added to the JSON without a new version.

use std::collections::BTreeMap;

use crate::store::{CheckpointId, FileName, ObjectStore, Unsealed, seal, unseal};
use ardea_core::{Error, ErrorCode, Result, StateForm, Timestamp};
use serde::{Deserialize, Serialize};

use crate::savepoint::copy::StateCount;
use crate::savepoint::job_schema::{JobStateSchema, VertexStates};

const KIND: &str = "ardea savepoint";
const FORMAT: &str = "1";
const FILE: &str = "savepoint.manifest";

/// The manifest of a savepoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavepointManifest {
    /// The version of Ardea that wrote the savepoint.
    pub ardea: String,
    /// The unique id of the savepoint.
    pub id: String,
    /// The job's name.
    pub job: String,
    /// The checkpoint that contains the state, in the same folder.
    pub checkpoint: CheckpointId,
    /// The file name of that checkpoint's manifest, which lists all blocks.
    pub manifest: String,
    /// The commit time of the checkpoint's epoch, in microseconds since 1970.
    pub at_micros: i64,
    /// All vertices of the job.
    pub vertices: BTreeMap<String, SavepointVertex>,
}

/// A vertex in a savepoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavepointVertex {
    /// The parallelism of the vertex.
    pub instances: u32,
    /// True if the name of the vertex is generated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_generated_name: bool,
    /// The states of the vertex, by name.
    pub states: BTreeMap<String, SavepointState>,
}

/// A state in a savepoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavepointState {
    /// The form of the state's entries.
    pub form: StateForm,
    /// The counts and the checksum of the state's entries.
    #[serde(flatten)]
    pub count: StateCount,
}

impl SavepointManifest {
    /// Returns the file name of the manifest, `savepoint.manifest`.
    pub fn file() -> Result<FileName> {
        FileName::new(FILE)
            .ok_or_else(|| Error::new(ErrorCode::Internal, "a savepoint has no name"))
    }

    /// Returns the commit time of the savepoint's epoch.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at_micros)
    }

    /// Returns the state schema for a restore. States without entries are left out, since dropping
    /// them loses nothing.
    pub fn states(&self) -> JobStateSchema {
        self.states_with(|count| count.entries > 0)
    }

    /// Returns the state schema that the program declared, including states without entries.
    pub fn declared_states(&self) -> JobStateSchema {
        self.states_with(|_| true)
    }

    fn states_with(&self, is_meant: impl Fn(&StateCount) -> bool) -> JobStateSchema {
        let vertices = self.vertices.iter().map(|(name, vertex)| {
            let states = vertex.states.iter();
            let meant = states.filter(|(_, state)| is_meant(&state.count));
            let states = VertexStates {
                has_generated_name: vertex.has_generated_name,
                states: meant
                    .map(|(name, state)| (name.clone(), state.form.clone()))
                    .collect(),
            };
            (name.clone(), states)
        });
        JobStateSchema {
            vertices: vertices.collect(),
        }
    }

    /// Encodes the manifest as the content of its file.
    ///
    /// # Errors
    /// `Internal` if the manifest cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec_pretty(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a savepoint can't be described").because(error)
        })?;
        Ok(seal(KIND, FORMAT, &body))
    }

    /// Reads the manifest in this folder.
    ///
    /// # Errors
    /// `NoSuchCheckpoint` if the folder has no savepoint manifest; `CheckpointDamaged` or
    /// `VersionMismatch`; those of [`ObjectStore::read`].
    pub fn read(folder: &dyn ObjectStore) -> Result<Self> {
        let place = folder.place();
        let file = folder.read(&SavepointManifest::file()?)?.ok_or_else(|| {
            let what = format!("there is no savepoint in {place}");
            Error::new(ErrorCode::NoSuchCheckpoint, what)
                .hint("name the folder that a savepoint was written to")
        })?;
        let damaged = |why: String| {
            let what = format!("{FILE} in {place} is damaged: {why}");
            Error::new(ErrorCode::CheckpointDamaged, what)
                .hint("restore it from a copy; check the disk")
        };
        let body = unseal(KIND, FORMAT, &file).map_err(|wrong| match wrong {
            Unsealed::Damaged => damaged("its first line does not fit what follows".into()),
            Unsealed::Version(version) => {
                let what = format!(
                    "{FILE} in {place} is of version {version} of the format, which is not known here"
                );
                Error::new(ErrorCode::VersionMismatch, what)
                    .hint("read it by the version of Ardea that wrote it, or by a later one")
            }
        })?;
        serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))
    }
}
