//! Savepoints, and what would become of them, as people and programs read it.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ardea_checkpoint::local::{KeptStates, place_of_savepoint};
use ardea_checkpoint::savepoint::{
    Checked, Dropping, JobStates, Savepoint, SavepointManifest, SavepointState, StateDiff, diff,
};
use ardea_config::readable_bytes;
use ardea_core::{Error, ErrorCode, Result, StateForm, shown};
use ardea_engine::Job;
use ardea_rest::StatesView;
use serde_json::{Value, json};

/// What a savepoint is: `ardea savepoint inspect`.
#[derive(Clone, Debug)]
pub struct SavedJob {
    place: PathBuf,
    manifest: SavepointManifest,
    checked: Option<Checked>,
}

impl SavedJob {
    /// Looks at the savepoint in a folder; with `check` reads all of it, and verifies it.
    ///
    /// # Errors
    /// `ReadFailed` if there is no such folder, `NoSuchSnapshot` if there is none in it, `SnapshotDamaged` if it isn't whole.
    pub fn look(place: &Path, check: bool) -> Result<Self> {
        let savepoint = Savepoint::open(place_of_savepoint(place)?)?;
        Ok(SavedJob {
            place: place.to_path_buf(),
            checked: check.then(|| savepoint.check()).transpose()?,
            manifest: savepoint.manifest().clone(),
        })
    }

    /// One that was just written there.
    pub fn written(place: &Path, manifest: SavepointManifest) -> Self {
        SavedJob {
            place: place.to_path_buf(),
            manifest,
            checked: None,
        }
    }

    /// One that a cluster has written there, with what it says of itself.
    ///
    /// # Errors
    /// `BadAnswer` if that can't be read.
    pub fn told(place: &Path, manifest: Value) -> Result<Self> {
        let manifest = serde_json::from_value(manifest).map_err(|error| {
            let what = "what the cluster says of the savepoint can't be read";
            Error::new(ErrorCode::BadAnswer, what)
                .because(error)
                .hint("ask by a program of the cluster's version; the savepoint is there")
        })?;
        Ok(SavedJob::written(place, manifest))
    }

    /// All of it as one object.
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

impl fmt::Display for SavedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manifest = &self.manifest;
        let place = self.place.display().to_string();
        writeln!(
            f,
            "{} in {}: savepoint of epoch {}, {}, by Ardea {}",
            shown(&manifest.job),
            shown(&place),
            manifest.snapshot.epoch.0,
            manifest.at(),
            shown(&manifest.ardea)
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
                shown(&name).into_owned(),
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

/// What the program of a job says that it remembers.
///
/// # Errors
/// `InvalidJob` if it has no graph; whatever keeps its steps from being made.
pub fn remembered(job: &dyn Job) -> Result<KeptStates> {
    Ok(KeptStates {
        job: job.name().to_string(),
        epoch: ardea_core::Epoch(0),
        states: JobStates::of(&job.graph(NonZeroU32::MIN)?)?,
    })
}

/// What a job on a cluster remembers, as that tells it.
///
/// # Errors
/// `BadAnswer` if that can't be read.
pub fn told_states(told: StatesView) -> Result<KeptStates> {
    let states = serde_json::from_value(told.states).map_err(|error| {
        let what = format!(
            "what the cluster says of the states of {:?} can't be read",
            told.job
        );
        Error::new(ErrorCode::BadAnswer, what)
            .because(error)
            .hint("ask by a program of the cluster's version")
    })?;
    Ok(KeptStates {
        job: told.job,
        epoch: ardea_core::Epoch(told.epoch),
        states,
    })
}

/// What becomes of what a job has kept, if another program goes on from it: `ardea diff`.
#[derive(Clone, Debug)]
pub struct Comparison {
    old: String,
    new: String,
    diff: StateDiff,
}

impl Comparison {
    /// Of what is kept in a folder, which is a savepoint's or a job's, and a program or what another one has kept. Changes nothing.
    pub fn of(old: (&str, &KeptStates), new: (&str, &KeptStates), dropping: &Dropping) -> Self {
        Comparison {
            old: old.0.to_string(),
            new: new.0.to_string(),
            diff: diff(&old.1.states, &new.1.states, dropping),
        }
    }

    /// Refuses what can't be, for whoever sees the comparison as well.
    ///
    /// # Errors
    /// `InvalidJob`, with the states that can't be kept; why is in the comparison.
    pub fn check(&self) -> Result<()> {
        self.diff.check_shown(&self.new, &self.old)
    }

    /// All of it as one object.
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

    fn kept(value: Schema) -> KeptStates {
        let shape = StateShape::of_values("keys", Some(Schema::Text), value);
        KeptStates {
            job: "words".into(),
            epoch: Epoch(7),
            states: JobStates::default().with("counts", [shape]),
        }
    }

    #[test]
    fn a_comparison_tells_people_and_programs_the_same() {
        let (old, new) = (kept(Schema::I64), kept(Schema::I32));
        let nothing = Dropping::nothing();
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
