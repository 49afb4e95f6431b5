//! What the containers of a job have written, line by line.

use std::time::Duration;

use ardea_api::{LogLine, LogQuery, LogSource, LogStream, MOST_LINE_BYTES};
use ardea_core::{Error, Result};
use ardea_packing::ContainerId;
use ardea_scheduler::{JobScheduler, LogFile, LogPiece, LogRequest};
use tokio::sync::mpsc;

/// How often a file is looked at that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How many lines wait for whoever reads them.
const WAITING_LINES: usize = 256;

/// The lines of these containers that are asked for.
pub(crate) fn stream(
    scheduler: JobScheduler,
    containers: Vec<ContainerId>,
    query: LogQuery,
) -> LogStream {
    let (lines, stream) = mpsc::channel(WAITING_LINES);
    tokio::spawn(async move {
        let mut files: Vec<Reader> = containers
            .into_iter()
            .flat_map(|container| {
                let wanted = query.source;
                [LogSource::Stdout, LogSource::Stderr]
                    .into_iter()
                    .filter(move |source| wanted.is_none_or(|wanted| wanted == *source))
                    .map(move |source| Reader::of(container, source))
            })
            .collect();
        let told = tell(&scheduler, &mut files, &query, &lines).await;
        if let Err(Some(error)) = told {
            // Whoever reads may be gone.
            let _ = lines.send(Err(error)).await;
        }
    });
    stream
}

type Lines = mpsc::Sender<Result<LogLine>>;

/// Tells lines until there are none, or nobody listens (`Err(None)`).
async fn tell(
    scheduler: &JobScheduler,
    files: &mut [Reader],
    query: &LogQuery,
    lines: &Lines,
) -> std::result::Result<(), Option<Error>> {
    for file in files.iter_mut() {
        let request = LogRequest::tail(file.file(), query.tail_lines());
        let piece = file.piece(scheduler, request).await?;
        file.tell(piece, lines).await?;
    }
    if query.follow {
        return follow(scheduler, files, lines).await;
    }
    for file in files {
        file.tell_rest(lines).await?;
    }
    Ok(())
}

/// Tells what is written from now on, until nobody listens or the job is gone.
async fn follow(
    scheduler: &JobScheduler,
    files: &mut [Reader],
    lines: &Lines,
) -> std::result::Result<(), Option<Error>> {
    loop {
        let mut moved = false;
        for file in files.iter_mut() {
            let request = LogRequest::from(file.file(), file.offset);
            let piece = file.piece(scheduler, request).await?;
            moved |= file.tell(piece, lines).await?;
        }
        if !moved {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = lines.closed() => return Err(None),
            }
        }
    }
}

/// One file that is read.
struct Reader {
    container: ContainerId,
    source: LogSource,
    offset: u64,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl Reader {
    fn of(container: ContainerId, source: LogSource) -> Self {
        Reader {
            container,
            source,
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

    async fn piece(
        &mut self,
        scheduler: &JobScheduler,
        request: LogRequest,
    ) -> std::result::Result<LogPiece, Option<Error>> {
        let piece = scheduler.logs(self.container, request).await?;
        if piece.file_bytes < self.offset {
            // The container was started again, and its file with it.
            self.offset = 0;
            let again = LogRequest::from(self.file(), 0);
            return Ok(scheduler.logs(self.container, again).await?);
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
