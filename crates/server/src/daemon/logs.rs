//! What the containers of a job have written, line by line: while the job is there, by its scheduler; of one that is gone, from the files.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{LogLine, LogLines, LogQuery, LogSource, LogStream, MOST_LINE_BYTES};
use ardea_scheduler::{JobScheduler, KeptOutput, LogFile, LogPiece, LogRequest};
use tokio::sync::mpsc;

/// How often a file is looked at that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a file may be out of reach before that ends its lines: longer than a host takes to be lost, and its containers to be
/// started elsewhere.
const AWAY_WITHIN: Duration = Duration::from_secs(60);

/// How many lines wait for whoever reads them.
const WAITING_LINES: usize = 256;

/// Who has a container's output.
#[derive(Clone)]
enum Keeper {
    /// Whoever runs it.
    Scheduler(JobScheduler),
    /// Nobody any more: these are its files.
    Files(KeptOutput),
    /// What a test has it say, one after the other.
    #[cfg(test)]
    Script(std::sync::Arc<std::sync::Mutex<std::collections::VecDeque<Result<LogPiece>>>>),
}

impl Keeper {
    async fn logs(&self, container: ContainerId, request: LogRequest) -> Result<LogPiece> {
        match self {
            Keeper::Scheduler(scheduler) => scheduler.logs(container, request).await,
            #[cfg(test)]
            Keeper::Script(script) => {
                let said = script.lock().ok().and_then(|mut said| said.pop_front());
                said.unwrap_or_else(|| Err(Error::new(ErrorCode::NoSuchContainer, "it is over")))
            }
            Keeper::Files(kept) => {
                let kept = kept.clone();
                let reading = move || kept.read(container, &request);
                let read = tokio::task::spawn_blocking(reading).await;
                read.map_err(|error| {
                    Error::new(ErrorCode::Internal, "reading a file was cut off").because(error)
                })?
            }
        }
    }
}

/// The lines of these containers that are asked for; those that follow until the job is `over`.
pub(crate) fn stream(
    scheduler: JobScheduler,
    containers: Vec<ContainerId>,
    query: LogQuery,
    over: impl Future<Output = ()> + Send + 'static,
) -> LogStream {
    let keeper = Keeper::Scheduler(scheduler);
    let files = containers.into_iter().map(|id| (id, keeper.clone()));
    let mut files = readers(files, &query);
    let (lines, stream) = mpsc::channel(WAITING_LINES);
    tokio::spawn(async move {
        let mut told = tell(&mut files, &query, &lines).await;
        if told.is_ok() && query.follow {
            told = follow(&mut files, &lines, over).await;
        }
        give_reason(told, &lines).await;
    });
    stream
}

/// The lines of containers whose job is gone: of these files, then what other hosts have; at last what has to be told beside it.
pub(crate) fn kept(
    files: Vec<(ContainerId, KeptOutput)>,
    elsewhere: Vec<LogLines>,
    missing: Option<Error>,
    query: LogQuery,
) -> LogStream {
    let files = files.into_iter();
    let files = files.map(|(container, kept)| (container, Keeper::Files(kept)));
    let mut files = readers(files, &query);
    let (lines, stream) = mpsc::channel(WAITING_LINES);
    tokio::spawn(async move {
        let mut told = tell(&mut files, &query, &lines).await;
        for other in elsewhere {
            if told.is_ok() {
                told = pass_on(other, &lines).await;
            }
        }
        if told.is_ok() {
            told = missing.map_or(Ok(()), |error| Err(Some(error)));
        }
        give_reason(told, &lines).await;
    });
    stream
}

/// A reader of each file that is asked for.
fn readers(
    containers: impl Iterator<Item = (ContainerId, Keeper)>,
    query: &LogQuery,
) -> Vec<Reader> {
    let sources = [LogSource::Stdout, LogSource::Stderr];
    let wanted = query.source;
    let sources = sources.into_iter();
    let sources = sources.filter(|source| wanted.is_none_or(|wanted| wanted == *source));
    let sources: Vec<LogSource> = sources.collect();
    let mut readers = Vec::new();
    for (container, keeper) in containers {
        let of = |source: &LogSource| Reader::of(container, *source, keeper.clone());
        readers.extend(sources.iter().map(of));
    }
    readers
}

/// Says why there are no more lines, if that is not their end.
async fn give_reason(told: std::result::Result<(), Option<Error>>, lines: &Lines) {
    if let Err(Some(error)) = told {
        // Whoever reads may be gone.
        let _ = lines.send(Err(error)).await;
    }
}

/// Tells what another host has.
async fn pass_on(mut other: LogLines, lines: &Lines) -> std::result::Result<(), Option<Error>> {
    while let Some(line) = other.next().await? {
        lines.send(Ok(line)).await.map_err(|_| None)?;
    }
    Ok(())
}

type Lines = mpsc::Sender<Result<LogLine>>;

/// Tells the last lines that are there; what is no whole line yet as well, unless more may follow. `Err(None)` if nobody listens.
async fn tell(
    files: &mut [Reader],
    query: &LogQuery,
    lines: &Lines,
) -> std::result::Result<(), Option<Error>> {
    for file in files.iter_mut() {
        let request = LogRequest::tail(file.file(), query.tail_lines());
        let piece = file.piece(request).await?;
        if piece.position == 0 || piece.bytes.len() < LogPiece::MOST_BYTES as usize {
            let missing = (query.tail_lines() as usize).saturating_sub(lines_in(&piece.bytes));
            file.begins_at(piece.position, missing > 0, lines).await?;
            file.tell(piece, lines).await?;
            continue;
        }
        // There may be more of them than one piece has.
        let end = piece.next();
        let (start, is_short) = file.start_of(piece, query.tail_lines(), lines).await?;
        file.begins_at(start, is_short, lines).await?;
        file.tell_until(end, lines).await?;
    }
    if !query.follow {
        for file in files {
            file.tell_rest(lines).await?;
        }
    }
    Ok(())
}

/// Tells what is written from now on, until nobody listens or the job is over: its files may stay.
async fn follow(
    files: &mut [Reader],
    lines: &Lines,
    over: impl Future<Output = ()>,
) -> std::result::Result<(), Option<Error>> {
    let mut over = pin!(over);
    let mut is_over = false;
    let mut reached = Instant::now();
    loop {
        let mut moved = false;
        let mut is_away = false;
        for file in files.iter_mut() {
            let request = LogRequest::from(file.file(), file.position);
            let piece = match file.piece(request).await {
                Ok(piece) => piece,
                // Nobody keeps it any more.
                Err(Some(error)) if is_over && error.code() == ErrorCode::NoSuchContainer => {
                    continue;
                }
                // Others may have their last lines yet.
                Err(Some(error)) if is_over => {
                    file.unread.get_or_insert(error);
                    continue;
                }
                // It is there again soon, or its containers run elsewhere. Those of a job that is over run nowhere.
                Err(Some(error)) if is_passing(&error) && reached.elapsed() < AWAY_WITHIN => {
                    is_away = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            file.unread = None;
            moved |= file.tell(piece, lines).await?;
        }
        if !is_away {
            reached = Instant::now();
        }
        if moved {
            continue;
        }
        if is_over {
            for file in files.iter_mut() {
                file.tell_rest(lines).await?;
            }
            let unread = files.iter_mut().find_map(|file| file.unread.take());
            return unread.map_or(Ok(()), |error| Err(Some(error)));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = &mut over => is_over = true,
            () = lines.closed() => return Err(None),
        }
    }
}

/// Whether who has a file can't be reached just now.
fn is_passing(error: &Error) -> bool {
    error.code() == ErrorCode::SchedulerUnavailable
}

/// One file that is read.
struct Reader {
    container: ContainerId,
    source: LogSource,
    keeper: Keeper,
    /// The position up to which it was read.
    position: u64,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    /// Why its last lines can't be read of a job that is over.
    unread: Option<Error>,
}

impl Reader {
    fn of(container: ContainerId, source: LogSource, keeper: Keeper) -> Self {
        Reader {
            container,
            source,
            keeper,
            position: 0,
            rest: Vec::new(),
            unread: None,
        }
    }

    fn file(&self) -> LogFile {
        match self.source {
            LogSource::Stdout => LogFile::Stdout,
            LogSource::Stderr => LogFile::Stderr,
        }
    }

    async fn piece(&mut self, request: LogRequest) -> std::result::Result<LogPiece, Option<Error>> {
        let piece = self.keeper.logs(self.container, request).await?;
        if piece.end < self.position {
            // Its folder has been begun anew, and its output with it.
            self.position = 0;
            let again = LogRequest::from(self.file(), 0);
            return Ok(self.keeper.logs(self.container, again).await?);
        }
        Ok(piece)
    }

    /// Begins at a position. If more lines are wanted than are kept, what was before them is told to be left out.
    async fn begins_at(
        &mut self,
        position: u64,
        is_short: bool,
        lines: &Lines,
    ) -> std::result::Result<(), Option<Error>> {
        self.position = position;
        match is_short && position > 0 {
            true => self.tell_left_out(position, lines).await,
            false => Ok(()),
        }
    }

    /// Where the last so many lines begin of an output of which this is the last piece: looks through what is before it. Also
    /// whether fewer are kept.
    async fn start_of(
        &self,
        last: LogPiece,
        wanted: u32,
        lines: &Lines,
    ) -> std::result::Result<(u64, bool), Option<Error>> {
        let text = last.bytes.strip_suffix(b"\n").unwrap_or(&last.bytes);
        let mut missing = (wanted as usize).saturating_sub(ends(text).count());
        let mut until = last.position;
        while until > 0 && missing > 0 {
            if lines.is_closed() {
                return Err(None);
            }
            let from = until.saturating_sub(LogPiece::MOST_BYTES.into());
            let mut piece = self
                .keeper
                .logs(self.container, self.between(from, until))
                .await?;
            // A piece whose first bytes are not kept begins later, and reaches further.
            let wanted = until.saturating_sub(piece.position);
            piece
                .bytes
                .truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            if piece.end < until {
                // The output has been begun anew meanwhile: all of it is new.
                return Ok((0, false));
            }
            if piece.position >= until {
                // What was before is not kept any more.
                return Ok((until, true));
            }
            let here = ends(&piece.bytes).count();
            if here >= missing {
                let at = ends(&piece.bytes).rev().nth(missing - 1);
                return Ok((piece.position + at.map_or(0, |at| at as u64 + 1), false));
            }
            (missing, until) = (missing - here, piece.position);
        }
        Ok((until, false))
    }

    /// What is between two positions, or as much of it as one piece has.
    fn between(&self, from: u64, until: u64) -> LogRequest {
        let request = LogRequest::from(self.file(), from);
        let most_bytes = u32::try_from(until.saturating_sub(from)).unwrap_or(u32::MAX);
        LogRequest {
            most_bytes: most_bytes.min(LogPiece::MOST_BYTES),
            ..request
        }
    }

    /// Tells the whole lines from where it is up to a position.
    async fn tell_until(
        &mut self,
        end: u64,
        lines: &Lines,
    ) -> std::result::Result<(), Option<Error>> {
        while self.position < end {
            let piece = self.piece(self.between(self.position, end)).await?;
            if !self.tell(piece, lines).await? {
                break;
            }
        }
        Ok(())
    }

    /// Tells that so many bytes are not kept any more, behind what was told before them.
    async fn tell_left_out(
        &mut self,
        bytes: u64,
        lines: &Lines,
    ) -> std::result::Result<(), Option<Error>> {
        self.tell_rest(lines).await?;
        let line = LogLine::left_out(self.container, self.source, bytes);
        lines.send(Ok(line)).await.map_err(|_| None)
    }

    /// Tells the whole lines of a piece; whether there was anything in it.
    async fn tell(
        &mut self,
        piece: LogPiece,
        lines: &Lines,
    ) -> std::result::Result<bool, Option<Error>> {
        let left_out = piece.position.saturating_sub(self.position);
        if left_out > 0 {
            self.tell_left_out(left_out, lines).await?;
        }
        self.position = piece.next();
        let any = !piece.bytes.is_empty();
        for part in piece.bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            while self.rest.len() - end_bytes(&self.rest) > MOST_LINE_BYTES {
                let rest = self.rest.split_off(before_letter(&self.rest));
                let piece = std::mem::replace(&mut self.rest, rest);
                let text = String::from_utf8_lossy(&piece).into_owned();
                self.send(text, true, lines).await?;
            }
            if self.rest.ends_with(b"\n") {
                self.tell_rest(lines).await?;
            }
        }
        Ok(any)
    }

    async fn tell_rest(&mut self, lines: &Lines) -> std::result::Result<(), Option<Error>> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.rest);
        let text = text.trim_end_matches(['\n', '\r']).to_string();
        self.rest.clear();
        self.send(text, false, lines).await
    }

    async fn send(
        &self,
        text: String,
        continues: bool,
        lines: &Lines,
    ) -> std::result::Result<(), Option<Error>> {
        let line = LogLine {
            container: self.container,
            source: self.source,
            text,
            continues,
            left_out_bytes: None,
        };
        lines.send(Ok(line)).await.map_err(|_| None)
    }
}

/// The number of lines, with one that has no end.
fn lines_in(bytes: &[u8]) -> usize {
    let begun = bytes.last().is_some_and(|last| *last != b'\n');
    ends(bytes).count() + usize::from(begun)
}

/// Where lines end.
fn ends(bytes: &[u8]) -> impl DoubleEndedIterator<Item = usize> + '_ {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at)
}

/// How many of the last bytes are the line's end, or may become it: they don't count.
fn end_bytes(line: &[u8]) -> usize {
    match line {
        [.., b'\r', b'\n'] => 2,
        [.., b'\r' | b'\n'] => 1,
        _ => 0,
    }
}

/// Where a line is cut that is longer than a piece: between two letters.
fn before_letter(line: &[u8]) -> usize {
    let is_within = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut places = (MOST_LINE_BYTES - 3..=MOST_LINE_BYTES).rev();
    places.find(|at| !is_within(at)).unwrap_or(MOST_LINE_BYTES)
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
