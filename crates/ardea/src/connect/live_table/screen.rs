//! The screen shared by the tables, drawn in place by a separate thread.
//!
//! Locks: a sink takes `content` once per chunk. The drawing thread (ticker) takes `painter`, and
//! also `content` while it computes the lines, but not while it writes. So a suspended terminal
//! (Ctrl-S) does not block a sink before its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use ardea_core::{Error, ErrorCode, Result};

use super::Row;
use super::layout::{self, Emphasis, Line};
use super::table_state::TableState;
use super::terminal::{Size, Standard, Style, Surface};
use super::text_width::ascii;

/// The minimum interval between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// The position of a table among the others, in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TableIndex(u64);

impl TableIndex {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        TableIndex(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A screen that shows live tables. Clones share one screen.
///
/// On a terminal the tables are redrawn in place when they change. In a pipe or a file they are
/// printed once, when the last table has ended, and [periodically](Self::print_every) if requested.
#[derive(Clone)]
pub struct Screen(Arc<Shared>);

struct Shared {
    content: Mutex<Content>,
    changed: Condvar,
    painter: Mutex<Painter>,
}

/// The tables and the status line.
#[derive(Default)]
struct Content {
    boards: BTreeMap<TableIndex, TableState>,
    /// The number of tables whose sinks are running.
    live: usize,
    status: Option<String>,
    is_dirty: bool,
    print_every: Option<Duration>,
    ticker: Option<JoinHandle<()>>,
}

/// The output surface and the state of drawing.
struct Painter {
    surface: Box<dyn Surface>,
    /// The number of lines of the last frame, and the size of the terminal when it was drawn.
    last: Option<(usize, Size)>,
    /// True if tables have been printed to a surface that is not a terminal.
    has_printed: bool,
    failed: Option<io::Error>,
}

static OF_PROCESS: LazyLock<Screen> =
    LazyLock::new(|| Screen::on(Box::new(Standard::Output(io::stdout()))));

impl Screen {
    /// Returns the screen of this process, on standard output.
    pub fn of_process() -> Self {
        OF_PROCESS.clone()
    }

    pub(super) fn on(surface: Box<dyn Surface>) -> Self {
        Screen(Arc::new(Shared {
            content: Mutex::default(),
            changed: Condvar::new(),
            painter: Mutex::new(Painter {
                surface,
                last: None,
                has_printed: false,
                failed: None,
            }),
        }))
    }

    /// Draws on standard error from now on, for programs that write other data to standard output.
    pub fn to_standard_error(&self) {
        self.painter().surface = Box::new(Standard::Error(io::stderr()));
    }

    /// Prints the present tables periodically if the output is a pipe. Applies to tables that start
    /// later.
    pub fn print_every(&self, period: Duration) {
        self.content().print_every = Some(period.max(FRAME));
    }

    /// Shows `status` as a line below the tables; `None` removes the line. Returns false if no
    /// tables are shown on a terminal.
    pub fn set_status(&self, status: Option<String>) -> bool {
        if !self.has_tables() {
            return false;
        }
        let mut content = self.content();
        content.is_dirty |= content.status != status;
        content.status = status;
        true
    }

    /// Returns true if tables are shown on a terminal, where other output would corrupt them.
    pub fn has_tables(&self) -> bool {
        let content = self.content();
        content.ticker.is_some() && content.print_every.is_none()
    }

    /// Adds a table, which is live until [`finish`](Self::finish).
    pub(super) fn show(&self, place: TableIndex, board: TableState) -> Result<()> {
        let is_terminal = self.painter().surface.size().is_some();
        let mut content = self.content();
        content.boards.insert(place, board);
        content.live += 1;
        content.is_dirty = true;
        if is_terminal {
            content.print_every = None;
        }
        if content.ticker.is_none() && (is_terminal || content.print_every.is_some()) {
            let shared = Arc::clone(&self.0);
            let period = content.print_every.unwrap_or(FRAME);
            let ticker = thread::Builder::new()
                .name("ardea-screen".into())
                .spawn(move || Screen(shared).tick(period))
                .map_err(|error| {
                    Error::new(ErrorCode::LimitReached, "no thread to draw tables with")
                        .because(error)
                        .hint("raise the limit of threads (ulimit -u)")
                })?;
            content.ticker = Some(ticker);
        }
        Ok(())
    }

    pub(super) fn update(&self, place: TableIndex, rows: Vec<Row>) {
        let mut content = self.content();
        if let Some(board) = content.boards.get_mut(&place) {
            board.update(rows);
            content.is_dirty = true;
        }
    }

    /// Ends a table. When the last table ends, draws or prints all tables once more and stops the
    /// ticker. Does nothing if the table has already ended.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the output cannot be written, [`ErrorCode::OutputClosed`] if
    /// the reader of the output has closed it.
    pub(super) fn finish(&self, place: TableIndex) -> Result<()> {
        let ticker = {
            let mut content = self.content();
            match content.boards.get_mut(&place) {
                Some(board) if !board.is_finished => board.is_finished = true,
                _ => return Ok(()),
            }
            content.live -= 1;
            if content.live > 0 {
                return Ok(());
            }
            content.status = None;
            content.ticker.take()
        };
        self.0.changed.notify_all();
        if let Some(ticker) = ticker {
            // A panic of the ticker was already reported; the last frame is drawn here anyway.
            let _ = ticker.join();
        }
        let outcome = self.paint();
        self.content().boards.clear();
        let mut brush = self.painter();
        brush.last = None;
        match brush.failed.take().map_or(outcome, Err) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Error::new(
                ErrorCode::OutputClosed,
                "the reader of the tables has gone",
            )),
            Err(error) => Err(
                Error::new(ErrorCode::WriteFailed, "cannot write the tables")
                    .because(error)
                    .hint("check what they were redirected to, and the free space there"),
            ),
        }
    }

    /// Draws changes until the last table has ended.
    fn tick(&self, period: Duration) {
        loop {
            let until = Instant::now() + period;
            let mut content = self.content();
            loop {
                if content.live == 0 {
                    return;
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let wait = self.0.changed.wait_timeout(content, left);
                content = wait.unwrap_or_else(PoisonError::into_inner).0;
            }
            let is_dirty = content.is_dirty;
            drop(content);
            if (is_dirty || self.was_resized())
                && let Err(error) = self.paint()
            {
                self.painter().failed = Some(error);
                return;
            }
        }
    }

    fn was_resized(&self) -> bool {
        let brush = self.painter();
        brush
            .last
            .is_some_and(|(_, size)| brush.surface.size().is_some_and(|now| now != size))
    }

    /// Draws a frame on a terminal; prints the tables to other outputs.
    fn paint(&self) -> io::Result<()> {
        let mut brush = self.painter();
        let size = brush.surface.size();
        let lines = {
            let mut content = self.content();
            content.is_dirty = false;
            let boards = content.boards.values();
            match size {
                Some(size) => layout::drawn(boards, content.status.as_deref(), size),
                None => layout::printed(boards),
            }
        };
        let style = brush.surface.style();
        let text = match size {
            Some(size) => brush.frame(&lines, size, style),
            None => {
                let gap = if brush.has_printed { "\n" } else { "" };
                brush.has_printed = true;
                format!("{gap}{}", plain(&lines))
            }
        };
        brush.surface.write(&text)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0
            .content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn painter(&self) -> MutexGuard<'_, Painter> {
        self.0
            .painter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Screen({} live tables)", self.content().live)
    }
}

impl Painter {
    /// Returns the text that replaces the previous frame: it overwrites each line and clears the
    /// rest. After a resize, which moves lines, it clears the terminal first.
    fn frame(&mut self, lines: &[Line], size: Size, style: Style) -> String {
        let mut text = String::new();
        match self.last {
            Some((0, at)) if at == size => {}
            Some((above, at)) if at == size => {
                let _ = write!(text, "\x1b[{above}A\r");
            }
            Some(_) => text.push_str("\x1b[H\x1b[2J"),
            None => {}
        }
        for line in lines {
            for piece in line {
                let shown = if style.is_unicode {
                    piece.text.clone()
                } else {
                    ascii(&piece.text)
                };
                match piece.emphasis {
                    Emphasis::Title if style.is_styled => {
                        let _ = write!(text, "\x1b[1m{shown}\x1b[0m");
                    }
                    Emphasis::Dim if style.is_styled => {
                        let _ = write!(text, "\x1b[2m{shown}\x1b[0m");
                    }
                    _ => text.push_str(&shown),
                }
            }
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J");
        self.last = Some((lines.len(), size));
        text
    }
}

fn plain(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        line.iter().for_each(|piece| text.push_str(&piece.text));
        text.push('\n');
    }
    text
}
