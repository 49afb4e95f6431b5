//! Tests of tables on a fake terminal and in a fake pipe.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_core::{Chunk, InstanceContext, Rows, Timestamp};

use super::terminal::{Size, Style, Surface};
use super::*;

/// A running sink.
struct Fed<T> {
    processor: Box<dyn Processor>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static> Fed<T> {
    fn start(sink: Sink<T>) -> Self {
        let (_, supplier, ..) = sink.into_parts();
        let mut processor = supplier.supply(Instance::ONLY).unwrap();
        processor.init(&InstanceContext::detached("table")).unwrap();
        Fed {
            processor,
            record: PhantomData,
        }
    }

    fn feed(&mut self, records: impl IntoIterator<Item = T>) -> Result<()> {
        let rows: Rows<T> = records
            .into_iter()
            .map(|record| (record, Timestamp::MIN))
            .collect();
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows));
        self.processor
            .process(Ordinal::FIRST, &mut inbox, &mut Outbox::new(0, 64))
    }

    fn finish(&mut self) -> Result<()> {
        let progress = self.processor.complete(&mut Outbox::new(0, 64))?;
        assert!(progress.done);
        Ok(())
    }
}

impl<T> Drop for Fed<T> {
    fn drop(&mut self) {
        self.processor.close();
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A surface that records its output. Tests can change its size.
#[derive(Clone)]
struct Pretended {
    size: Arc<Mutex<Option<Size>>>,
    style: Style,
    written: Arc<Mutex<String>>,
    fails: Option<io::ErrorKind>,
}

impl Pretended {
    fn pipe() -> Self {
        Pretended {
            size: Arc::default(),
            style: Style {
                is_styled: true,
                is_unicode: true,
            },
            written: Arc::default(),
            fails: None,
        }
    }

    fn terminal(columns: usize, rows: usize) -> Self {
        let pretended = Pretended::pipe();
        pretended.resize(columns, rows);
        pretended
    }

    fn resize(&self, columns: usize, rows: usize) {
        *self.size.lock().unwrap() = Some(Size { columns, rows });
    }

    fn written(&self) -> String {
        self.written.lock().unwrap().clone()
    }

    fn screen(&self) -> Screen {
        Screen::on(Box::new(self.clone()))
    }
}

impl Surface for Pretended {
    fn size(&self) -> Option<Size> {
        *self.size.lock().unwrap()
    }

    fn style(&self) -> Style {
        self.style
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if let Some(kind) = self.fails {
            return Err(kind.into());
        }
        self.written.lock().unwrap().push_str(text);
        Ok(())
    }
}

fn counts(screen: &Screen, title: &str) -> Sink<(&'static str, u64)> {
    Table::new(title, ["word", "count"])
        .on(screen)
        .sink(|(word, count): &(&'static str, u64)| Row::new(word).number(count))
}

#[test]
fn a_pipe_gets_the_final_tables_once_and_without_escapes() {
    let pipe = Pretended::pipe();
    let screen = pipe.screen();
    let (mut one, mut two) = (
        Fed::start(counts(&screen, "one")),
        Fed::start(counts(&screen, "two")),
    );
    one.feed([("a", 1), ("b", 20), ("a", 2)]).unwrap();
    two.feed([("c", 3)]).unwrap();
    two.finish().unwrap();
    assert_eq!(pipe.written(), "", "the other one is still running");
    one.finish().unwrap();
    drop((one, two));
    let expected = "one\nword  count\na         2\nb        20\n\ntwo\nword  count\nc         3\n";
    assert_eq!(pipe.written(), expected);
}

#[test]
fn a_terminal_is_redrawn_in_place_while_records_come() {
    let terminal = Pretended::terminal(40, 20);
    let mut table = Fed::start(counts(&terminal.screen(), "words"));
    table.feed([("a", 1)]).unwrap();
    eventually("the first row is drawn", || {
        terminal.written().contains("a         1")
    });
    table.feed([("a", 2)]).unwrap();
    eventually("the second is drawn over it", || {
        terminal.written().contains("\x1b[3A\r") && terminal.written().contains("a         2")
    });
    assert!(terminal.written().contains("\x1b[1mwords"));
    table.finish().unwrap();
}

#[test]
fn a_resized_terminal_is_cleared_and_drawn_anew() {
    let terminal = Pretended::terminal(40, 20);
    let mut table = Fed::start(counts(&terminal.screen(), "words"));
    table.feed([("a", 1)]).unwrap();
    eventually("a frame", || terminal.written().contains("words"));
    terminal.resize(7, 3);
    eventually("a cleared screen", || {
        terminal.written().contains("\x1b[H\x1b[2J")
    });
    table.finish().unwrap();
}

#[test]
fn without_colours_and_unicode_a_frame_has_neither() {
    let style = Style {
        is_styled: false,
        is_unicode: false,
    };
    let terminal = Pretended {
        style,
        ..Pretended::terminal(10, 20)
    };
    let mut table = Fed::start(counts(&terminal.screen(), "JFK → Zürich, in full"));
    table.feed([("a", 1)]).unwrap();
    table.finish().unwrap();
    let written = terminal.written();
    assert!(
        written.is_ascii() && !written.contains("\x1b[1m"),
        "{written:?}"
    );
    assert!(written.contains("JFK > Z?r~"), "{written:?}");
}

#[test]
fn a_status_line_is_shown_below_tables_on_a_terminal_only() {
    let (pipe, terminal) = (Pretended::pipe(), Pretended::terminal(40, 20));
    let screens = [pipe.screen(), terminal.screen()];
    let tables: Vec<_> = screens
        .iter()
        .map(|screen| Fed::start(counts(screen, "words")))
        .collect();
    assert!(!screens[0].set_status(Some("12 records/s".into())));
    assert!(screens[1].set_status(Some("12 records/s".into())));
    eventually("the status", || terminal.written().contains("12 records/s"));
    drop(tables);
    assert!(
        !screens[1].set_status(Some("over".into())),
        "no table is left"
    );
}

#[test]
fn a_pipe_is_printed_to_every_so_often_if_asked() {
    let pipe = Pretended::pipe();
    let screen = pipe.screen();
    screen.print_every(Duration::from_millis(1));
    let mut table = Fed::start(counts(&screen, "words"));
    table.feed([("a", 1)]).unwrap();
    eventually("an early print", || pipe.written().contains("a         1"));
    table.feed([("a", 2)]).unwrap();
    table.finish().unwrap();
    let written = pipe.written();
    let blocks: Vec<&str> = written.split("\n\n").collect();
    assert!(
        blocks.len() >= 2 && blocks.iter().all(|block| block.contains("words")),
        "{written}"
    );
}

#[test]
fn an_escape_sequence_in_the_data_is_not_passed_on() {
    let pipe = Pretended::pipe();
    let mut table = Fed::start(counts(&pipe.screen(), "words"));
    table.feed([("\x1b[2Ja\nb", 1)]).unwrap();
    table.finish().unwrap();
    assert!(!pipe.written().contains('\x1b'));
    assert_eq!(pipe.written().lines().count(), 3);
}

#[test]
fn a_reader_that_has_gone_is_a_cancellation_and_a_full_disk_a_failure() {
    for (kind, code) in [
        (
            io::ErrorKind::BrokenPipe,
            ardea_core::ErrorCode::OutputClosed,
        ),
        (
            io::ErrorKind::StorageFull,
            ardea_core::ErrorCode::WriteFailed,
        ),
    ] {
        let pipe = Pretended {
            fails: Some(kind),
            ..Pretended::pipe()
        };
        let mut table = Fed::start(counts(&pipe.screen(), "words"));
        assert_eq!(table.finish().unwrap_err().code(), code);
    }
}

#[test]
fn a_screen_serves_one_job_after_the_other() {
    let pipe = Pretended::pipe();
    let screen = pipe.screen();
    for _ in 0..2 {
        let mut table = Fed::start(counts(&screen, "words"));
        table.feed([("a", 1)]).unwrap();
    }
    assert_eq!(pipe.written().matches("words").count(), 2);
}
