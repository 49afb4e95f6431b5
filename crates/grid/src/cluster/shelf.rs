//! What a member of the grid does for those who ask.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::node::{Grid, GridMap, MemberId, Plain, View};
use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;

use crate::cluster::ask::{
    Ask, Head, Hearing, LETTER_BYTES, Losses, Mark, PIECE_BYTES, Shelter, Told,
};
use crate::cluster::maps::MapDesk;

/// How often a change is tried whose member was lost on the way.
const MOST_TRIES: u32 = 5;

/// The map of the jobs that keep something, by their names; each with nothing.
const JOBS: &str = "jobs with snapshots";

/// Files of jobs in the maps of a grid, by way of the member of it that is in this process at the moment. Clones are the same.
#[derive(Clone, Default)]
pub struct GridShelf(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    open: Option<Open>,
    /// Why there is no member.
    why: Option<Error>,
    /// There will be none any more.
    is_over: bool,
}

struct Open {
    grid: Grid,
    /// Which grid it is.
    life: u64,
    jobs: GridMap<String, u8>,
    maps: HashMap<String, Maps>,
}

/// The maps of a job.
#[derive(Clone)]
struct Maps {
    heads: GridMap<String, Head>,
    pieces: GridMap<String, Plain>,
    marks: GridMap<String, Mark>,
}

impl GridShelf {
    /// Without a member yet.
    pub fn new() -> Self {
        GridShelf::default()
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This member of the grid of that number from now on.
    ///
    /// # Errors
    /// If the shelf is [over](Self::end).
    pub fn open(&self, grid: Grid, life: u64) -> Result<()> {
        let jobs = grid.map(JOBS)?;
        let before = {
            let mut slot = self.slot();
            if slot.is_over {
                let what = "what keeps snapshots in memory here has ended";
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
        // Outside of the lock: it waits for its threads.
        drop(before);
        Ok(())
    }

    /// Without a member from now on, because of this: who asks is told. The member that there was has stopped when this returns.
    pub fn close(&self, why: Error) {
        let before = {
            let mut slot = self.slot();
            slot.why = Some(why);
            slot.open.take()
        };
        drop(before);
    }

    /// Without a member for good, because of this.
    pub fn end(&self, why: Error) {
        self.slot().is_over = true;
        self.close(why);
    }

    /// Takes the member out, for whoever lets it leave.
    pub(crate) fn take(&self) -> Option<Grid> {
        let open = self.slot().open.take();
        open.map(|open| open.grid)
    }

    /// The view of the grid, as its member here knows it.
    pub fn view(&self) -> Option<Arc<View>> {
        self.slot().open.as_ref()?.grid.view()
    }

    /// Whether there is a member here that the others go on without.
    pub(crate) fn is_out(&self) -> bool {
        self.slot()
            .open
            .as_ref()
            .is_some_and(|open| open.grid.is_out())
    }

    /// Why no member is here, if that is known.
    pub fn trouble(&self) -> Option<Error> {
        self.slot().why.clone()
    }

    /// Whether a member is here.
    pub fn is_open(&self) -> bool {
        self.slot().open.is_some()
    }

    /// Whether the member here is the first of the grid, by which it is known who does what has to be done once.
    pub fn is_first(&self) -> bool {
        let slot = self.slot();
        let Some(open) = &slot.open else {
            return false;
        };
        let view = open.grid.view();
        view.is_some_and(|view| view.members.first().map(|first| first.id) == Some(open.grid.id()))
    }

    /// Says that a member is proven to be dead.
    pub(crate) fn tell_dead(&self, member: MemberId) {
        if let Some(open) = &self.slot().open {
            open.grid.tell_dead(member);
        }
    }

    /// A map of the grid, of those that are no job's.
    pub(crate) fn guest(&self, name: &str) -> Result<GridMap<Plain, Plain>> {
        self.with(|open| Ok(open.grid.guest_map(name)))
    }

    /// The jobs that keep something.
    ///
    /// # Errors
    /// As [`Shelter::ask`].
    pub fn jobs(&self) -> Result<Vec<String>> {
        let jobs = self.with(|open| Ok(open.jobs.clone()))?;
        let mut found = BTreeSet::new();
        jobs.scan(|job, _| {
            found.insert(job);
            true
        })?;
        Ok(found.into_iter().collect())
    }

    /// Removes all that a job keeps, and forgets the job.
    ///
    /// # Errors
    /// As [`Shelter::ask`]; some may be gone.
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
                let what = "this host has no part in what keeps snapshots in memory";
                let error = Error::new(ErrorCode::StateUnavailable, what);
                Err(match why {
                    Some(why) => error.because(why.without_hint()),
                    None => error.because("it is just beginning or ending"),
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
            let map = |what: &str| format!("snapshots of {job}: {what}");
            let maps = Maps {
                heads: open.grid.map(&map("heads"))?,
                pieces: open.grid.bytes_map(&map("pieces"))?,
                marks: open.grid.map(&map("marks"))?,
            };
            Ok((open.grid.id(), open.jobs.clone(), maps))
        })?;
        // Known before there is anything of it: so it is found when the job is gone.
        again(|| jobs.put(&job.to_string(), &0))?;
        self.with(|open| {
            // Another member may have taken its place meanwhile.
            if open.grid.id() == member {
                open.maps.insert(job.to_string(), maps.clone());
            }
            Ok(())
        })?;
        Ok(maps)
    }

    fn losses(&self) -> Result<Losses> {
        self.with(|open| {
            let view = open.grid.view();
            let records = view.iter().flat_map(|view| &view.records);
            Ok(Losses {
                grid: open.life,
                parts: records.map(|record| u64::from(record.losses)).sum(),
            })
        })
    }
}

/// Tries a change again that was done or not: all of them may be done twice.
pub(crate) fn again<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    let mut tries = 1;
    loop {
        match work() {
            Err(error) if error.code() == ErrorCode::StateUnknown && tries < MOST_TRIES => {
                tries += 1;
            }
            done => return done,
        }
    }
}

impl Maps {
    fn lay(&self, marks: &[Mark], pieces: Vec<(String, Bytes)>) -> Result<()> {
        self.mark(marks)?;
        let plain = |(key, piece)| (key, Plain(piece));
        let pieces: Vec<(String, Plain)> = pieces.into_iter().map(plain).collect();
        again(|| {
            self.pieces
                .put_all(pieces.iter().map(|(key, piece)| (key, piece)))
        })
    }

    fn pieces(&self, keys: &[String]) -> Result<Vec<Option<Bytes>>> {
        let pieces = self.pieces.get_all(keys)?.into_iter();
        Ok(pieces.map(|piece| Some(piece?.0)).collect())
    }

    fn mark(&self, marks: &[Mark]) -> Result<()> {
        let keyed: Vec<(String, &Mark)> = marks.iter().map(|mark| (mark.key(), mark)).collect();
        again(|| {
            self.marks
                .put_all(keyed.iter().map(|(key, mark)| (key, *mark)))
        })
    }

    fn unmark(&self, marks: &[Mark]) -> Result<()> {
        let keys: Vec<String> = marks.iter().map(Mark::key).collect();
        again(|| self.marks.remove_all(&keys))
    }

    fn name(&self, files: &[(String, Head)]) -> Result<Vec<Option<Head>>> {
        let had = again(|| {
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
        let named: Vec<Mark> = named.collect();
        // It has its name: a mark that stays is known to be of no use.
        if !named.is_empty() {
            let _ = self.unmark(&named);
        }
        Ok(had)
    }

    fn read(&self, name: String) -> Result<Told> {
        let head = self.heads.get(&name)?;
        let first = match &head {
            Some(Head::Large(mark)) => {
                let keys: Vec<String> = mark.pieces().take(LETTER_BYTES / PIECE_BYTES).collect();
                self.pieces(&keys)?
            }
            _ => Vec::new(),
        };
        Ok(Told::File(head, first))
    }

    fn list(&self) -> Result<Told> {
        let mut marks = Vec::new();
        self.marks.scan(|_, mark| {
            marks.push(mark);
            true
        })?;
        // Behind the marks: of what has got its name meanwhile nothing is taken for unfinished.
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
        Ok(Told::Files(whole, marks))
    }

    /// The pieces of what is removed stay marked until they are gone.
    fn remove(&self, whole: &[String], unfinished: &[Mark]) -> Result<()> {
        let heads = self.heads.get_all(whole)?;
        let heads = heads.into_iter().flatten();
        let mut going: Vec<Mark> = heads
            .filter_map(|head| match head {
                Head::Large(mark) => Some(mark),
                Head::Small(_) => None,
            })
            .collect();
        if !going.is_empty() {
            self.mark(&going)?;
        }
        again(|| self.heads.remove_all(whole))?;
        let (begun, named) = self.begun(unfinished)?;
        going.extend(begun);
        let pieces: Vec<String> = going.iter().flat_map(|mark| mark.pieces()).collect();
        again(|| self.pieces.remove_all(&pieces))?;
        going.extend(named);
        match going.is_empty() {
            true => Ok(()),
            false => self.unmark(&going),
        }
    }

    /// Of what was begun, what is to go: as its mark says how long it is. What has its name after all loses nothing but its mark.
    fn begun(&self, unfinished: &[Mark]) -> Result<(Vec<Mark>, Vec<Mark>)> {
        if unfinished.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let keys: Vec<String> = unfinished.iter().map(Mark::key).collect();
        let names: Vec<String> = unfinished.iter().map(|mark| mark.file.clone()).collect();
        let (marks, heads) = (self.marks.get_all(&keys)?, self.heads.get_all(&names)?);
        let begun = unfinished.iter().zip(marks).zip(heads);
        let is_named = |mark: &Mark, head: &Option<Head>| matches!(head, Some(Head::Large(named)) if named.writer == mark.writer);
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

impl Shelter for GridShelf {
    fn ask(&self, job: &str, ask: Ask) -> Result<Told> {
        let maps = || self.maps(job);
        let desk = || MapDesk::new(self);
        match ask {
            Ask::Lay { marks, pieces } => maps()?.lay(&marks, pieces).map(|()| Told::Done),
            Ask::Name(files) => maps()?.name(&files).map(Told::Had),
            Ask::Read(name) => maps()?.read(name),
            Ask::Pieces(keys) => maps()?.pieces(&keys).map(Told::Pieces),
            Ask::List => maps()?.list(),
            Ask::Remove { whole, unfinished } => {
                maps()?.remove(&whole, &unfinished).map(|()| Told::Done)
            }
            Ask::Losses => self.losses().map(Told::Losses),
            Ask::Map(name, ask) => desk().answer(&name, ask).map(Told::Map),
            Ask::Listen(name) => {
                let what = format!("the map {name:?} is listened to, not asked");
                Err(Error::new(ErrorCode::BadMessage, what))
            }
        }
    }

    fn listen(&self, map: &str) -> Result<Box<dyn Hearing>> {
        let hearing: Box<dyn Hearing> = Box::new(MapDesk::new(self).listen(map)?);
        Ok(hearing)
    }
}

impl fmt::Debug for GridShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot();
        f.debug_tuple("GridShelf")
            .field(&slot.open.as_ref().map(|open| &open.grid))
            .finish()
    }
}
