//! A folder for the snapshots of a job, in a shelter.

use std::fmt;
use std::sync::Arc;

use crate::store::{FileName, FileState, Folder, Listed};
use ardea_core::{Error, ErrorCode, Result, unique_number};
use ardea_grid::cluster::{
    Ask, Head, LETTER_BYTES, LETTER_NAMES, Mark, PIECE_BYTES, SMALL_BYTES, Shelter, Told,
};
use bytes::{Bytes, BytesMut};

/// What people call the place.
const PLACE: &str = "the memory of the cluster's hosts";

/// The files of a job in a [`Shelter`]. Nothing has to be made before; it is cleared away when the job is gone.
#[derive(Clone)]
pub struct ShelterFolder {
    shelter: Arc<dyn Shelter>,
    job: Arc<str>,
}

impl ShelterFolder {
    /// Of this job, as its processes name it (`words#2a`). Asks for nothing.
    pub fn new(shelter: Arc<dyn Shelter>, job: impl Into<Arc<str>>) -> Self {
        ShelterFolder {
            shelter,
            job: job.into(),
        }
    }

    fn ask(&self, ask: Ask) -> Result<Told> {
        self.shelter.ask(&self.job, ask)
    }

    /// Lays the pieces of what is large, some at a time.
    fn lay(&self, files: &[(FileName, Bytes)], heads: &[Head]) -> Result<()> {
        let (mut marks, mut pieces, mut bytes) = (Vec::new(), Vec::new(), 0);
        for ((_, content), head) in files.iter().zip(heads) {
            let Head::Large(mark) = head else {
                continue;
            };
            marks.push(mark.clone());
            let starts = (0..content.len()).step_by(PIECE_BYTES);
            for (key, start) in mark.pieces().zip(starts) {
                let end = content.len().min(start + PIECE_BYTES);
                pieces.push((key, content.slice(start..end)));
                bytes += end - start;
                if bytes >= LETTER_BYTES {
                    let (marks, pieces) = (std::mem::take(&mut marks), std::mem::take(&mut pieces));
                    self.ask(Ask::Lay { marks, pieces })?;
                    bytes = 0;
                }
            }
        }
        match pieces.is_empty() {
            true => Ok(()),
            false => self.ask(Ask::Lay { marks, pieces }).map(drop),
        }
    }

    /// Takes the names, of several files at a time.
    fn name(&self, files: &[(FileName, Bytes)], heads: Vec<Head>) -> Result<()> {
        let mut files = files.iter();
        let mut heads = heads.into_iter().peekable();
        while heads.peek().is_some() {
            let (mut taken, mut bytes) = (Vec::new(), 0);
            while bytes < LETTER_BYTES && taken.len() < LETTER_NAMES {
                let (Some((name, content)), Some(head)) = (files.next(), heads.next()) else {
                    break;
                };
                if let Head::Small(small) = &head {
                    bytes += small.len();
                }
                taken.push((name, content, head));
            }
            let wanted = taken.iter();
            let wanted = wanted.map(|(name, _, head)| (name.to_string(), head.clone()));
            let Told::Had(had) = self.ask(Ask::Name(wanted.collect()))? else {
                return Err(no_answer());
            };
            if had.len() != taken.len() {
                return Err(no_answer());
            }
            for ((name, content, head), had) in taken.into_iter().zip(had) {
                // Its own is what an earlier try, whose answer was lost, has left.
                if let Some(had) = had.filter(|had| *had != head) {
                    self.is_the_same(name, content, head, &had)?;
                }
            }
        }
        Ok(())
    }

    /// The name is somebody else's: that is success if the file is.
    fn is_the_same(&self, name: &FileName, content: &Bytes, own: Head, had: &Head) -> Result<()> {
        if let Head::Large(mark) = own {
            self.ask(Ask::Remove {
                whole: Vec::new(),
                unfinished: vec![mark],
            })?;
        }
        if had.bytes() == content.len() as u64 && self.read(name)?.as_ref() == Some(content) {
            return Ok(());
        }
        Err(
            Error::new(ErrorCode::StateConflict, "the name is taken by other bytes")
                .hint("let one process at a time run the job"),
        )
    }

    /// The rest of a file whose first pieces are known; none if a part of it is not there.
    fn rest(&self, mark: &Mark, first: Vec<Option<Bytes>>) -> Result<Option<Bytes>> {
        let known = first.len();
        let Some(mut pieces) = first.into_iter().collect::<Option<Vec<Bytes>>>() else {
            return Ok(None);
        };
        let keys: Vec<String> = mark.pieces().skip(known).collect();
        for keys in keys.chunks(LETTER_BYTES / PIECE_BYTES) {
            let Told::Pieces(more) = self.ask(Ask::Pieces(keys.to_vec()))? else {
                return Err(no_answer());
            };
            let Some(more) = more.into_iter().collect::<Option<Vec<Bytes>>>() else {
                return Ok(None);
            };
            pieces.extend(more);
        }
        let content = match pieces.len() {
            1 => pieces.swap_remove(0),
            _ => {
                let mut content = BytesMut::new();
                pieces
                    .iter()
                    .for_each(|piece| content.extend_from_slice(piece));
                content.freeze()
            }
        };
        Ok((content.len() as u64 == mark.bytes).then_some(content))
    }

    fn read_file(&self, name: &FileName) -> Result<Option<Bytes>> {
        match self.ask(Ask::Read(name.to_string()))? {
            Told::File(None, _) => Ok(None),
            Told::File(Some(Head::Small(bytes)), _) => Ok(Some(bytes)),
            Told::File(Some(Head::Large(mark)), first) => self.rest(&mark, first),
            _ => Err(no_answer()),
        }
    }
}

/// How a file is kept.
fn head(name: &FileName, content: &Bytes, writer: u64) -> Head {
    match content.len() <= SMALL_BYTES {
        true => Head::Small(content.clone()),
        false => Head::Large(Mark {
            file: name.to_string(),
            writer,
            bytes: content.len() as u64,
        }),
    }
}

fn no_answer() -> Error {
    Error::new(
        ErrorCode::BadMessage,
        "what keeps snapshots in memory answered something else",
    )
    .hint("run the same version of ardea in all processes of the cluster")
}

/// Something could not be read or written. That memory is full has the code of a full disk: it is waited out in the same way.
fn failed(code: ErrorCode, what: &str, error: &Error) -> Error {
    let (code, done) = match (code, error.code()) {
        (ErrorCode::ReadFailed, _) => (code, "read"),
        (_, ErrorCode::LimitReached) => (ErrorCode::DiskFull, "written"),
        (_, _) => (code, "written"),
    };
    let failed = Error::new(code, format!("{what} in {PLACE} can't be {done}"))
        .because(error.without_hint());
    match (code, error.what_next()) {
        (ErrorCode::DiskFull, _) => {
            failed.hint("raise cluster.snapshot_memory, start more hosts, or name a folder: --set snapshots.folder=/PATH")
        }
        (_, Some(next)) => failed.hint(next),
        (_, None) => failed.hint("look at `ardea cluster status` and the logs of the hosts"),
    }
}

fn unread(what: &str) -> impl Fn(Error) -> Error + '_ {
    move |error| failed(ErrorCode::ReadFailed, what, &error)
}

fn unwritten(what: &str) -> impl Fn(Error) -> Error + '_ {
    move |error| failed(ErrorCode::WriteFailed, what, &error)
}

impl Folder for ShelterFolder {
    fn place(&self) -> String {
        PLACE.to_string()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.write_all(&[(name.clone(), Bytes::copy_from_slice(bytes))])
    }

    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        let what = match files {
            [(name, _)] => name.as_str(),
            _ => "a file",
        };
        let writer = unique_number();
        let heads = files.iter();
        let heads = heads.map(|(name, content)| head(name, content, writer));
        let heads: Vec<Head> = heads.collect();
        let laid = self.lay(files, &heads);
        if let Err(error) = laid {
            if error.code() == ErrorCode::LimitReached {
                // Others need the room. What can't be removed now is found by a later sweep.
                let unfinished = heads.into_iter().filter_map(|head| match head {
                    Head::Large(mark) => Some(mark),
                    Head::Small(_) => None,
                });
                let _ = self.ask(Ask::Remove {
                    whole: Vec::new(),
                    unfinished: unfinished.collect(),
                });
            }
            return Err(failed(ErrorCode::WriteFailed, what, &error));
        }
        self.name(files, heads).map_err(unwritten(what))
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        self.read_file(name).map_err(unread(name.as_str()))
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let told = self.ask(Ask::List).map_err(unread("the folder itself"))?;
        let Told::Files(whole, marks) = told else {
            return Err(unread("the folder itself")(no_answer()));
        };
        let whole = whole.into_iter().filter_map(|(name, bytes)| {
            Some(Listed {
                name: FileName::new(name)?,
                state: FileState::Whole,
                bytes,
            })
        });
        let unfinished = marks.into_iter().filter_map(|mark| {
            Some(Listed {
                name: FileName::new(mark.file)?,
                state: FileState::Unfinished(mark.writer),
                bytes: mark.bytes,
            })
        });
        Ok(whole.chain(unfinished).collect())
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        for files in files.chunks(LETTER_NAMES) {
            let (mut whole, mut unfinished) = (Vec::new(), Vec::new());
            for (name, state) in files {
                match state {
                    FileState::Whole => whole.push(name.to_string()),
                    FileState::Unfinished(writer) => unfinished.push(Mark {
                        file: name.to_string(),
                        writer: *writer,
                        // Nobody but its mark says how long it was to be.
                        bytes: 0,
                    }),
                }
            }
            self.ask(Ask::Remove { whole, unfinished })
                .map_err(unwritten("the folder itself"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for ShelterFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShelterFolder({})", self.job)
    }
}
