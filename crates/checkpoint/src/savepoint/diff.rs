//! What becomes of each state when another program goes on from it.

use std::collections::BTreeSet;
use std::fmt;

use ardea_core::{Error, ErrorCode, RUNTIME_STATE, StateForm};
use serde::Serialize;

use crate::savepoint::described::{JobStates, VertexStates};
use crate::savepoint::evolution::{Evolution, evolve, evolve_key};

/// What people can do about a state that is impossible.
const WAYS_OUT: &str = "change the program so that it can; or drop what is not needed by its name (recovery.drop=VERTEX or VERTEX/STATE)";

/// What becomes of a state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "what")]
pub enum Verdict {
    /// It is read as it was written.
    Keep,
    /// It is read, and something of it becomes different; what.
    Migrate(Vec<String>),
    /// It is left behind, as somebody has said.
    Drop,
    /// There was none: it begins empty.
    Add,
    /// It has no place in the program, or can't be read by it; why.
    Impossible(Vec<String>),
}

impl Verdict {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Keep => "keep",
            Verdict::Migrate(_) => "migrate",
            Verdict::Drop => "drop",
            Verdict::Add => "add",
            Verdict::Impossible(_) => "impossible",
        }
    }

    /// What is different, or why it can't be.
    pub fn reasons(&self) -> &[String] {
        match self {
            Verdict::Migrate(what) | Verdict::Impossible(what) => what,
            Verdict::Keep | Verdict::Drop | Verdict::Add => &[],
        }
    }
}

/// What becomes of one state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StateVerdict {
    /// Its vertex.
    pub vertex: String,
    /// Its name there.
    pub state: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What becomes of all states of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StateDiff {
    /// By vertex and name.
    pub states: Vec<StateVerdict>,
    /// What was to be dropped, and is not there.
    pub unknown: Vec<String>,
}

/// What may be left behind: vertices, and states of theirs as `vertex/state`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dropping(BTreeSet<String>);

impl Dropping {
    /// Nothing.
    pub fn nothing() -> Self {
        Dropping::default()
    }

    /// These.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Dropping(names.into_iter().map(Into::into).collect())
    }

    /// Those that a text lists, with commas between them.
    pub fn listed(text: &str) -> Self {
        let names = text.split(',').map(str::trim);
        Dropping::of(names.filter(|name| !name.is_empty()))
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of a vertex is to be left behind.
    pub fn has_vertex(&self, vertex: &str) -> bool {
        self.0.contains(vertex)
    }

    /// Whether this state is to be left behind.
    pub fn has(&self, vertex: &str, state: &str) -> bool {
        self.has_vertex(vertex) || self.0.contains(&format!("{vertex}/{state}"))
    }
}

/// What becomes of the states of `old` when the program with those of `new` goes on from them. Looks at descriptions alone, and changes
/// nothing.
pub fn diff(old: &JobStates, new: &JobStates, dropping: &Dropping) -> StateDiff {
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

/// Whether nobody chose the name of a vertex, nor that of the step that it is a part of: `count: partial` is one of `count`.
fn is_unnamed(job: &JobStates, vertex: &str) -> bool {
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
            why += ", a name that it got by itself if nobody chose it: steps with names of their own are found again";
        }
        return Verdict::Impossible(vec![why]);
    };
    match now.states.get(state) {
        Some(now) => of_forms(form, now),
        // It tells nothing of what it has; it says so when it gets it back.
        None if now.states.is_empty() && *form == StateForm::Own => Verdict::Keep,
        None => {
            let mut why = format!("{vertex:?} of the program remembers nothing of that name");
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
    /// Whether the program can go on from there.
    pub fn is_possible(&self) -> bool {
        self.impossible().next().is_none() && self.unknown.is_empty()
    }

    /// Whether all that was written is as the program would write it.
    pub fn is_same(&self) -> bool {
        let is_same = |state: &StateVerdict| matches!(state.verdict, Verdict::Keep | Verdict::Add);
        self.states.iter().all(is_same)
    }

    /// The states that can't be kept.
    pub fn impossible(&self) -> impl Iterator<Item = &StateVerdict> {
        let is_so = |state: &&StateVerdict| matches!(state.verdict, Verdict::Impossible(_));
        self.states.iter().filter(is_so)
    }

    /// Refuses what can't be.
    ///
    /// # Errors
    /// `InvalidJob`, with each state that can't be kept and why.
    pub fn check(&self, job: &str, place: &str) -> Result<(), Error> {
        let why = |verdict: &Verdict| format!(": {}", verdict.reasons().join(", "));
        self.check_told(job, place, why)
            .map_err(|error| error.hint(format!("{WAYS_OUT}; `diff` shows all of it")))
    }

    /// As [`check`](Self::check) where all of it has been shown: names what can't be kept, and not why.
    ///
    /// # Errors
    /// `InvalidJob`, with each state that can't be kept.
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
    /// A line for each state, and one more for each reason after the first.
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
            true => writeln!(f, "nothing is remembered"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
