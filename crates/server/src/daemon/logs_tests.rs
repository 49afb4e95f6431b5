//! Tests of the log streams.

use std::sync::{Arc, Mutex};

use std::io::Write;

use ardea_coordination::control::JobRef;
use ardea_output::{OutputBounds, OutputFiles};

use super::*;

fn piece(position: u64, text: &str) -> Result<LogPiece> {
    Ok(LogPiece {
        position,
        bytes: text.into(),
        end: position + text.len() as u64,
    })
}

fn away() -> Result<LogPiece> {
    Err(Error::new(ErrorCode::SchedulerUnavailable, "out of reach"))
}

#[tokio::test]
async fn a_followed_file_goes_on_when_its_host_was_out_of_reach() {
    let said = [piece(0, "a\n"), away(), away(), piece(2, "b\n")];
    let script = Arc::new(Mutex::new(said.into_iter().collect()));
    let reader = Reader::of(ContainerId(1), LogSource::Stdout, LogAccess::Script(script));
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
    // Temporarily unreachable: none of its lines are lost.
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
            LogAccess::Script(script),
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
        position: 0,
        bytes: Default::default(),
        end: 0,
    });
    let script = Arc::new(Mutex::new([whole, away].into()));
    let reader = Reader::of(ContainerId(1), LogSource::Stdout, LogAccess::Script(script));
    let (lines, _told) = mpsc::channel(WAITING_LINES);
    let ended = follow(&mut [reader], &lines, async {}).await;
    let code = ended.unwrap_err().map(|error| error.code());
    assert_eq!(code, Some(ErrorCode::SchedulerUnavailable));
}

#[tokio::test]
async fn following_ends_when_the_job_is_over_and_all_that_it_wrote_is_told() {
    let text = |position: u64, text: &str| {
        Ok(LogPiece {
            position,
            bytes: text.into(),
            end: 5,
        })
    };
    // The file remains, and all further reads return nothing.
    let mut said = vec![text(0, "a\n"), text(2, ""), text(2, "b\nc")];
    said.extend((0..1_000).map(|_| text(5, "")));
    let script = Arc::new(Mutex::new(said.into_iter().collect()));
    let reader = Reader::of(ContainerId(1), LogSource::Stdout, LogAccess::Script(script));
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

#[tokio::test]
async fn what_a_slow_reader_missed_is_told_where_it_is_missing() {
    let said = [piece(0, "a\nb"), piece(10, "c\n"), piece(12, "d\n")];
    let script = Arc::new(Mutex::new(said.into_iter().collect()));
    let reader = Reader::of(ContainerId(1), LogSource::Stdout, LogAccess::Script(script));
    let (lines, mut told) = mpsc::channel(WAITING_LINES);
    let _ = follow(&mut [reader], &lines, std::future::pending()).await;
    drop(lines);
    let mut texts = Vec::new();
    while let Some(line) = told.recv().await {
        let line = line.unwrap();
        texts.push((line.left_out_bytes, line.text));
    }
    assert_eq!(texts.len(), 5, "{texts:?}");
    let lines: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        [lines[0], lines[1], lines[3], lines[4]],
        ["a", "b", "c", "d"]
    );
    assert_eq!(texts[2].0, Some(7));
    assert!(texts[2].1.contains("cluster.log_size"), "{texts:?}");
}

#[tokio::test]
async fn where_more_lines_are_wanted_than_are_kept_what_is_left_out_is_told_first() {
    let folder = tempfile::tempdir().unwrap();
    let own = container_in(folder.path());
    let output = OutputFiles::new(&own, "stdout.log");
    let bounds = OutputBounds {
        file_bytes: 700_000,
        files: 3,
    };
    for number in 0..5_000 {
        let line = format!("{number:-<500}\n");
        output
            .open(&bounds)
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }
    let (first, _) = output.stored_range().unwrap();
    let kept = 5_000 - first / 501;
    let all = told_of(folder.path(), 10_000).await;
    assert_eq!(all[0].left_out_bytes, Some(first));
    assert_eq!(all.len() as u64, kept + 1);
    // The piece before the last ones starts at the first retained byte, after the requested
    // position.
    let few_more = told_of(folder.path(), kept as u32 + 100).await;
    assert_eq!(few_more.len() as u64, kept + 1);
    assert_eq!(few_more[0].left_out_bytes, Some(first));
    let some = told_of(folder.path(), 2_000).await;
    assert_eq!(some.len(), 2_000);
    assert!(some.iter().all(|line| line.left_out_bytes.is_none()));
}

fn container_in(folder: &std::path::Path) -> std::path::PathBuf {
    let own = folder.join("jobs/relay-0000000000000001/container-1");
    std::fs::create_dir_all(&own).unwrap();
    own
}

/// Returns the lines of a file with this text.
async fn told(text: &str, tail: u32) -> Vec<LogLine> {
    let folder = tempfile::tempdir().unwrap();
    let own = container_in(folder.path());
    std::fs::write(own.join("stdout.log"), text).unwrap();
    told_of(folder.path(), tail).await
}

/// Returns the lines of the container in this folder.
async fn told_of(folder: &std::path::Path, tail: u32) -> Vec<LogLine> {
    let job = JobRef {
        cluster: "local".into(),
        name: "relay".into(),
        submission: 1,
    };
    let output = RetainedLogs::find(folder, &job).unwrap();
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
    assert!(begun.iter().all(|piece| piece.text.len() <= MAX_LINE_BYTES));
}

#[tokio::test]
async fn a_line_is_cut_that_is_a_byte_too_long_and_its_end_is_none_of_its_bytes() {
    for end in ["", "\n", "\r\n"] {
        let told_of = async |length: usize| {
            let told = told(&("-".repeat(length) + end), 1).await;
            let pieces = told.iter().map(|piece| (piece.text.len(), piece.continues));
            pieces.collect::<Vec<_>>()
        };
        assert_eq!(told_of(MAX_LINE_BYTES).await, [(MAX_LINE_BYTES, false)]);
        let cut = [(MAX_LINE_BYTES, true), (1, false)];
        assert_eq!(told_of(MAX_LINE_BYTES + 1).await, cut, "{end:?}");
    }
}
