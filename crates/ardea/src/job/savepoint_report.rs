//! Savepoints and comparisons of states, as text and JSON.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ardea_checkpoint::local::{SavedStateSchema, place_of_savepoint};
use ardea_checkpoint::savepoint::{
    AllowedDrops, Checked, JobStateSchema, Savepoint, SavepointManifest, SavepointState, StateDiff,
    diff,
};
use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode, Result, StateForm, escape_invisible};
use ardea_engine::Job;
use ardea_rest::StatesView;
use serde_json::{Value, json};

/// The description of a savepoint: `ardea savepoint inspect`.
#[derive(Clone, Debug)]
pub struct SavepointReport {
    place: PathBuf,
    manifest: SavepointManifest,
    checked: Option<Checked>,
}

impl SavepointReport {
    /// Reads the savepoint in a folder; with `check`, reads and verifies all its data.
    ///
    /// # Errors
    /// `ReadFailed` if there is no such folder, `NoSuchCheckpoint` if there is no savepoint in it,
    /// `CheckpointDamaged` if it is incomplete or damaged.
    pub fn read(place: &Path, check: bool) -> Result<Self> {
        let savepoint = Savepoint::open(place_of_savepoint(place)?)?;
        Ok(SavepointReport {
            place: place.to_path_buf(),
            checked: check.then(|| savepoint.check()).transpose()?,
            manifest: savepoint.manifest().clone(),
        })
    }

    /// Describes a savepoint that was just written to `place`.
    pub fn written(place: &Path, manifest: SavepointManifest) -> Self {
        SavepointReport {
            place: place.to_path_buf(),
            manifest,
            checked: None,
        }
    }

    /// Describes a savepoint that a cluster has written, from the manifest in its response.
    ///
    /// # Errors
    /// `BadResponse` if the manifest can't be parsed.
    pub fn from_response(place: &Path, manifest: Value) -> Result<Self> {
        let manifest = serde_json::from_value(manifest).map_err(|error| {
            let what = "cannot parse the cluster's description of the savepoint";
            Error::new(ErrorCode::BadResponse, what)
                .because(error)
                .hint("use a program of the cluster's version; the savepoint was written")
        })?;
        Ok(SavepointReport::written(place, manifest))
    }

    /// Returns the report as one JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "place": self.place.display().to_string(),
            "checked": self.checked.is_some(),
            "savepoint": self.manifest,
        })
    }

    fn states(&self) -> impl Iterator<Item = (String, &SavepointState)> {
        let vertices = self.manifest.vertices.iter();
        vertices.flat_map(|(vertex, of)| {
            let states = of.states.iter();
            states.map(move |(state, of)| (format!("{vertex}/{state}"), of))
        })
    }
}

impl fmt::Display for SavepointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manifest = &self.manifest;
        let place = self.place.display().to_string();
        writeln!(
            f,
            "{} in {}: savepoint of epoch {}, {}, by Ardea {}",
            escape_invisible(&manifest.job),
            escape_invisible(&place),
            manifest.checkpoint.epoch.0,
            manifest.at(),
            escape_invisible(&manifest.ardea)
        )?;
        let mut rows =
            vec![["state", "entries", "partitions", "bytes", "key", "value"].map(String::from)];
        for (name, state) in self.states() {
            let (key, value) = match &state.form {
                StateForm::Values { key, value } => {
                    let key = key.as_ref().map_or(String::new(), ToString::to_string);
                    (key, value.to_string())
                }
                _ => (String::new(), "(its own form)".to_string()),
            };
            let count = &state.count;
            rows.push([
                escape_invisible(&name).into_owned(),
                count.entries.to_string(),
                count.partitions.to_string(),
                readable_bytes(count.key_bytes + count.value_bytes),
                key,
                value,
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let line: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        match &self.checked {
            Some(checked) => writeln!(
                f,
                "whole: {} entries, {}",
                checked.entries,
                readable_bytes(checked.bytes)
            ),
            None => Ok(()),
        }
    }
}

/// Returns the state schema of a job's program.
///
/// # Errors
/// `InvalidJob` if it has no graph, and any error that prevents creating its steps.
pub fn program_states(job: &dyn Job) -> Result<SavedStateSchema> {
    Ok(SavedStateSchema {
        job: job.name().to_string(),
        epoch: ardea_core::Epoch(0),
        states: JobStateSchema::of(&job.graph(NonZeroU32::MIN)?)?,
    })
}

/// Parses the states of a job on a cluster from the cluster's response.
///
/// # Errors
/// `BadResponse` if the response can't be parsed.
pub fn parse_states(told: StatesView) -> Result<SavedStateSchema> {
    let states = serde_json::from_value(told.states).map_err(|error| {
        let what = format!(
            "cannot parse the cluster's description of the states of {:?}",
            told.job
        );
        Error::new(ErrorCode::BadResponse, what)
            .because(error)
            .hint("use a program of the cluster's version")
    })?;
    Ok(SavedStateSchema {
        job: told.job,
        epoch: ardea_core::Epoch(told.epoch),
        states,
    })
}

/// A comparison of a job's stored states with those of another program: `ardea diff`.
#[derive(Clone, Debug)]
pub struct Comparison {
    old: String,
    new: String,
    diff: StateDiff,
}

impl Comparison {
    /// Compares the stored states `old` of a savepoint or a job with the states `new` of a program
    /// or of another folder. Changes nothing.
    pub fn of(
        old: (&str, &SavedStateSchema),
        new: (&str, &SavedStateSchema),
        dropping: &AllowedDrops,
    ) -> Self {
        Comparison {
            old: old.0.to_string(),
            new: new.0.to_string(),
            diff: diff(&old.1.states, &new.1.states, dropping),
        }
    }

    /// Refuses an impossible restore. The error is short, for callers that also show the
    /// comparison.
    ///
    /// # Errors
    /// `InvalidJob`, with the states that can't be restored; the comparison has the reasons.
    pub fn check(&self) -> Result<()> {
        self.diff.check_shown(&self.new, &self.old)
    }

    /// Returns the comparison as one JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "old": self.old,
            "new": self.new,
            "possible": self.diff.is_possible(),
            "states": self.diff.states,
            "unknown": self.diff.unknown,
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diff.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Epoch, Schema, StateShape};

    fn kept(value: Schema) -> SavedStateSchema {
        let shape = StateShape::of_values("keys", Some(Schema::Text), value);
        SavedStateSchema {
            job: "words".into(),
            epoch: Epoch(7),
            states: JobStateSchema::default().with("counts", [shape]),
        }
    }

    #[test]
    fn a_comparison_tells_people_and_programs_the_same() {
        let (old, new) = (kept(Schema::I64), kept(Schema::I32));
        let nothing = AllowedDrops::nothing();
        let found = Comparison::of(("old", &old), ("new", &new), &nothing);
        assert_eq!(
            found.to_string(),
            "counts/keys  impossible  i64 can't be read as i32\n"
        );
        let json = found.to_json();
        assert_eq!(json["possible"], false);
        assert_eq!(json["states"][0]["verdict"], "impossible");
        let error = found.check().unwrap_err();
        assert!(error.to_string().contains("counts/keys"), "{error}");
        let found = Comparison::of(("old", &new), ("new", &old), &nothing);
        assert_eq!(
            found.to_string(),
            "counts/keys  migrate     i32 becomes i64\n"
        );
        found.check().unwrap();
    }
}
