//! An object store for the checkpoints of a job in the grid, the memory of the cluster's hosts.

use std::fmt;
use std::sync::Arc;

use crate::store::{FileEntry, FileName, FileState, ObjectStore};
use ardea_core::{Error, ErrorCode, Result, unique_number};
use ardea_grid::cluster::{
    FileMark, GridStoreClient, Head, MESSAGE_BYTES, MESSAGE_NAMES, PIECE_BYTES, SMALL_BYTES,
    StoreRequest, StoreResponse,
};
use bytes::{Bytes, BytesMut};

/// The display name of the store.
const PLACE: &str = "the memory of the cluster's hosts";

/// The checkpoint files of a job in the grid, accessed by a [`GridStoreClient`]. The store needs no
/// creation; all files are removed with the job.
#[derive(Clone)]
pub struct GridObjectStore {
    shelter: Arc<dyn GridStoreClient>,
    job: Arc<str>,
}

impl GridObjectStore {
    /// Creates the store of the job with this key, such as `words#2a`. Sends no request.
    pub fn new(shelter: Arc<dyn GridStoreClient>, job: impl Into<Arc<str>>) -> Self {
        GridObjectStore {
            shelter,
            job: job.into(),
        }
    }

    fn ask(&self, ask: StoreRequest) -> Result<StoreResponse> {
        self.shelter.request(&self.job, ask)
    }

    /// Writes the pieces of files that are split, in batches.
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
                if bytes >= MESSAGE_BYTES {
                    let (marks, pieces) = (std::mem::take(&mut marks), std::mem::take(&mut pieces));
                    self.ask(StoreRequest::Lay { marks, pieces })?;
                    bytes = 0;
                }
            }
        }
        match pieces.is_empty() {
            true => Ok(()),
            false => self.ask(StoreRequest::Lay { marks, pieces }).map(drop),
        }
    }

    /// Registers the files by name, in batches.
    fn name(&self, files: &[(FileName, Bytes)], heads: Vec<Head>) -> Result<()> {
        let mut files = files.iter();
        let mut heads = heads.into_iter().peekable();
        while heads.peek().is_some() {
            let (mut taken, mut bytes) = (Vec::new(), 0);
            while bytes < MESSAGE_BYTES && taken.len() < MESSAGE_NAMES {
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
            let StoreResponse::Had(had) = self.ask(StoreRequest::Name(wanted.collect()))? else {
                return Err(no_answer());
            };
            if had.len() != taken.len() {
                return Err(no_answer());
            }
            for ((name, content, head), had) in taken.into_iter().zip(had) {
                // An equal head was left by an earlier request whose answer was lost.
                if let Some(had) = had.filter(|had| *had != head) {
                    self.is_the_same(name, content, head, &had)?;
                }
            }
        }
        Ok(())
    }

    /// Handles a name that another writer has taken. Succeeds if both files have equal contents,
    /// otherwise returns an error.
    fn is_the_same(&self, name: &FileName, content: &Bytes, own: Head, had: &Head) -> Result<()> {
        if let Head::Large(mark) = own {
            self.ask(StoreRequest::Remove {
                whole: Vec::new(),
                unfinished: vec![mark],
            })?;
        }
        if had.bytes() == content.len() as u64 && self.read(name)?.as_ref() == Some(content) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::MetastoreConflict,
            "the name is taken by other bytes",
        )
        .hint("let one process at a time run the job"))
    }

    /// Reads the remaining pieces of a file and returns its contents. `first` are the pieces
    /// already read. Returns `None` if a piece is missing.
    fn rest(&self, mark: &FileMark, first: Vec<Option<Bytes>>) -> Result<Option<Bytes>> {
        let known = first.len();
        let Some(mut pieces) = first.into_iter().collect::<Option<Vec<Bytes>>>() else {
            return Ok(None);
        };
        let keys: Vec<String> = mark.pieces().skip(known).collect();
        for keys in keys.chunks(MESSAGE_BYTES / PIECE_BYTES) {
            let StoreResponse::Pieces(more) = self.ask(StoreRequest::Pieces(keys.to_vec()))? else {
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
        match self.ask(StoreRequest::Read(name.to_string()))? {
            StoreResponse::File(None, _) => Ok(None),
            StoreResponse::File(Some(Head::Small(bytes)), _) => Ok(Some(bytes)),
            StoreResponse::File(Some(Head::Large(mark)), first) => self.rest(&mark, first),
            _ => Err(no_answer()),
        }
    }
}

/// Returns the head of a file, stored under its name: the contents if they are small, otherwise a
/// reference to the pieces.
fn head(name: &FileName, content: &Bytes, writer: u64) -> Head {
    match content.len() <= SMALL_BYTES {
        true => Head::Small(content.clone()),
        false => Head::Large(FileMark {
            file: name.to_string(),
            writer,
            bytes: content.len() as u64,
        }),
    }
}

fn no_answer() -> Error {
    Error::new(
        ErrorCode::BadMessage,
        "the in-memory checkpoint store sent an unexpected response",
    )
    .hint("run the same version of ardea in all processes of the cluster")
}

/// Returns the error of a failed read or write. Full memory has the error code of a full disk, so
/// that callers wait for space in the same way.
fn failed(code: ErrorCode, what: &str, error: &Error) -> Error {
    let (code, done) = match (code, error.code()) {
        (ErrorCode::ReadFailed, _) => (code, "read"),
        (_, ErrorCode::LimitReached) => (ErrorCode::DiskFull, "written"),
        (_, _) => (code, "written"),
    };
    let failed = Error::new(code, format!("{what} in {PLACE} can't be {done}"))
        .because(error.without_hint());
    match (code, error.hint_text()) {
        (ErrorCode::DiskFull, _) => {
            failed.hint("raise cluster.checkpoint_memory, start more hosts, or name a folder: --set checkpoints.folder=/PATH")
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

impl ObjectStore for GridObjectStore {
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
                // Frees the memory for others. Pieces that cannot be removed now are collected
                // later.
                let unfinished = heads.into_iter().filter_map(|head| match head {
                    Head::Large(mark) => Some(mark),
                    Head::Small(_) => None,
                });
                let _ = self.ask(StoreRequest::Remove {
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

    fn list(&self) -> Result<Vec<FileEntry>> {
        let told = self
            .ask(StoreRequest::List)
            .map_err(unread("the folder itself"))?;
        let StoreResponse::Files(whole, marks) = told else {
            return Err(unread("the folder itself")(no_answer()));
        };
        let whole = whole.into_iter().filter_map(|(name, bytes)| {
            Some(FileEntry {
                name: FileName::new(name)?,
                state: FileState::Whole,
                bytes,
            })
        });
        let unfinished = marks.into_iter().filter_map(|mark| {
            Some(FileEntry {
                name: FileName::new(mark.file)?,
                state: FileState::Unfinished(mark.writer),
                bytes: mark.bytes,
            })
        });
        Ok(whole.chain(unfinished).collect())
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        for files in files.chunks(MESSAGE_NAMES) {
            let (mut whole, mut unfinished) = (Vec::new(), Vec::new());
            for (name, state) in files {
                match state {
                    FileState::Whole => whole.push(name.to_string()),
                    FileState::Unfinished(writer) => unfinished.push(FileMark {
                        file: name.to_string(),
                        writer: *writer,
                        // Only the reference in the grid has the length.
                        bytes: 0,
                    }),
                }
            }
            self.ask(StoreRequest::Remove { whole, unfinished })
                .map_err(unwritten("the folder itself"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for GridObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShelterFolder({})", self.job)
    }
}
