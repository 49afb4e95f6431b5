//! How another process asks a running job for a savepoint: by files in the job's folder.
//!
//! Who asks writes `savepoint.request`, which is there at most once; the job takes it away, and writes `savepoint-TOKEN.answer` when the
//! savepoint is there or can't be. Both are JSON. What was asked before the job began is not done, and is to be asked again.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::savepoint::SavepointManifest;
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

const REQUEST: &str = "savepoint.request";
/// What a request is called that has been taken.
const TAKEN: &str = "savepoint.taken";
/// How often who asks looks for the answer.
const LOOK: Duration = Duration::from_millis(50);

/// What somebody asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// What the answer is told by.
    token: String,
    /// Where the savepoint is to be.
    pub(crate) to: PathBuf,
}

/// What is answered.
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
    /// It came before anybody listened.
    #[serde(rename = "again")]
    Again,
}

/// Where a running job finds what is asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox(PathBuf);

impl Mailbox {
    /// In a job's folder, which this process has. Whatever was asked there before is dropped.
    pub(crate) fn open(folder: &Path) -> Self {
        let mailbox = Mailbox(folder.to_path_buf());
        let missed = mailbox.take();
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        for file in files {
            if is_answer(&file.file_name().to_string_lossy()) {
                let _ = fs::remove_file(file.path());
            }
        }
        // Who has seen that the folder is taken, and asked at once, still waits.
        if let Some(missed) = missed {
            mailbox.write(&missed, &Answer::Again);
        }
        mailbox
    }

    fn request(&self) -> PathBuf {
        self.0.join(REQUEST)
    }

    /// Takes what is asked for, if anything is. Costs a system call.
    pub(crate) fn take(&self) -> Option<Request> {
        let taken = self.0.join(TAKEN);
        // In one step, so that none is taken away that comes at this moment; one that can't be would be done again and again.
        fs::rename(self.request(), &taken).ok()?;
        let text = fs::read(&taken);
        let _ = fs::remove_file(&taken);
        serde_json::from_slice(&text.ok()?).ok()
    }

    /// Answers it.
    pub(crate) fn answer(&self, request: &Request, made: &Result<SavepointManifest>) {
        let answer = match made {
            Ok(manifest) => Answer::Written(Box::new(manifest.clone())),
            Err(error) => Answer::Failed {
                code: error.code().as_str().to_string(),
                message: error.message(),
                hint: error.what_next().map(str::to_string),
            },
        };
        self.write(request, &answer);
    }

    fn write(&self, request: &Request, answer: &Answer) {
        let path = answer_file(&self.0, &request.token);
        // Who asked gives up after a while.
        let _ = serde_json::to_vec(answer).map(|text| put(&path, &text));
    }
}

/// A request of this process, until it has been answered.
#[derive(Debug)]
pub(crate) struct Asked {
    folder: PathBuf,
    token: String,
}

impl Asked {
    /// Asks the job that has this folder.
    ///
    /// # Errors
    /// `WrongState` if somebody else is asking; `WriteFailed`.
    pub(crate) fn ask(folder: &Path, to: &Path) -> Result<Self> {
        let token = fresh_token();
        let request = Request {
            token: token.clone(),
            to: to.to_path_buf(),
        };
        let failed = |error: io::Error| {
            let what = format!("nothing can be asked of the job in {}", folder.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check the folder's permissions: who asks writes a file there")
        };
        let text = serde_json::to_vec(&request).map_err(|error| failed(error.into()))?;
        let draft = folder.join(format!("savepoint-{token}.writing"));
        put_new(&draft, &text).map_err(failed)?;
        let linked = fs::hard_link(&draft, folder.join(REQUEST));
        let _ = fs::remove_file(&draft);
        match linked {
            Ok(()) => Ok(Asked {
                folder: folder.to_path_buf(),
                token,
            }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let what = format!(
                    "somebody else is asking for a savepoint of {}",
                    folder.display()
                );
                Err(Error::new(ErrorCode::WrongState, what).hint("try again in a moment"))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits for the answer, as long as `goes_on` says that somebody may give it; none if nobody does any more, or it is to be asked again.
    ///
    /// # Errors
    /// What the job has answered; `WrongState` if nobody does in time.
    pub(crate) fn wait(
        self,
        patience: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<SavepointManifest>> {
        let path = answer_file(&self.folder, &self.token);
        let deadline = Instant::now() + patience;
        loop {
            // Asked before the answer is looked for: one that ends right then has answered.
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
                return Err(Error::new(ErrorCode::WrongState, what).hint(
                    "`snapshots` shows what the job is at; one that has stopped is saved at once",
                ));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Asked {
    /// A request that nobody waits for is not to be done.
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
            .hint("ask by a program of the same version as the job's")
    })?;
    match answer {
        Answer::Written(manifest) => Ok(Some(*manifest)),
        Answer::Again => Ok(None),
        Answer::Failed {
            code,
            message,
            hint,
        } => {
            let code = ErrorCode::named(&code).unwrap_or(ErrorCode::Internal);
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

/// Writes a file that is seen whole or not at all. It need not outlive the machine.
fn put(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("writing");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

fn put_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    file.write_all(text)
}

/// What nobody else has.
pub(crate) fn fresh_token() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The keys of every state are random in a process, and no two of its states have the same.
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
        let mailbox = Mailbox::open(folder.path());
        assert_eq!(mailbox.take(), None);
        let asked = Asked::ask(folder.path(), Path::new("/x")).unwrap();
        let error = Asked::ask(folder.path(), Path::new("/y")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState);
        let request = mailbox.take().unwrap();
        assert_eq!(request.to, Path::new("/x"));
        assert_eq!(mailbox.take(), None);
        let full = Error::new(ErrorCode::DiskFull, "no room").hint("make some");
        mailbox.answer(&request, &Err(full));
        let error = asked.wait(Duration::ZERO, &|| true).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DiskFull);
        assert_eq!(error.message(), "no room");
        assert_eq!(error.what_next(), Some("make some"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_nobody_waits_for_any_more_or_was_asked_before_the_job_began_is_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Asked::ask(folder.path(), Path::new("/x")).unwrap();
        assert_eq!(asked.wait(Duration::ZERO, &|| false).unwrap(), None);
        assert_eq!(Mailbox::open(folder.path()).take(), None);
        let asked = Asked::ask(folder.path(), Path::new("/x")).unwrap();
        assert_eq!(Mailbox::open(folder.path()).take(), None);
        // It is to ask again, at once.
        assert_eq!(asked.wait(Duration::ZERO, &|| true).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
