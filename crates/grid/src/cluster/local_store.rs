//! Store implementation on the grid member of this process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::node::{Grid, GridMap, MemberId, RawBytes, View};
use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;

use crate::cluster::maps::MapService;
use crate::cluster::request::{
    FileMark, GridStoreClient, Head, LossCounters, MESSAGE_BYTES, MapEventStream, PIECE_BYTES,
    StoreRequest, StoreResponse,
};

/// Maximum number of attempts at a change whose outcome is unknown.
const MOST_TRIES: u32 = 5;

/// Name of the map whose keys are the jobs that have files. Its values are unused.
const JOBS: &str = "jobs with checkpoints";

/// Access to job files in grid maps through the grid member of this process, if there is one at the
/// moment. Clones share the same member.
#[derive(Clone, Default)]
pub struct LocalGridStore(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    open: Option<Open>,
    /// Reason why there is no member.
    why: Option<Error>,
    /// True if no member may be opened any more.
    is_over: bool,
}

struct Open {
    grid: Grid,
    /// Number of the grid.
    life: u64,
    jobs: GridMap<String, u8>,
    maps: HashMap<String, Maps>,
}

/// The grid maps of one job.
#[derive(Clone)]
struct Maps {
    heads: GridMap<String, Head>,
    pieces: GridMap<String, RawBytes>,
    marks: GridMap<String, FileMark>,
}

impl LocalGridStore {
    /// Creates a store without a member.
    pub fn new() -> Self {
        LocalGridStore::default()
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses `grid`, a member of the grid with number `life`, from now on.
    ///
    /// # Errors
    /// [`ErrorCode::WrongState`] after [`end`](Self::end).
    pub fn open(&self, grid: Grid, life: u64) -> Result<()> {
        let jobs = grid.map(JOBS)?;
        let before = {
            let mut slot = self.slot();
            if slot.is_over {
                let what = "the in-memory store of this host has been shut down";
                return Err(Error::new(ErrorCode::WrongState, what));
            }
            slot.why = None;
            slot.open.replace(Open {
                grid,
                life,
                jobs,
                maps: HashMap::new(),
            })
        };
        // Outside of the lock, since dropping a member waits for its threads.
        drop(before);
        Ok(())
    }

    /// Stops the member, if any. Requests fail with `why` as their cause until a member is opened
    /// again.
    pub fn close(&self, why: Error) {
        let before = {
            let mut slot = self.slot();
            slot.why = Some(why);
            slot.open.take()
        };
        drop(before);
    }

    /// Like [`close`](Self::close), but permanent: later calls of [`open`](Self::open) fail.
    pub fn end(&self, why: Error) {
        self.slot().is_over = true;
        self.close(why);
    }

    /// Removes and returns the member, so that the caller can let it leave the grid.
    pub(crate) fn take(&self) -> Option<Grid> {
        let open = self.slot().open.take();
        open.map(|open| open.grid)
    }

    /// Returns the current view of the grid as known to the member of this process.
    pub fn view(&self) -> Option<Arc<View>> {
        self.slot().open.as_ref()?.grid.view()
    }

    /// Returns true if there is a member here and the grid has removed it.
    pub(crate) fn is_out(&self) -> bool {
        self.slot()
            .open
            .as_ref()
            .is_some_and(|open| open.grid.is_out())
    }

    /// Returns the reason why there is no member, if known.
    pub fn trouble(&self) -> Option<Error> {
        self.slot().why.clone()
    }

    /// Returns true if there is a member here.
    pub fn is_open(&self) -> bool {
        self.slot().open.is_some()
    }

    /// Returns true if the member of this process is the first of the grid. Work that must be done
    /// once per cluster is done by this member.
    pub fn is_first(&self) -> bool {
        let slot = self.slot();
        let Some(open) = &slot.open else {
            return false;
        };
        let view = open.grid.view();
        view.is_some_and(|view| view.members.first().map(|first| first.id) == Some(open.grid.id()))
    }

    /// Reports to the grid that a member is known to be dead.
    pub(crate) fn report_dead(&self, member: MemberId) {
        if let Some(open) = &self.slot().open {
            open.grid.report_dead(member);
        }
    }

    /// Opens a grid map that does not belong to a job.
    pub(crate) fn guest(&self, name: &str) -> Result<GridMap<RawBytes, RawBytes>> {
        self.with(|open| Ok(open.grid.guest_map(name)))
    }

    /// Returns the jobs that have files.
    ///
    /// # Errors
    /// As [`GridStoreClient::request`].
    pub fn jobs(&self) -> Result<Vec<String>> {
        let jobs = self.with(|open| Ok(open.jobs.clone()))?;
        let mut found = BTreeSet::new();
        jobs.scan(|job, _| {
            found.insert(job);
            true
        })?;
        Ok(found.into_iter().collect())
    }

    /// Removes all files of a job and its entry in the list of jobs.
    ///
    /// # Errors
    /// As [`GridStoreClient::request`]; part of the files may have been removed.
    pub fn clear(&self, job: &str) -> Result<()> {
        let Maps {
            heads,
            pieces,
            marks,
        } = self.maps(job)?;
        heads.clear()?;
        pieces.clear()?;
        marks.clear()?;
        let jobs = self.with(|open| {
            open.maps.remove(job);
            Ok(open.jobs.clone())
        })?;
        jobs.remove(&job.to_string()).map(drop)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
        let mut slot = self.slot();
        let Slot { open, why, .. } = &mut *slot;
        match open {
            Some(open) => work(open),
            None => {
                let what = "this host is not a member of the in-memory store";
                let error = Error::new(ErrorCode::StateUnavailable, what);
                Err(match why {
                    Some(why) => error.because(why.without_hint()),
                    None => error.because("it is starting or shutting down"),
                })
            }
        }
    }

    fn maps(&self, job: &str) -> Result<Maps> {
        let known = self.with(|open| Ok(open.maps.get(job).cloned()))?;
        if let Some(maps) = known {
            return Ok(maps);
        }
        let (member, jobs, maps) = self.with(|open| {
            let map = |what: &str| format!("checkpoints of {job}: {what}");
            let maps = Maps {
                heads: open.grid.map(&map("heads"))?,
                pieces: open.grid.bytes_map(&map("pieces"))?,
                marks: open.grid.map(&map("marks"))?,
            };
            Ok((open.grid.id(), open.jobs.clone(), maps))
        })?;
        // Recorded before the job has any files, so that they are found after the job has ended.
        retry_unknown(|| jobs.put(&job.to_string(), &0))?;
        self.with(|open| {
            // The member may have been replaced meanwhile.
            if open.grid.id() == member {
                open.maps.insert(job.to_string(), maps.clone());
            }
            Ok(())
        })?;
        Ok(maps)
    }

    fn losses(&self) -> Result<LossCounters> {
        self.with(|open| {
            let view = open.grid.view();
            let records = view.iter().flat_map(|view| &view.records);
            Ok(LossCounters {
                grid: open.life,
                parts: records.map(|record| u64::from(record.losses)).sum(),
            })
        })
    }
}

/// Retries a change whose outcome is unknown. The change must be idempotent.
pub(crate) fn retry_unknown<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    let mut tries = 1;
    loop {
        match work() {
            Err(error) if error.code() == ErrorCode::OutcomeUnknown && tries < MOST_TRIES => {
                tries += 1;
            }
            done => return done,
        }
    }
}

impl Maps {
    fn lay(&self, marks: &[FileMark], pieces: Vec<(String, Bytes)>) -> Result<()> {
        self.mark(marks)?;
        let plain = |(key, piece)| (key, RawBytes(piece));
        let pieces: Vec<(String, RawBytes)> = pieces.into_iter().map(plain).collect();
        retry_unknown(|| {
            self.pieces
                .put_all(pieces.iter().map(|(key, piece)| (key, piece)))
        })
    }

    fn pieces(&self, keys: &[String]) -> Result<Vec<Option<Bytes>>> {
        let pieces = self.pieces.get_all(keys)?.into_iter();
        Ok(pieces.map(|piece| Some(piece?.0)).collect())
    }

    fn mark(&self, marks: &[FileMark]) -> Result<()> {
        let keyed: Vec<(String, &FileMark)> = marks.iter().map(|mark| (mark.key(), mark)).collect();
        retry_unknown(|| {
            self.marks
                .put_all(keyed.iter().map(|(key, mark)| (key, *mark)))
        })
    }

    fn unmark(&self, marks: &[FileMark]) -> Result<()> {
        let keys: Vec<String> = marks.iter().map(FileMark::key).collect();
        retry_unknown(|| self.marks.remove_all(&keys))
    }

    fn name(&self, files: &[(String, Head)]) -> Result<Vec<Option<Head>>> {
        let had = retry_unknown(|| {
            self.heads
                .put_all_if_absent(files.iter().map(|(name, head)| (name, head)))
        })?;
        let named = files.iter().zip(&had).filter_map(|((_, head), had)| {
            let is_own = had.as_ref().is_none_or(|had| had == head);
            match head {
                Head::Large(mark) if is_own => Some(mark.clone()),
                _ => None,
            }
        });
        let named: Vec<FileMark> = named.collect();
        // The file has its name, so a mark that cannot be removed is harmless.
        if !named.is_empty() {
            let _ = self.unmark(&named);
        }
        Ok(had)
    }

    fn read(&self, name: String) -> Result<StoreResponse> {
        let head = self.heads.get(&name)?;
        let first = match &head {
            Some(Head::Large(mark)) => {
                let keys: Vec<String> = mark.pieces().take(MESSAGE_BYTES / PIECE_BYTES).collect();
                self.pieces(&keys)?
            }
            _ => Vec::new(),
        };
        Ok(StoreResponse::File(head, first))
    }

    fn list(&self) -> Result<StoreResponse> {
        let mut marks = Vec::new();
        self.marks.scan(|_, mark| {
            marks.push(mark);
            true
        })?;
        // After the marks: a file that is named in between is not reported as unfinished.
        let mut whole = BTreeMap::new();
        self.heads.scan(|name, head| {
            let writer = match &head {
                Head::Large(mark) => Some(mark.writer),
                Head::Small(_) => None,
            };
            whole.insert(name, (head.bytes(), writer));
            true
        })?;
        marks.sort();
        marks.dedup();
        marks.retain(|mark| {
            let named = whole.get(&mark.file);
            named.is_none_or(|(_, writer)| *writer != Some(mark.writer))
        });
        let whole = whole.into_iter();
        let whole = whole.map(|(name, (bytes, _))| (name, bytes)).collect();
        Ok(StoreResponse::Files(whole, marks))
    }

    /// Removes named and unfinished files. The pieces stay marked until they are removed.
    fn remove(&self, whole: &[String], unfinished: &[FileMark]) -> Result<()> {
        let heads = self.heads.get_all(whole)?;
        let heads = heads.into_iter().flatten();
        let mut going: Vec<FileMark> = heads
            .filter_map(|head| match head {
                Head::Large(mark) => Some(mark),
                Head::Small(_) => None,
            })
            .collect();
        if !going.is_empty() {
            self.mark(&going)?;
        }
        retry_unknown(|| self.heads.remove_all(whole))?;
        let (begun, named) = self.begun(unfinished)?;
        going.extend(begun);
        let pieces: Vec<String> = going.iter().flat_map(|mark| mark.pieces()).collect();
        retry_unknown(|| self.pieces.remove_all(&pieces))?;
        going.extend(named);
        match going.is_empty() {
            true => Ok(()),
            false => self.unmark(&going),
        }
    }

    /// Splits `unfinished` into the files to remove, and the files named meanwhile, of which only
    /// the mark is removed. A stored mark takes precedence over the given one.
    fn begun(&self, unfinished: &[FileMark]) -> Result<(Vec<FileMark>, Vec<FileMark>)> {
        if unfinished.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let keys: Vec<String> = unfinished.iter().map(FileMark::key).collect();
        let names: Vec<String> = unfinished.iter().map(|mark| mark.file.clone()).collect();
        let (marks, heads) = (self.marks.get_all(&keys)?, self.heads.get_all(&names)?);
        let begun = unfinished.iter().zip(marks).zip(heads);
        let is_named = |mark: &FileMark, head: &Option<Head>| matches!(head, Some(Head::Large(named)) if named.writer == mark.writer);
        let (mut going, mut named) = (Vec::new(), Vec::new());
        for ((asked, mark), head) in begun {
            let mark = mark.unwrap_or_else(|| asked.clone());
            match is_named(&mark, &head) {
                true => named.push(mark),
                false => going.push(mark),
            }
        }
        Ok((going, named))
    }
}

impl GridStoreClient for LocalGridStore {
    fn request(&self, job: &str, ask: StoreRequest) -> Result<StoreResponse> {
        let maps = || self.maps(job);
        let desk = || MapService::new(self);
        match ask {
            StoreRequest::Lay { marks, pieces } => {
                maps()?.lay(&marks, pieces).map(|()| StoreResponse::Done)
            }
            StoreRequest::Name(files) => maps()?.name(&files).map(StoreResponse::Had),
            StoreRequest::Read(name) => maps()?.read(name),
            StoreRequest::Pieces(keys) => maps()?.pieces(&keys).map(StoreResponse::Pieces),
            StoreRequest::List => maps()?.list(),
            StoreRequest::Remove { whole, unfinished } => maps()?
                .remove(&whole, &unfinished)
                .map(|()| StoreResponse::Done),
            StoreRequest::Losses => self.losses().map(StoreResponse::Losses),
            StoreRequest::Map(name, ask) => desk().answer(&name, ask).map(StoreResponse::Map),
            StoreRequest::Watch(name) => {
                let what = format!("a watch of the map {name:?} needs a connection of its own");
                Err(Error::new(ErrorCode::BadMessage, what))
            }
        }
    }

    fn watch(&self, map: &str) -> Result<Box<dyn MapEventStream>> {
        let hearing: Box<dyn MapEventStream> = Box::new(MapService::new(self).listen(map)?);
        Ok(hearing)
    }
}

impl fmt::Debug for LocalGridStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot();
        f.debug_tuple("LocalGridStore")
            .field(&slot.open.as_ref().map(|open| &open.grid))
            .finish()
    }
}
