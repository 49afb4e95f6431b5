//! Dead letters of a job, from the files of its containers.

use ardea_coordination::packing::ContainerId;
use ardea_core::{ErrorCode, Result};
use ardea_rest::{Answer, DeadLetterPosition, DeadLetterView, DeadLettersQuery, DeadLettersView};
use ardea_scheduler::{LogFile, LogPiece, LogRequest};
use serde::Deserialize;

use super::{ClusterService, containers_of};

/// Maximum number of pieces of files that are read for a page.
const MAX_PIECES: u32 = 32;

impl ClusterService {
    /// Returns a page of the dead letters of a job led here.
    pub(super) async fn dead_letters_of(
        &self,
        job: &str,
        query: DeadLettersQuery,
    ) -> Answer<DeadLettersView> {
        let desk = self.desk(job).await?;
        let mut containers = containers_of(&desk.view().await?);
        containers.sort_unstable();
        let mut page = Page::new(containers, query)?;
        let scheduler = desk.scheduler().await?;
        for _ in 0..MAX_PIECES {
            let Some(DeadLetterPosition { container, bytes }) = page.position else {
                break;
            };
            let request = LogRequest::from(LogFile::DeadLetters, bytes);
            match scheduler.logs(container, request).await {
                Ok(piece) => page.take(container, &piece),
                // The container has no dead letters yet, or has not started.
                Err(error) if error.code() == ErrorCode::NoSuchContainer => page.next_container(),
                Err(error) => return Err(error.into()),
            }
            if page.is_full() {
                break;
            }
        }
        Ok(page.into_view())
    }
}

/// A letter as the worker writes it.
#[derive(Deserialize)]
struct Line {
    at_ms: u64,
    vertex: String,
    origin: String,
    reason: String,
    bytes: u64,
    #[serde(default)]
    raw: Option<String>,
    #[serde(default)]
    raw_base64: Option<String>,
}

/// A page of dead letters that is being read.
struct Page {
    /// Numbers of the job's containers, sorted.
    containers: Vec<ContainerId>,
    query: DeadLettersQuery,
    letters: Vec<DeadLetterView>,
    /// The next letter; `None` after the last container.
    position: Option<DeadLetterPosition>,
}

impl Page {
    fn new(containers: Vec<ContainerId>, query: DeadLettersQuery) -> Result<Self> {
        let from = query.position()?;
        let first = containers.iter().find(|it| **it >= from.container);
        let position = first.map(|&container| match container == from.container {
            true => from,
            false => start_of(container),
        });
        Ok(Page {
            containers,
            query,
            letters: Vec::new(),
            position,
        })
    }

    fn is_full(&self) -> bool {
        self.letters.len() >= self.query.limit()
    }

    /// Adds the selected letters of a piece, and moves the position behind them.
    fn take(&mut self, container: ContainerId, piece: &LogPiece) {
        let mut bytes = piece.position;
        for line in piece.bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_full() {
                break;
            }
            // An incomplete line is being written, or continues in the next piece.
            if !line.ends_with(b"\n") {
                break;
            }
            bytes += line.len() as u64;
            // A damaged line is left out.
            let Ok(line) = serde_json::from_slice::<Line>(line) else {
                continue;
            };
            if self.query.selects(&line.vertex) {
                self.letters.push(view(container, line));
            }
        }
        let is_stuck = bytes == piece.position && !self.is_full();
        let is_at_end = bytes >= piece.end || is_stuck;
        match is_at_end {
            true => self.next_container(),
            false => self.position = Some(DeadLetterPosition { container, bytes }),
        }
    }

    fn next_container(&mut self) {
        let current = self.position.map(|position| position.container);
        let next = self.containers.iter().find(|it| Some(**it) > current);
        self.position = next.map(|container| start_of(*container));
    }

    fn into_view(self) -> DeadLettersView {
        DeadLettersView {
            letters: self.letters,
            next: self.position.map(DeadLetterPosition::to_text),
        }
    }
}

fn start_of(container: ContainerId) -> DeadLetterPosition {
    DeadLetterPosition {
        container,
        bytes: 0,
    }
}

fn view(container: ContainerId, line: Line) -> DeadLetterView {
    DeadLetterView {
        container,
        vertex: line.vertex,
        origin: line.origin,
        reason: line.reason,
        at_ms: Some(line.at_ms),
        bytes: line.bytes,
        text: line.raw,
        base64: line.raw_base64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(letters: impl Iterator<Item = u32>) -> String {
        letters
            .map(|n| {
                let vertex = if n % 2 == 0 { "parse" } else { "<script>" };
                format!(
                    "{{\"at_ms\":{n},\"vertex\":\"{vertex}\",\"origin\":\"in:{n}\",\"reason\":\"bad\",\"bytes\":1,\"raw\":\"x\"}}\n"
                )
            })
            .collect()
    }

    /// Reads the page of `query` from two containers with these files.
    fn page(files: [&str; 2], query: DeadLettersQuery) -> DeadLettersView {
        let mut page = Page::new(vec![ContainerId(1), ContainerId(4)], query).unwrap();
        while let Some(DeadLetterPosition { container, bytes }) = page.position
            && !page.is_full()
        {
            let file = files[usize::from(container.0 == 4)];
            let rest = file.as_bytes().get(bytes as usize..).unwrap_or_default();
            let piece = LogPiece {
                position: bytes,
                bytes: rest[..rest.len().min(300)].to_vec(),
                end: file.len() as u64,
            };
            page.take(container, &piece);
        }
        page.into_view()
    }

    #[test]
    fn pages_follow_each_other_over_containers_and_damage() {
        let files = [&lines(0..10), &format!("damage\n{}{{", lines(10..20))];
        let files = files.map(String::as_str);
        let mut query = DeadLettersQuery {
            limit: Some(3),
            ..DeadLettersQuery::default()
        };
        let mut found = Vec::new();
        loop {
            let view = page(files, query.clone());
            assert!(view.letters.len() <= 3);
            found.extend(view.letters.into_iter().filter_map(|letter| letter.at_ms));
            match view.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, (0..20).collect::<Vec<u64>>());
        let query = DeadLettersQuery {
            vertex: Some("<script>".into()),
            ..DeadLettersQuery::default()
        };
        let found = page(files, query).letters;
        assert_eq!(found.len(), 10);
        assert_eq!(found[9].container, ContainerId(4));
    }
}
