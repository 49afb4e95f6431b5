//! Comparison of the states of two programs: the change of each state when the other program is
//! restored.

use std::collections::BTreeSet;
use std::fmt;

use ardea_core::{Error, ErrorCode, RUNTIME_STATE, StateForm};
use serde::Serialize;

use crate::savepoint::job_schema::{JobStateSchema, VertexStates};
use crate::savepoint::schema_evolution::{Evolution, evolve, evolve_key};

/// The hint of the error for states that cannot be restored.
const WAYS_OUT: &str = "change the program so that it can; or drop what is not needed by its name (recovery.drop=VERTEX or VERTEX/STATE)";

/// The change of a state on restore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "what")]
pub enum Verdict {
    /// The state is read as it was written.
    Keep,
    /// The state is read and converted. Contains the changes in words.
    Migrate(Vec<String>),
    /// The state is dropped, as the user has allowed.
    Drop,
    /// The state is new and starts empty.
    Add,
    /// The state has no place in the program, or the program cannot read it. Contains the reasons
    /// in words.
    Impossible(Vec<String>),
}

impl Verdict {
    /// Returns the verdict as a word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Keep => "keep",
            Verdict::Migrate(_) => "migrate",
            Verdict::Drop => "drop",
            Verdict::Add => "add",
            Verdict::Impossible(_) => "impossible",
        }
    }

    /// Returns the changes of a migration, or the reasons for which the restore is impossible;
    /// otherwise nothing.
    pub fn reasons(&self) -> &[String] {
        match self {
            Verdict::Migrate(what) | Verdict::Impossible(what) => what,
            Verdict::Keep | Verdict::Drop | Verdict::Add => &[],
        }
    }
}

/// The change of one state on restore.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StateVerdict {
    /// The name of the vertex.
    pub vertex: String,
    /// The state name.
    pub state: String,
    /// The change of the state.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The changes of all states of a job on restore.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StateDiff {
    /// The verdicts, sorted by vertex and state.
    pub states: Vec<StateVerdict>,
    /// Names in the [`AllowedDrops`] that no state or vertex has.
    pub unknown: Vec<String>,
}

/// The names of the state that may be dropped: vertices as `vertex`, and single states as
/// `vertex/state`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllowedDrops(BTreeSet<String>);

impl AllowedDrops {
    /// Returns an empty set: no state may be dropped.
    pub fn nothing() -> Self {
        AllowedDrops::default()
    }

    /// Returns a set of these names.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        AllowedDrops(names.into_iter().map(Into::into).collect())
    }

    /// Returns the set of the names in a comma-separated list.
    pub fn listed(text: &str) -> Self {
        let names = text.split(',').map(str::trim);
        AllowedDrops::of(names.filter(|name| !name.is_empty()))
    }

    /// Returns true if no state may be dropped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if all state of a vertex may be dropped.
    pub fn has_vertex(&self, vertex: &str) -> bool {
        self.0.contains(vertex)
    }

    /// Returns true if this state may be dropped, by its own name or that of its vertex.
    pub fn has(&self, vertex: &str, state: &str) -> bool {
        self.has_vertex(vertex) || self.0.contains(&format!("{vertex}/{state}"))
    }
}

/// Compares the states `old` with the states of the program to be restored, `new`. Uses the schemas
/// only, and changes nothing.
pub fn diff(old: &JobStateSchema, new: &JobStateSchema, dropping: &AllowedDrops) -> StateDiff {
    let mut found = StateDiff::default();
    for (vertex, was) in &old.vertices {
        let now = new.vertices.get(vertex);
        for (state, form) in own_states(was) {
            let verdict = match dropping.has(vertex, state) {
                true => Verdict::Drop,
                false => kept(vertex, (state, form), is_unnamed(old, vertex), now),
            };
            found.states.push(StateVerdict {
                vertex: vertex.clone(),
                state: state.clone(),
                verdict,
            });
        }
    }
    for (vertex, now) in &new.vertices {
        let was = old.vertices.get(vertex);
        for (state, _) in own_states(now) {
            if was.is_none_or(|was| !was.states.contains_key(state)) {
                found.states.push(StateVerdict {
                    vertex: vertex.clone(),
                    state: state.clone(),
                    verdict: Verdict::Add,
                });
            }
        }
    }
    found
        .states
        .sort_by(|a, b| (&a.vertex, &a.state).cmp(&(&b.vertex, &b.state)));
    let is_known = |name: &String| {
        old.vertices.iter().any(|(vertex, was)| {
            vertex == name
                || was
                    .states
                    .keys()
                    .any(|state| format!("{vertex}/{state}") == *name)
        })
    };
    let unknown = dropping.0.iter().filter(|name| !is_known(name));
    found.unknown = unknown.cloned().collect();
    found
}

fn own_states(of: &VertexStates) -> impl Iterator<Item = (&String, &StateForm)> {
    of.states
        .iter()
        .filter(|(state, _)| !state.starts_with(RUNTIME_STATE))
}

/// Returns true if the name of `vertex` is generated, and so are those of the steps that it is a
/// part of. For example, `count: partial` is a part of `count`.
fn is_unnamed(job: &JobStateSchema, vertex: &str) -> bool {
    let is_generated = |name| {
        let vertex = job.vertices.get(name);
        vertex.is_none_or(|vertex| vertex.has_generated_name)
    };
    let mut wholes = vertex.match_indices(": ").map(|(at, _)| &vertex[..at]);
    is_generated(vertex) && wholes.all(is_generated)
}

fn kept(
    vertex: &str,
    (state, form): (&String, &StateForm),
    is_unnamed: bool,
    now: Option<&VertexStates>,
) -> Verdict {
    let Some(now) = now else {
        let mut why = format!("the program has no {vertex:?}");
        if is_unnamed {
            why += ", which may be a generated name: steps that are named in the program are found again";
        }
        return Verdict::Impossible(vec![why]);
    };
    match now.states.get(state) {
        Some(now) => of_forms(form, now),
        // The program declares no states for the vertex. The restore would detect an
        // incompatibility.
        None if now.states.is_empty() && *form == StateForm::Own => Verdict::Keep,
        None => {
            let mut why = format!("{vertex:?} of the program has no state of that name");
            let others: Vec<String> = own_states(now)
                .map(|(name, _)| format!("{name:?}"))
                .collect();
            if !others.is_empty() {
                why += &format!(", but {}", others.join(", "));
            }
            Verdict::Impossible(vec![why])
        }
    }
}

fn of_forms(old: &StateForm, new: &StateForm) -> Verdict {
    match (old, new) {
        (StateForm::Own, StateForm::Own) => Verdict::Keep,
        (
            StateForm::Values { key, value },
            StateForm::Values {
                key: new_key,
                value: new_value,
            },
        ) => {
            let key = match (key, new_key) {
                (Some(old), Some(new)) => evolve_key(old, new),
                (None, None) => Evolution::Same,
                _ => Evolution::Impossible(vec!["its keys were written in another way".into()]),
            };
            of_evolutions(key, evolve(value, new_value))
        }
        _ => Verdict::Impossible(vec!["it is another kind of state now".into()]),
    }
}

fn of_evolutions(key: Evolution, value: Evolution) -> Verdict {
    let of_key = |what: Vec<String>| what.into_iter().map(|what| format!("of its keys: {what}"));
    let (mut changes, mut faults) = (Vec::new(), Vec::new());
    match key {
        Evolution::Same => {}
        Evolution::Migrates(what) => changes.extend(of_key(what)),
        Evolution::Impossible(what) => faults.extend(of_key(what)),
    }
    match value {
        Evolution::Same => {}
        Evolution::Migrates(what) => changes.extend(what),
        Evolution::Impossible(what) => faults.extend(what),
    }
    match (faults.is_empty(), changes.is_empty()) {
        (false, _) => Verdict::Impossible(faults),
        (true, false) => Verdict::Migrate(changes),
        (true, true) => Verdict::Keep,
    }
}

impl StateDiff {
    /// Returns true if the program can be restored from the old states.
    pub fn is_possible(&self) -> bool {
        self.impossible().next().is_none() && self.unknown.is_empty()
    }

    /// Returns true if no state is migrated or dropped.
    pub fn is_same(&self) -> bool {
        let is_same = |state: &StateVerdict| matches!(state.verdict, Verdict::Keep | Verdict::Add);
        self.states.iter().all(is_same)
    }

    /// Returns the states that cannot be restored.
    pub fn impossible(&self) -> impl Iterator<Item = &StateVerdict> {
        let is_so = |state: &&StateVerdict| matches!(state.verdict, Verdict::Impossible(_));
        self.states.iter().filter(is_so)
    }

    /// Checks that the program can be restored.
    ///
    /// # Errors
    /// `InvalidJob` with each state that cannot be restored and the reasons.
    pub fn check(&self, job: &str, place: &str) -> Result<(), Error> {
        let why = |verdict: &Verdict| format!(": {}", verdict.reasons().join(", "));
        self.check_told(job, place, why)
            .map_err(|error| error.hint(format!("{WAYS_OUT}; `diff` shows all of it")))
    }

    /// Checks that the program can be restored, after the whole diff was displayed. The error names
    /// the states without the reasons.
    ///
    /// # Errors
    /// `InvalidJob` with each state that cannot be restored.
    pub fn check_shown(&self, job: &str, place: &str) -> Result<(), Error> {
        self.check_told(job, place, |_| " is impossible".to_string())
            .map_err(|error| error.hint(WAYS_OUT))
    }

    fn check_told(
        &self,
        job: &str,
        place: &str,
        why: impl Fn(&Verdict) -> String,
    ) -> Result<(), Error> {
        if self.is_possible() {
            return Ok(());
        }
        let states = self
            .impossible()
            .map(|state| format!("{}/{}{}", state.vertex, state.state, why(&state.verdict)));
        let unknown = self
            .unknown
            .iter()
            .map(|name| format!("there is no {name:?} to be dropped"));
        let why: Vec<String> = states.chain(unknown).collect();
        let what = format!(
            "the job {job:?} can't go on from what is in {place}: {}",
            why.join("; ")
        );
        Err(Error::new(ErrorCode::InvalidJob, what))
    }
}

impl fmt::Display for StateDiff {
    /// Writes a line for each state, with its first reason, and a line for each further reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |state: &StateVerdict| format!("{}/{}", state.vertex, state.state);
        let names = self.states.iter().map(name);
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        for state in &self.states {
            let mut reasons = state.verdict.reasons().iter();
            let first = reasons.next().map_or("", String::as_str);
            let line = format!(
                "{:width$}  {:10}  {first}",
                name(state),
                state.verdict.word()
            );
            writeln!(f, "{}", line.trim_end())?;
            for reason in reasons {
                writeln!(f, "{:width$}  {:10}  {reason}", "", "")?;
            }
        }
        for name in &self.unknown {
            writeln!(f, "there is no {name:?} to be dropped")?;
        }
        match self.states.is_empty() && self.unknown.is_empty() {
            true => writeln!(f, "there is no state"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
