//! Savepoint requests from another process to a running job, by files in the job's folder.
//!
//! The requester writes the file `savepoint.request`, of which at most one exists. The job renames
//! this file, and later writes the result to `savepoint-TOKEN.answer`. Both are JSON. Requests from
//! before the start of the job are answered with `again`.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::savepoint::SavepointManifest;
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

const REQUEST: &str = "savepoint.request";
/// The name of a request file that the job has taken.
const TAKEN: &str = "savepoint.taken";
/// The poll interval of the requester.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The token that names the answer file.
    token: String,
    /// The target location of the savepoint.
    pub(crate) to: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    #[serde(rename = "written")]
    Written(Box<SavepointManifest>),
    #[serde(rename = "failed")]
    Failed {
        code: String,
        message: String,
        hint: Option<String>,
    },
    /// The request was made before the job started, and must be repeated.
    #[serde(rename = "again")]
    Again,
}

/// The mailbox of a running job: the request and answer files in its folder.
#[derive(Clone, Debug)]
pub(crate) struct SavepointRequestDir(PathBuf);

impl SavepointRequestDir {
    /// Opens the mailbox in a job's folder, which this process owns. Drops earlier requests and
    /// answers.
    pub(crate) fn open(folder: &Path) -> Self {
        let mailbox = SavepointRequestDir(folder.to_path_buf());
        let missed = mailbox.take();
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        for file in files {
            if is_answer(&file.file_name().to_string_lossy()) {
                let _ = fs::remove_file(file.path());
            }
        }
        // The requester may have seen the lock of this process and still waits.
        if let Some(missed) = missed {
            mailbox.write(&missed, &Answer::Again);
        }
        mailbox
    }

    fn request(&self) -> PathBuf {
        self.0.join(REQUEST)
    }

    /// Takes the pending request, if any. Costs one system call if there is none.
    pub(crate) fn take(&self) -> Option<Request> {
        let taken = self.0.join(TAKEN);
        // The rename is atomic: a new request at this moment is not lost, and an unreadable request
        // is not taken again.
        fs::rename(self.request(), &taken).ok()?;
        let text = fs::read(&taken);
        let _ = fs::remove_file(&taken);
        serde_json::from_slice(&text.ok()?).ok()
    }

    /// Writes the answer to a request.
    pub(crate) fn answer(&self, request: &Request, made: &Result<SavepointManifest>) {
        let answer = match made {
            Ok(manifest) => Answer::Written(Box::new(manifest.clone())),
            Err(error) => Answer::Failed {
                code: error.code().as_str().to_string(),
                message: error.message(),
                hint: error.hint_text().map(str::to_string),
            },
        };
        self.write(request, &answer);
    }

    fn write(&self, request: &Request, answer: &Answer) {
        let path = answer_file(&self.0, &request.token);
        // On failure the requester times out.
        let _ = serde_json::to_vec(answer).map(|text| put(&path, &text));
    }
}

/// A pending request of this process.
#[derive(Debug)]
pub(crate) struct SavepointRequest {
    folder: PathBuf,
    token: String,
}

impl SavepointRequest {
    /// Sends a request to the job that owns this folder.
    ///
    /// # Errors
    /// `WrongState` if another request is pending; `WriteFailed`.
    pub(crate) fn ask(folder: &Path, to: &Path) -> Result<Self> {
        let token = fresh_token();
        let request = Request {
            token: token.clone(),
            to: to.to_path_buf(),
        };
        let failed = |error: io::Error| {
            let what = format!(
                "no savepoint can be requested from the job in {}",
                folder.display()
            );
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check the folder's permissions: a request is a file in it")
        };
        let text = serde_json::to_vec(&request).map_err(|error| failed(error.into()))?;
        let draft = folder.join(format!("savepoint-{token}.writing"));
        put_new(&draft, &text).map_err(failed)?;
        let linked = fs::hard_link(&draft, folder.join(REQUEST));
        let _ = fs::remove_file(&draft);
        match linked {
            Ok(()) => Ok(SavepointRequest {
                folder: folder.to_path_buf(),
                token,
            }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let what = format!(
                    "another process is requesting a savepoint of {}",
                    folder.display()
                );
                Err(Error::new(ErrorCode::WrongState, what).hint("try again in a moment"))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits for the answer up to `patience`, while `goes_on` returns true. Returns `None` if the
    /// job ended without an answer, or if the request must be repeated.
    ///
    /// # Errors
    /// The error that the job has answered; `WrongState` on timeout.
    pub(crate) fn wait(
        self,
        patience: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<SavepointManifest>> {
        let path = answer_file(&self.folder, &self.token);
        let deadline = Instant::now() + patience;
        loop {
            // Called before the answer is read: a job that ends in between has answered.
            let goes_on = goes_on();
            if let Ok(text) = fs::read(&path) {
                let _ = fs::remove_file(&path);
                return read(&text);
            }
            if !goes_on {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                let what = format!(
                    "there is no savepoint of the job in {}: it has not answered for {patience:?}",
                    self.folder.display()
                );
                return Err(Error::new(ErrorCode::WrongState, what)
                    .hint("`checkpoints` shows its progress; a stopped job is saved at once"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for SavepointRequest {
    /// Withdraws the request: removes the file if the job has not taken it.
    fn drop(&mut self) {
        let path = self.folder.join(REQUEST);
        let is_own = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Request>(&text).ok())
            .is_some_and(|request| request.token == self.token);
        if is_own {
            let _ = fs::remove_file(path);
        }
    }
}

fn read(text: &[u8]) -> Result<Option<SavepointManifest>> {
    let answer = serde_json::from_slice(text).map_err(|error| {
        Error::new(ErrorCode::BadMessage, "the job's answer can't be read")
            .because(error)
            .hint("use a program of the same version as the job's")
    })?;
    match answer {
        Answer::Written(manifest) => Ok(Some(*manifest)),
        Answer::Again => Ok(None),
        Answer::Failed {
            code,
            message,
            hint,
        } => {
            let code = ErrorCode::from_name(&code).unwrap_or(ErrorCode::Internal);
            let error = Error::new(code, message);
            Err(match hint {
                Some(hint) => error.hint(hint),
                None => error,
            })
        }
    }
}

fn answer_file(folder: &Path, token: &str) -> PathBuf {
    folder.join(format!("savepoint-{token}.answer"))
}

fn is_answer(name: &str) -> bool {
    name.starts_with("savepoint-") && name.ends_with(".answer")
}

/// Writes a file atomically, without syncing it to disk.
fn put(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("writing");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

fn put_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    file.write_all(text)
}

pub(crate) fn fresh_token() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Each `RandomState` has different random keys, in every process.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once_and_answered_to_who_asked() {
        let folder = tempfile::tempdir().unwrap();
        let mailbox = SavepointRequestDir::open(folder.path());
        assert_eq!(mailbox.take(), None);
        let asked = SavepointRequest::ask(folder.path(), Path::new("/x")).unwrap();
        let error = SavepointRequest::ask(folder.path(), Path::new("/y")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState);
        let request = mailbox.take().unwrap();
        assert_eq!(request.to, Path::new("/x"));
        assert_eq!(mailbox.take(), None);
        let full = Error::new(ErrorCode::DiskFull, "no room").hint("make some");
        mailbox.answer(&request, &Err(full));
        let error = asked.wait(Duration::ZERO, &|| true).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DiskFull);
        assert_eq!(error.message(), "no room");
        assert_eq!(error.hint_text(), Some("make some"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_nobody_waits_for_any_more_or_was_asked_before_the_job_began_is_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let asked = SavepointRequest::ask(folder.path(), Path::new("/x")).unwrap();
        assert_eq!(asked.wait(Duration::ZERO, &|| false).unwrap(), None);
        assert_eq!(SavepointRequestDir::open(folder.path()).take(), None);
        let asked = SavepointRequest::ask(folder.path(), Path::new("/x")).unwrap();
        assert_eq!(SavepointRequestDir::open(folder.path()).take(), None);
        // The requester is asked to repeat.
        assert_eq!(asked.wait(Duration::ZERO, &|| true).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
