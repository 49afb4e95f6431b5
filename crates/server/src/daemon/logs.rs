//! Log lines of a job's containers. They come from the scheduler while the job exists, and from the
//! retained files afterwards.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{LogLine, LogLines, LogQuery, LogSource, LogStream, MAX_LINE_BYTES};
use ardea_scheduler::{JobScheduler, LogFile, LogPiece, LogRequest, RetainedLogs};
use tokio::sync::mpsc;

/// Poll interval of a tailed file.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time for which a tailed file may be unreachable before its stream ends. It is longer
/// than the failover of a host and the restart of its containers.
const AWAY_WITHIN: Duration = Duration::from_secs(60);

/// Capacity, in lines, of the queue to the client.
const WAITING_LINES: usize = 256;

/// The access to a container's output.
#[derive(Clone)]
enum LogAccess {
    /// Through the scheduler that runs the container.
    Scheduler(JobScheduler),
    /// From the files of an ended job.
    Files(RetainedLogs),
    /// Test responses, in order.
    #[cfg(test)]
    Script(std::sync::Arc<std::sync::Mutex<std::collections::VecDeque<Result<LogPiece>>>>),
}

impl LogAccess {
    async fn logs(&self, container: ContainerId, request: LogRequest) -> Result<LogPiece> {
        match self {
            LogAccess::Scheduler(scheduler) => scheduler.logs(container, request).await,
            #[cfg(test)]
            LogAccess::Script(script) => {
                let said = script.lock().ok().and_then(|mut said| said.pop_front());
                said.unwrap_or_else(|| Err(Error::new(ErrorCode::NoSuchContainer, "it is over")))
            }
            LogAccess::Files(kept) => {
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

/// Streams the requested lines of the containers. In follow mode, the stream continues until `over`
/// completes.
pub(crate) fn stream(
    scheduler: JobScheduler,
    containers: Vec<ContainerId>,
    query: LogQuery,
    over: impl Future<Output = ()> + Send + 'static,
) -> LogStream {
    let keeper = LogAccess::Scheduler(scheduler);
    let files = containers.into_iter().map(|id| (id, keeper.clone()));
    let mut files = readers(files, &query);
    let (lines, stream) = mpsc::channel(WAITING_LINES);
    tokio::spawn(async move {
        let mut told = tell(&mut files, &query, &lines).await;
        if told.is_ok() && query.follow {
            told = follow(&mut files, &lines, over).await;
        }
        send_error(told, &lines).await;
    });
    stream
}

/// Streams the lines of an ended job: first from `files`, then from the hosts in `elsewhere`. The
/// error `missing` is sent last.
pub(crate) fn kept(
    files: Vec<(ContainerId, RetainedLogs)>,
    elsewhere: Vec<LogLines>,
    missing: Option<Error>,
    query: LogQuery,
) -> LogStream {
    let files = files.into_iter();
    let files = files.map(|(container, kept)| (container, LogAccess::Files(kept)));
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
        send_error(told, &lines).await;
    });
    stream
}

/// Returns a reader for the output of each requested container.
fn readers(
    containers: impl Iterator<Item = (ContainerId, LogAccess)>,
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

/// Sends the error that has ended the stream, if any.
async fn send_error(told: std::result::Result<(), Option<Error>>, lines: &Lines) {
    if let Err(Some(error)) = told {
        // The receiver may have been dropped.
        let _ = lines.send(Err(error)).await;
    }
}

/// Forwards the log lines of another host.
async fn pass_on(mut other: LogLines, lines: &Lines) -> std::result::Result<(), Option<Error>> {
    while let Some(line) = other.next().await? {
        lines.send(Ok(line)).await.map_err(|_| None)?;
    }
    Ok(())
}

type Lines = mpsc::Sender<Result<LogLine>>;

/// Sends the last lines of the files. An incomplete line is included unless the files are tailed.
/// Returns `Err(None)` if the receiver was dropped.
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
        // The requested lines may exceed one piece.
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

/// Sends new lines until the receiver is dropped or `over` completes.
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
                // The file of the ended job has been removed.
                Err(Some(error)) if is_over && error.code() == ErrorCode::NoSuchContainer => {
                    continue;
                }
                // Other files may still have unread lines.
                Err(Some(error)) if is_over => {
                    file.unread.get_or_insert(error);
                    continue;
                }
                // The host may return, or the container may move to another host. Neither happens
                // after the end of the job.
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
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = &mut over => is_over = true,
            () = lines.closed() => return Err(None),
        }
    }
}

/// Checks whether the error may be temporary.
fn is_passing(error: &Error) -> bool {
    error.code() == ErrorCode::SchedulerUnavailable
}

/// A reader of the output of one container.
struct Reader {
    container: ContainerId,
    source: LogSource,
    keeper: LogAccess,
    /// The position of the next unread byte.
    position: u64,
    /// The first bytes of an incomplete line.
    rest: Vec<u8>,
    /// The error that prevents reading the last lines after the job has ended.
    unread: Option<Error>,
}

impl Reader {
    fn of(container: ContainerId, source: LogSource, keeper: LogAccess) -> Self {
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
            // The file is shorter: the container's folder has been recreated.
            self.position = 0;
            let again = LogRequest::from(self.file(), 0);
            return Ok(self.keeper.logs(self.container, again).await?);
        }
        Ok(piece)
    }

    /// Sets the start position. If fewer lines are retained than requested (`is_short`), reports
    /// the preceding bytes as left out.
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

    /// Searches backwards from the end of the piece `last` for the start of the last `wanted`
    /// lines. Returns its position, and true if fewer lines are retained.
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
            // If the first requested bytes are no longer retained, the piece starts later and may
            // extend beyond `until`.
            let wanted = until.saturating_sub(piece.position);
            piece
                .bytes
                .truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            if piece.end < until {
                // The file was recreated during the search: all of its content is new.
                return Ok((0, false));
            }
            if piece.position >= until {
                // The bytes before `until` are no longer retained.
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

    /// Returns a request for the range between two positions, limited to one piece.
    fn between(&self, from: u64, until: u64) -> LogRequest {
        let request = LogRequest::from(self.file(), from);
        let most_bytes = u32::try_from(until.saturating_sub(from)).unwrap_or(u32::MAX);
        LogRequest {
            most_bytes: most_bytes.min(LogPiece::MOST_BYTES),
            ..request
        }
    }

    /// Sends the complete lines from the current position up to `end`.
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

    /// Sends the incomplete line, followed by a marker with the number of bytes that are no longer
    /// retained.
    async fn tell_left_out(
        &mut self,
        bytes: u64,
        lines: &Lines,
    ) -> std::result::Result<(), Option<Error>> {
        self.tell_rest(lines).await?;
        let line = LogLine::left_out(self.container, self.source, bytes);
        lines.send(Ok(line)).await.map_err(|_| None)
    }

    /// Sends the complete lines of a piece. Returns true if the piece was not empty.
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
            while self.rest.len() - end_bytes(&self.rest) > MAX_LINE_BYTES {
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

/// Returns the number of lines, including an incomplete one.
fn lines_in(bytes: &[u8]) -> usize {
    let begun = bytes.last().is_some_and(|last| *last != b'\n');
    ends(bytes).count() + usize::from(begun)
}

/// Returns the positions of the line ends in `bytes`.
fn ends(bytes: &[u8]) -> impl DoubleEndedIterator<Item = usize> + '_ {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at)
}

/// Returns the number of trailing bytes that form a line end or the first byte of one.
fn end_bytes(line: &[u8]) -> usize {
    match line {
        [.., b'\r', b'\n'] => 2,
        [.., b'\r' | b'\n'] => 1,
        _ => 0,
    }
}

/// Returns the position at which a long line is split: a character boundary.
fn before_letter(line: &[u8]) -> usize {
    let is_within = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut places = (MAX_LINE_BYTES - 3..=MAX_LINE_BYTES).rev();
    places.find(|at| !is_within(at)).unwrap_or(MAX_LINE_BYTES)
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
