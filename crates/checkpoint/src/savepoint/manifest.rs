//! What a savepoint says of itself.
//!
//! The file `savepoint.manifest`: its first line is `ardea savepoint 1 xxh3 0123456789abcdef`, the version of the format and the checksum
//! of all that
//! follows, which is JSON. Members may be added without a new version.

use std::collections::BTreeMap;

use crate::store::{FileName, Folder, SnapshotId, Unsealed, seal, unseal};
use ardea_core::{Error, ErrorCode, Result, StateForm, Timestamp};
use serde::{Deserialize, Serialize};

use crate::savepoint::copying::StateCount;
use crate::savepoint::described::{JobStates, VertexStates};

const KIND: &str = "ardea savepoint";
const FORMAT: &str = "1";
const FILE: &str = "savepoint.manifest";

/// What a savepoint says of itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavepointManifest {
    /// The version of Ardea that wrote it.
    pub ardea: String,
    /// What tells it from all others.
    pub id: String,
    /// The job's name.
    pub job: String,
    /// The snapshot that it consists of, in the same folder.
    pub snapshot: SnapshotId,
    /// The file of that snapshot's manifest, which lists all blocks.
    pub manifest: String,
    /// When its epoch was committed, in microseconds since 1970.
    pub at_micros: i64,
    /// All vertices of the job.
    pub vertices: BTreeMap<String, SavepointVertex>,
}

/// A vertex in a savepoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavepointVertex {
    /// How many instances it had.
    pub instances: u32,
    /// Whether nobody had chosen its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_generated_name: bool,
    /// Its states, by their names.
    pub states: BTreeMap<String, SavepointState>,
}

/// A state in a savepoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavepointState {
    /// What its entries are.
    pub form: StateForm,
    /// How much there is of it.
    #[serde(flatten)]
    pub count: StateCount,
}

impl SavepointManifest {
    /// The name of its file.
    pub fn file() -> Result<FileName> {
        FileName::new(FILE)
            .ok_or_else(|| Error::new(ErrorCode::Internal, "a savepoint has no name"))
    }

    /// When its epoch was committed.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at_micros)
    }

    /// What the job remembered, for who goes on from it. States without an entry are left out: there is nothing in them to be kept.
    pub fn states(&self) -> JobStates {
        self.states_with(|count| count.entries > 0)
    }

    /// What the job's program may remember, whether there was something of it or not.
    pub fn told(&self) -> JobStates {
        self.states_with(|_| true)
    }

    fn states_with(&self, is_meant: impl Fn(&StateCount) -> bool) -> JobStates {
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
        JobStates {
            vertices: vertices.collect(),
        }
    }

    /// As it is written.
    ///
    /// # Errors
    /// `Internal`; never, as far as is known.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec_pretty(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a savepoint can't be described").because(error)
        })?;
        Ok(seal(KIND, FORMAT, &body))
    }

    /// Reads that of the savepoint in this folder.
    ///
    /// # Errors
    /// `NoSuchSnapshot` if there is none; `SnapshotDamaged` or `VersionMismatch`; what [`Folder::read`] returns.
    pub fn read(folder: &dyn Folder) -> Result<Self> {
        let place = folder.place();
        let file = folder.read(&SavepointManifest::file()?)?.ok_or_else(|| {
            let what = format!("there is no savepoint in {place}");
            Error::new(ErrorCode::NoSuchSnapshot, what)
                .hint("name the folder that a savepoint was written to")
        })?;
        let damaged = |why: String| {
            let what = format!("{FILE} in {place} is damaged: {why}");
            Error::new(ErrorCode::SnapshotDamaged, what)
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
