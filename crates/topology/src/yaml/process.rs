//! Components of a file that run in processes: a command with its streams, or a class in Python.

use std::ffi::OsString;
use std::process::Command;

use ardea_core::{Error, ErrorCode, Result};
use ardea_instance::InstanceCommand;
use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::{line, wrong};
use crate::outputs::{DEFAULT_STREAM, Outputs};
use crate::process::ProcessComponent;

/// The component of any command.
const PROCESS: &str = "process";
/// The prefix of the component of a class in Python.
const PYTHON: &str = "python:";
/// The program of Python.
const PYTHON_PROGRAM: &str = "python3";

/// The variable with the folders of Python's modules.
const PYTHON_PATH: &str = "PYTHONPATH";

/// The keys of a component that runs in a process.
pub(super) struct ProcessKeys {
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) outputs: Option<Vec<StreamKeys>>,
    pub(super) env: Option<Map<String, Value>>,
}

/// A stream that the component emits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamKeys {
    stream: Option<String>,
    fields: Vec<String>,
    #[serde(default)]
    direct: bool,
}

/// The description that `python3 -m ardea component --describe` prints.
#[derive(Deserialize)]
struct PythonClass {
    kind: String,
    #[serde(default)]
    outputs: Vec<StreamKeys>,
}

impl ProcessKeys {
    /// Returns the component if `name` is one that runs in a process; `None` if the registry has
    /// to know it. `kind` is spout or bolt.
    ///
    /// # Errors
    /// Keys that the component lacks or does not have, and a class that can't be described.
    pub(super) fn component(
        self,
        kind: &str,
        name: &Spanned<String>,
        settings: &Map<String, Value>,
    ) -> Result<Option<ProcessComponent>> {
        let (mut command, outputs) = if let Some(class) = name.value.strip_prefix(PYTHON) {
            self.refuse_keys(name, self.command.is_some() || self.outputs.is_some())?;
            let path = shipped_path(class);
            let described = describe(kind, name, class, (self.env.as_ref(), &path))?;
            let args = ["-m", "ardea", "component", class];
            let command = InstanceCommand::new(PYTHON_PROGRAM).args(args);
            let path = path.into_iter();
            let command = path.fold(command, |it, path| it.env(PYTHON_PATH, path));
            (command, described.outputs)
        } else if name.value == PROCESS {
            let Some(command) = &self.command else {
                let error = wrong(line(name), "a process has no command");
                return Err(error.hint("add it, such as command: [node, split.js]"));
            };
            let Some((program, args)) = command.value.split_first() else {
                let error = wrong(line(command), "the command of a process is empty");
                return Err(error.hint("write the program and its arguments"));
            };
            let command = InstanceCommand::new(program).args(args);
            (command, self.outputs.unwrap_or_default())
        } else {
            let has_keys = self.command.is_some() || self.outputs.is_some() || self.env.is_some();
            self.refuse_keys(name, has_keys)?;
            return Ok(None);
        };
        for (name, value) in self.env.into_iter().flatten() {
            command = command.env(name, text_of(&value));
        }
        for (name, value) in settings {
            command = command.parameter(name, value.clone());
        }
        Ok(Some(ProcessComponent::new(command, outputs_of(outputs))))
    }

    fn refuse_keys(&self, name: &Spanned<String>, has_keys: bool) -> Result<()> {
        if !has_keys {
            return Ok(());
        }
        let what = format!(
            "the component {:?} has no command, outputs or env",
            name.value
        );
        Err(wrong(line(name), &what).hint("remove them, or use component: process"))
    }
}

/// Returns the search path of Python if the module of a class was shipped with the job: then it is
/// beside the running program.
fn shipped_path(class: &str) -> Option<OsString> {
    let module = class.split([':', '.']).next()?;
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let is_here = folder.join(format!("{module}.py")).exists() || folder.join(module).is_dir();
    if !is_here {
        return None;
    }
    let mut path = folder.as_os_str().to_owned();
    if let Some(given) = std::env::var_os(PYTHON_PATH).filter(|given| !given.is_empty()) {
        path.push(":");
        path.push(given);
    }
    Some(path)
}

/// Returns the text of a scalar.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn outputs_of(streams: Vec<StreamKeys>) -> Outputs {
    streams
        .into_iter()
        .fold(Outputs::none(), |outputs, stream| {
            let name = stream.stream.as_deref().unwrap_or(DEFAULT_STREAM);
            let fields = stream.fields.iter().map(String::as_str);
            match stream.direct {
                true => outputs.direct_stream(name, fields),
                false => outputs.stream(name, fields),
            }
        })
}

/// Asks Python for the description of a class.
fn describe(
    kind: &str,
    name: &Spanned<String>,
    class: &str,
    (env, path): (Option<&Map<String, Value>>, &Option<OsString>),
) -> Result<PythonClass> {
    let failed = |cause: String| {
        let what = format!("line {}: the class {class:?} can't be used", line(name));
        Error::new(ErrorCode::InvalidConfig, what).because(cause)
    };
    let mut command = Command::new(PYTHON_PROGRAM);
    command.args(["-m", "ardea", "component", "--describe", class]);
    command.envs(path.iter().map(|path| (PYTHON_PATH, path)));
    command.envs(
        env.into_iter()
            .flatten()
            .map(|(name, value)| (name, text_of(value))),
    );
    let output = command.output().map_err(|error| {
        failed(format!("cannot start {PYTHON_PROGRAM}: {error}"))
            .hint("install Python and the package ardea")
    })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        return Err(
            failed(last.unwrap_or("Python failed").to_owned()).hint(format!(
                "check that `{PYTHON_PROGRAM}` imports it: add its folder to PYTHONPATH"
            )),
        );
    }
    let described: PythonClass = serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("its description can't be read: {error}")))?;
    if described.kind != kind {
        let cause = format!("it is a {}, not a {kind}", described.kind);
        return Err(failed(cause).hint(format!("move it to the {}s", described.kind)));
    }
    Ok(described)
}
