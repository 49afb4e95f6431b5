//! What the containers of a job have written, line by line: while the job is there, by its scheduler; of one that is gone, from the files.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use ardea_api::{LogLine, LogLines, LogQuery, LogSource, LogStream, MOST_LINE_BYTES};
use ardea_core::{Error, ErrorCode, Result};
use ardea_packing::ContainerId;
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
        if piece.offset == 0 || piece.bytes.len() < LogPiece::MOST_BYTES as usize {
            file.tell(piece, lines).await?;
            continue;
        }
        // There may be more of them than one piece has.
        let end = piece.next();
        file.offset = file.start_of(piece, query.tail_lines(), lines).await?;
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
            let request = LogRequest::from(file.file(), file.offset);
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
    offset: u64,
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
            offset: 0,
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
        if piece.file_bytes < self.offset {
            // The container was started again, and its file with it.
            self.offset = 0;
            let again = LogRequest::from(self.file(), 0);
            return Ok(self.keeper.logs(self.container, again).await?);
        }
        Ok(piece)
    }

    /// Where the last so many lines begin of a file of which this is the last piece: looks through what is before it.
    async fn start_of(
        &self,
        last: LogPiece,
        wanted: u32,
        lines: &Lines,
    ) -> std::result::Result<u64, Option<Error>> {
        let text = last.bytes.strip_suffix(b"\n").unwrap_or(&last.bytes);
        let mut missing = (wanted as usize).saturating_sub(ends(text).count());
        let mut until = last.offset;
        while until > 0 && missing > 0 {
            if lines.is_closed() {
                return Err(None);
            }
            let offset = until.saturating_sub(LogPiece::MOST_BYTES.into());
            let piece = self
                .keeper
                .logs(self.container, self.between(offset, until));
            let piece = piece.await?;
            if piece.next() != until {
                // The file has been begun anew meanwhile: all of it is new.
                return Ok(0);
            }
            let here = ends(&piece.bytes).count();
            if here >= missing {
                let at = ends(&piece.bytes).rev().nth(missing - 1);
                return Ok(offset + at.map_or(0, |at| at as u64 + 1));
            }
            (missing, until) = (missing - here, offset);
        }
        Ok(until)
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
        while self.offset < end {
            let piece = self.piece(self.between(self.offset, end)).await?;
            if !self.tell(piece, lines).await? {
                break;
            }
        }
        Ok(())
    }

    /// Tells the whole lines of a piece; whether there was anything in it.
    async fn tell(
        &mut self,
        piece: LogPiece,
        lines: &Lines,
    ) -> std::result::Result<bool, Option<Error>> {
        self.offset = piece.next();
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
        };
        lines.send(Ok(line)).await.map_err(|_| None)
    }
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
mod tests {
    use std::sync::{Arc, Mutex};

    use ardea_control::JobRef;

    use super::*;

    fn piece(offset: u64, text: &str) -> Result<LogPiece> {
        Ok(LogPiece {
            offset,
            bytes: text.into(),
            file_bytes: offset + text.len() as u64,
        })
    }

    fn away() -> Result<LogPiece> {
        Err(Error::new(ErrorCode::SchedulerUnavailable, "out of reach"))
    }

    #[tokio::test]
    async fn a_followed_file_goes_on_when_its_host_was_out_of_reach() {
        let said = [piece(0, "a\n"), away(), away(), piece(2, "b\n")];
        let script = Arc::new(Mutex::new(said.into_iter().collect()));
        let reader = Reader::of(ContainerId(1), LogSource::Stdout, Keeper::Script(script));
        let (lines, mut told) = mpsc::channel(WAITING_LINES);
        let ended = follow(&mut [reader], &lines, std::future::pending()).await;
        let code = ended.unwrap_err().map(|error| error.code());
        assert_eq!(code, Some(ErrorCode::NoSuchContainer));
        let mut next = async || told.recv().await.unwrap().unwrap().text;
        assert_eq!([next().await, next().await], ["a", "b"]);
    }

    #[tokio::test]
    async fn a_file_that_can_not_be_read_at_the_end_keeps_no_other_from_being_told_to_its_own() {
        let dead = [piece(0, ""), away(), away(), away(), away()];
        // Out of reach for a moment only: nothing of it is lost.
        let shaky = [piece(0, ""), away(), piece(0, "x\n"), piece(2, "y")];
        let well = [
            piece(0, ""),
            piece(0, "a\n"),
            piece(2, "b\n"),
            piece(4, "c"),
        ];
        let reader = |container, said: Vec<Result<LogPiece>>| {
            let script = Arc::new(Mutex::new(said.into_iter().collect()));
            Reader::of(
                ContainerId(container),
                LogSource::Stdout,
                Keeper::Script(script),
            )
        };
        let (dead, shaky, well) = (dead.to_vec(), shaky.to_vec(), well.to_vec());
        for (first, expected) in [(dead, Some(ErrorCode::SchedulerUnavailable)), (shaky, None)] {
            let is_shaky = expected.is_none();
            let mut files = [reader(1, first), reader(2, well.clone())];
            let (lines, mut told) = mpsc::channel(WAITING_LINES);
            let ended = follow(&mut files, &lines, async {}).await;
            let code = ended.err().flatten().map(|error| error.code());
            assert_eq!(code, expected);
            drop(lines);
            let mut texts: [Vec<String>; 2] = Default::default();
            while let Some(line) = told.recv().await {
                let line = line.unwrap();
                texts[line.container.0 as usize - 1].push(line.text);
            }
            assert_eq!(texts[0], if is_shaky { vec!["x", "y"] } else { Vec::new() });
            assert_eq!(texts[1], ["a", "b", "c"]);
        }
    }

    #[tokio::test]
    async fn what_can_not_be_read_of_a_job_that_is_over_is_told() {
        let away = Err(Error::new(ErrorCode::SchedulerUnavailable, "out of reach"));
        let whole = Ok(LogPiece {
            offset: 0,
            bytes: Default::default(),
            file_bytes: 0,
        });
        let script = Arc::new(Mutex::new([whole, away].into()));
        let reader = Reader::of(ContainerId(1), LogSource::Stdout, Keeper::Script(script));
        let (lines, _told) = mpsc::channel(WAITING_LINES);
        let ended = follow(&mut [reader], &lines, async {}).await;
        let code = ended.unwrap_err().map(|error| error.code());
        assert_eq!(code, Some(ErrorCode::SchedulerUnavailable));
    }

    #[tokio::test]
    async fn following_ends_when_the_job_is_over_and_all_that_it_wrote_is_told() {
        let text = |offset: u64, text: &str| {
            Ok(LogPiece {
                offset,
                bytes: text.into(),
                file_bytes: 5,
            })
        };
        // The file stays, and is told to hold no more, however often it is asked for.
        let mut said = vec![text(0, "a\n"), text(2, ""), text(2, "b\nc")];
        said.extend((0..1_000).map(|_| text(5, "")));
        let script = Arc::new(Mutex::new(said.into_iter().collect()));
        let reader = Reader::of(ContainerId(1), LogSource::Stdout, Keeper::Script(script));
        let (lines, mut told) = mpsc::channel(WAITING_LINES);
        let ended = follow(&mut [reader], &lines, async {}).await;
        assert!(ended.is_ok());
        drop(lines);
        let mut texts = Vec::new();
        while let Some(line) = told.recv().await {
            texts.push(line.unwrap().text);
        }
        assert_eq!(texts, ["a", "b", "c"]);
    }

    /// What is told of a file of that text.
    async fn told(text: &str, tail: u32) -> Vec<LogLine> {
        let folder = tempfile::tempdir().unwrap();
        let job = JobRef {
            cluster: "local".into(),
            name: "relay".into(),
            submission: 1,
        };
        let own = folder
            .path()
            .join("jobs/relay-0000000000000001/container-1");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("stdout.log"), text).unwrap();
        let output = KeptOutput::find(folder.path(), &job).unwrap();
        let query = LogQuery {
            tail: Some(tail),
            ..LogQuery::default()
        };
        let files = vec![(ContainerId(1), output)];
        let mut stream = kept(files, Vec::new(), None, query);
        let mut told = Vec::new();
        while let Some(line) = stream.recv().await {
            told.push(line.unwrap());
        }
        told
    }

    #[tokio::test]
    async fn as_many_lines_are_told_as_are_asked_for_however_long_they_are_together() {
        let line = |number: u32| format!("{number:-<500}");
        let text: String = (0..9_000).map(|number| line(number) + "\n").collect();
        for asked in [1, 2_000, 2_500, 8_999, 9_000, 10_000] {
            let told = told(&text, asked).await;
            assert_eq!(told.len(), asked.min(9_000) as usize);
            assert_eq!(told[0].text, line(9_000 - asked.min(9_000)));
            assert_eq!(told.last().unwrap().text, line(8_999));
            assert!(told.iter().all(|line| !line.continues));
        }
    }

    #[tokio::test]
    async fn a_line_longer_than_a_piece_is_told_whole_and_each_cut_has_a_sign() {
        let long = "xä".repeat(800_000);
        let told = told(&format!("one\n{long}\nlast"), 2).await;
        let (last, pieces) = told.split_last().unwrap();
        assert_eq!((last.text.as_str(), last.continues), ("last", false));
        let whole: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert!(whole == long);
        let (end, begun) = pieces.split_last().unwrap();
        assert!(!end.continues && begun.iter().all(|piece| piece.continues));
        assert!(
            begun
                .iter()
                .all(|piece| piece.text.len() <= MOST_LINE_BYTES)
        );
    }

    #[tokio::test]
    async fn a_line_is_cut_that_is_a_byte_too_long_and_its_end_is_none_of_its_bytes() {
        for end in ["", "\n", "\r\n"] {
            let told_of = async |length: usize| {
                let told = told(&("-".repeat(length) + end), 1).await;
                let pieces = told.iter().map(|piece| (piece.text.len(), piece.continues));
                pieces.collect::<Vec<_>>()
            };
            assert_eq!(told_of(MOST_LINE_BYTES).await, [(MOST_LINE_BYTES, false)]);
            let cut = [(MOST_LINE_BYTES, true), (1, false)];
            assert_eq!(told_of(MOST_LINE_BYTES + 1).await, cut, "{end:?}");
        }
    }
}
