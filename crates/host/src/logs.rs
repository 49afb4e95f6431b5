//! What the containers of a job have written, line by line: while the job is there, by its scheduler; of one that is gone, from the files.

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

/// The lines of these containers that are asked for.
pub(crate) fn stream(
    scheduler: JobScheduler,
    containers: Vec<ContainerId>,
    query: LogQuery,
) -> LogStream {
    let keeper = Keeper::Scheduler(scheduler);
    let files = containers.into_iter().map(|id| (id, keeper.clone()));
    let mut files = readers(files, &query);
    let (lines, stream) = mpsc::channel(WAITING_LINES);
    tokio::spawn(async move {
        let mut told = tell(&mut files, &query, &lines).await;
        if told.is_ok() && query.follow {
            told = follow(&mut files, &lines).await;
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
        file.tell(piece, lines).await?;
    }
    if !query.follow {
        for file in files {
            file.tell_rest(lines).await?;
        }
    }
    Ok(())
}

/// Tells what is written from now on, until nobody listens or the job is gone.
async fn follow(files: &mut [Reader], lines: &Lines) -> std::result::Result<(), Option<Error>> {
    let mut reached = Instant::now();
    loop {
        let mut moved = false;
        let mut is_away = false;
        for file in files.iter_mut() {
            let request = LogRequest::from(file.file(), file.offset);
            let piece = match file.piece(request).await {
                Ok(piece) => piece,
                // It is there again soon, or its containers run elsewhere.
                Err(Some(error)) if is_passing(&error) && reached.elapsed() < AWAY_WITHIN => {
                    is_away = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            moved |= file.tell(piece, lines).await?;
        }
        if !is_away {
            reached = Instant::now();
        }
        if !moved {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = lines.closed() => return Err(None),
            }
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
}

impl Reader {
    fn of(container: ContainerId, source: LogSource, keeper: Keeper) -> Self {
        Reader {
            container,
            source,
            keeper,
            offset: 0,
            rest: Vec::new(),
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
            if self.rest.ends_with(b"\n") || self.rest.len() >= MOST_LINE_BYTES {
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
        let line = LogLine {
            container: self.container,
            source: self.source,
            text: text.trim_end_matches(['\n', '\r']).to_string(),
        };
        self.rest.clear();
        lines.send(Ok(line)).await.map_err(|_| None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn a_followed_file_goes_on_when_its_host_was_out_of_reach() {
        let piece = |offset: u64, text: &str| {
            Ok(LogPiece {
                offset,
                bytes: text.into(),
                file_bytes: offset + text.len() as u64,
            })
        };
        let away = || Err(Error::new(ErrorCode::SchedulerUnavailable, "out of reach"));
        let said = [piece(0, "a\n"), away(), away(), piece(2, "b\n")];
        let script = Arc::new(Mutex::new(said.into_iter().collect()));
        let reader = Reader::of(ContainerId(1), LogSource::Stdout, Keeper::Script(script));
        let (lines, mut told) = mpsc::channel(WAITING_LINES);
        let ended = follow(&mut [reader], &lines).await;
        let code = ended.unwrap_err().map(|error| error.code());
        assert_eq!(code, Some(ErrorCode::NoSuchContainer));
        let mut next = async || told.recv().await.unwrap().unwrap().text;
        assert_eq!([next().await, next().await], ["a", "b"]);
    }
}
