//! The screen that tables share: it draws them in place, from a thread of its own.
//!
//! Locks: a sink takes `content` once a chunk; the ticker takes `brush`, and within it `content` for as long as it makes the lines,
//! never while it writes. So a terminal that has been stopped (Ctrl-S) holds up no sink before the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use ardea_core::{Error, ErrorCode, Result};

use super::Row;
use super::board::Board;
use super::layout::{self, Emphasis, Line};
use super::terminal::{Size, Standard, Style, Surface};
use super::text_width::ascii;

/// Tables are redrawn no more often than this.
const FRAME: Duration = Duration::from_millis(100);

/// Where a table stands among others: in the order in which sinks were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u64);

impl Place {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Place(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Where live tables are shown. Cheap to clone; all clones are one screen.
///
/// On a terminal the tables are redrawn in place while they change; in a pipe or a file they are printed once, when the last of
/// them has ended, and on request every so often before.
#[derive(Clone)]
pub struct Screen(Arc<Shared>);

struct Shared {
    content: Mutex<Content>,
    changed: Condvar,
    brush: Mutex<Brush>,
}

/// What is to be seen.
#[derive(Default)]
struct Content {
    boards: BTreeMap<Place, Board>,
    /// How many of the boards have a sink that is still running.
    live: usize,
    status: Option<String>,
    is_dirty: bool,
    print_every: Option<Duration>,
    ticker: Option<JoinHandle<()>>,
}

/// What draws it.
struct Brush {
    surface: Box<dyn Surface>,
    /// The lines of the frame above the cursor, and the terminal's size when it was drawn.
    last: Option<(usize, Size)>,
    /// Whether tables have been printed, where they are not redrawn.
    has_printed: bool,
    failed: Option<io::Error>,
}

static OF_PROCESS: LazyLock<Screen> =
    LazyLock::new(|| Screen::on(Box::new(Standard::Output(io::stdout()))));

impl Screen {
    /// The screen of this process, on standard output.
    pub fn of_process() -> Self {
        OF_PROCESS.clone()
    }

    pub(super) fn on(surface: Box<dyn Surface>) -> Self {
        Screen(Arc::new(Shared {
            content: Mutex::default(),
            changed: Condvar::new(),
            brush: Mutex::new(Brush {
                surface,
                last: None,
                has_printed: false,
                failed: None,
            }),
        }))
    }

    /// Draws on standard error from now on, for programs that need standard output for something else.
    pub fn to_standard_error(&self) {
        self.brush().surface = Box::new(Standard::Error(io::stderr()));
    }

    /// In a pipe, prints the tables this often as they then are, and not only at the end. Counts for tables that start later.
    pub fn print_every(&self, period: Duration) {
        self.content().print_every = Some(period.max(FRAME));
    }

    /// Shows a line below the tables; `None` takes it away. Says whether there are tables on a terminal to show it below.
    pub fn set_status(&self, status: Option<String>) -> bool {
        if !self.has_tables() {
            return false;
        }
        let mut content = self.content();
        content.is_dirty |= content.status != status;
        content.status = status;
        true
    }

    /// Whether there are tables on a terminal now, which anything else that is printed there would tear apart.
    pub fn has_tables(&self) -> bool {
        let content = self.content();
        content.ticker.is_some() && content.print_every.is_none()
    }

    /// Adds a table, live until it leaves.
    pub(super) fn show(&self, place: Place, board: Board) -> Result<()> {
        let is_terminal = self.brush().surface.size().is_some();
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

    pub(super) fn update(&self, place: Place, rows: Vec<Row>) {
        let mut content = self.content();
        if let Some(board) = content.boards.get_mut(&place) {
            board.update(rows);
            content.is_dirty = true;
        }
    }

    /// Ends a table; the last one to end draws or prints all of them a last time, and ends the ticker. A place that has left is
    /// ignored.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if what is drawn on can't be written to, [`ErrorCode::OutputClosed`] if its reader has gone.
    pub(super) fn leave(&self, place: Place) -> Result<()> {
        let ticker = {
            let mut content = self.content();
            match content.boards.get_mut(&place) {
                Some(board) if !board.has_left => board.has_left = true,
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
            // A ticker that panicked has said so itself; the last frame is drawn here anyway.
            let _ = ticker.join();
        }
        let outcome = self.paint();
        self.content().boards.clear();
        let mut brush = self.brush();
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

    /// Until the last table has left: draws what has changed.
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
                self.brush().failed = Some(error);
                return;
            }
        }
    }

    fn was_resized(&self) -> bool {
        let brush = self.brush();
        brush
            .last
            .is_some_and(|(_, size)| brush.surface.size().is_some_and(|now| now != size))
    }

    /// Draws a frame on a terminal, prints the tables elsewhere.
    fn paint(&self) -> io::Result<()> {
        let mut brush = self.brush();
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

    fn brush(&self) -> MutexGuard<'_, Brush> {
        self.0.brush.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Screen({} live tables)", self.content().live)
    }
}

impl Brush {
    /// The frame as one text that replaces the last one: up to its first line, each line over the old one, the rest cleared. A
    /// terminal that has changed its size has moved lines about, so there all of it is cleared first.
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
