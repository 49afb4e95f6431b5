//! Programs that clients send to a host, run by the commands `submit`, `upgrade` and `diff`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{ApiError, Pending, ProgramAction, ProgramOutcome, ProgramRequest};
use ardea_server::daemon::ProgramRunner;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::launcher::own_program;

/// The time limit of a command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum length of a program's last words in an error.
const MOST_WORDS: usize = 2_000;

/// The prefix of the environment variables that are not passed on: those of the host itself, and
/// settings.
const OWN_VARIABLES: &str = "ARDEA_";

/// The commands of this program for the cluster of a host.
#[derive(Debug)]
pub(super) struct ProgramCommands {
    /// Settings of the cluster, as `key=value`.
    settings: Vec<String>,
    /// Folder for the files of programs.
    folder: PathBuf,
}

impl ProgramCommands {
    /// Creates the commands for the cluster with these settings, whose files are in `directory`.
    pub(super) fn of(settings: &[String], directory: &Path) -> Arc<dyn ProgramRunner> {
        let settings = settings.iter();
        Arc::new(ProgramCommands {
            settings: settings
                // The port of the host is no setting of the command.
                .filter(|setting| !setting.starts_with("cluster.port="))
                .cloned()
                .collect(),
            folder: directory.join("programs"),
        })
    }

    async fn run_command(&self, request: ProgramRequest) -> Result<ProgramOutcome> {
        let (folder, file) = store(self.folder.clone(), &request).await?;
        let action = request.action;
        let mut command = Command::new(own_program());
        command
            .args(arguments(
                &request,
                file.as_os_str().to_os_string(),
                &self.settings,
            ))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(OWN_VARIABLES) {
                command.env_remove(name);
            }
        }
        let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
            Ok(output) => output.map_err(|error| cannot("run", &request.file, error))?,
            Err(_) => {
                let what = format!("{} has not ended within {TIMEOUT:?}", request.file);
                let error = Error::new(ErrorCode::OutcomeUnknown, what);
                return Err(error.hint("see whether the job exists: ardea list"));
            }
        };
        outcome(action, &output)
    }
}

impl ProgramRunner for ProgramCommands {
    fn run(&self, request: ProgramRequest) -> Pending<'_, ProgramOutcome> {
        Box::pin(async { Ok(self.run_command(request).await?) })
    }
}

fn cannot(verb: &str, file: &str, error: io::Error) -> Error {
    let what = format!("cannot {verb} the program {file}");
    Error::new(ErrorCode::WriteFailed, what).because(error)
}

/// Stores the file of a request in a new folder, which is removed when it is dropped.
async fn store(parent: PathBuf, request: &ProgramRequest) -> Result<(TempDir, PathBuf)> {
    let content = BASE64_STANDARD.decode(&request.content);
    let content = content.map_err(|error| {
        let what = "the content of the program is no Base64";
        Error::new(ErrorCode::BadRequest, what).because(error)
    })?;
    let name = request.file.clone();
    let written = tokio::task::spawn_blocking(move || {
        let written = (|| {
            ardea_filesystem::create_folder(&parent)?;
            let folder = TempDir::new_in(&parent)?;
            let path = folder.path().join(&name);
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o700);
            options.open(&path)?.write_all(&content)?;
            Ok((folder, path))
        })();
        written.map_err(|error| cannot("store", &name, error))
    });
    written.await.map_err(|error| {
        Error::new(ErrorCode::Internal, "storing a program was interrupted").because(error)
    })?
}

/// Returns the arguments of the command. Options precede the file, so that no argument of the
/// program counts as one of them.
fn arguments(request: &ProgramRequest, file: OsString, settings: &[String]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--json".into()];
    let own = settings.iter().map(|setting| format!("--set={setting}"));
    let given = request.settings.iter();
    let given = given.map(|(key, value)| format!("--set={key}={value}"));
    words.extend(own.chain(given).map(OsString::from));
    let job = request.job.clone();
    match request.action {
        ProgramAction::Submit => {
            words.extend(["submit", "--detach"].map(OsString::from));
            words.extend(job.map(|name| format!("--name={name}").into()));
        }
        ProgramAction::Upgrade => {
            words.extend(["upgrade", "--detach"].map(OsString::from));
            words.extend(job.map(OsString::from));
        }
        ProgramAction::Diff => {
            words.push("diff".into());
            words.extend(job.map(OsString::from));
        }
    }
    words.push(file);
    if !request.arguments.is_empty() {
        words.push("--".into());
        words.extend(request.arguments.iter().map(OsString::from));
    }
    words
}

/// Returns the result that a command has printed, or its error. A comparison that shows an
/// impossible upgrade is a result.
fn outcome(action: ProgramAction, output: &Output) -> Result<ProgramOutcome> {
    let result = serde_json::from_slice::<Value>(&output.stdout);
    match result {
        Ok(result) if output.status.success() || action == ProgramAction::Diff => {
            return Ok(ProgramOutcome { result });
        }
        _ => {}
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let error = told.lines().rev().find_map(|line| {
        let mut line = serde_json::from_str::<Value>(line).ok()?;
        serde_json::from_value::<ApiError>(line.get_mut("error")?.take()).ok()
    });
    Err(match error {
        Some(error) => error.into(),
        None => {
            let words: String = told.trim().chars().take(MOST_WORDS).collect();
            let what = format!("the program has failed: {}: {words}", output.status);
            let error = Error::new(ErrorCode::InvalidJob, what);
            error.hint("send a topology (.yaml) or a job program for this machine (ardea::main)")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn request(action: ProgramAction, job: Option<&str>) -> ProgramRequest {
        ProgramRequest {
            action,
            file: "words.yaml".into(),
            content: "bmFtZTogeA==".into(),
            job: job.map(str::to_string),
            arguments: vec!["--set=cluster.state=x".into()],
            settings: BTreeMap::from([("guarantee".into(), "none".into())]),
        }
    }

    #[test]
    fn options_precede_the_file_and_its_arguments_follow_it() {
        let words = |action, job| {
            let own = ["cluster.name=quay".to_string()];
            arguments(&request(action, job), "words.yaml".into(), &own)
        };
        let expected = [
            "--json",
            "--set=cluster.name=quay",
            "--set=guarantee=none",
            "submit",
            "--detach",
            "--name=-x",
            "words.yaml",
            "--",
            "--set=cluster.state=x",
        ];
        assert_eq!(words(ProgramAction::Submit, Some("-x")), expected);
        let upgrade = words(ProgramAction::Upgrade, Some("old"));
        assert_eq!(upgrade[3..7], ["upgrade", "--detach", "old", "words.yaml"]);
    }

    #[test]
    fn the_result_or_the_error_of_the_command_is_returned() {
        let output = |code: i32, stdout: &str, stderr: &str| Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let submitted = outcome(ProgramAction::Submit, &output(0, "{\"name\":\"x\"}\n", ""));
        assert_eq!(submitted.unwrap().result["name"], "x");
        let diff = output(2, "{\"possible\":false}", "{\"error\":{}}");
        assert!(outcome(ProgramAction::Diff, &diff).is_ok());
        let taken = "{\"notice\":\"a\"}\n{\"error\":{\"code\":\"ARD-603\",\"message\":\"taken\",\"hint\":null}}\n";
        let error = outcome(ProgramAction::Submit, &output(2, "", taken)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NameTaken);
        let error = outcome(ProgramAction::Submit, &output(101, "", "panicked")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.message().contains("panicked"), "{error}");
    }

    #[tokio::test]
    async fn the_file_of_a_program_can_be_run_and_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let request = request(ProgramAction::Submit, None);
        let (folder, path) = store(parent.path().join("new"), &request).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "name: x");
        drop(folder);
        assert!(!path.exists());
        let wrong = ProgramRequest {
            content: "?".into(),
            ..request
        };
        let error = store(parent.path().into(), &wrong).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRequest);
    }
}
