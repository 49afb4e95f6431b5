//! A sink that shows the latest row of each key as a table that lives in the terminal.
//!
//! Several tables share the one [`Screen`] of the process: side by side where the terminal is wide enough, below each other where
//! it is not, redrawn in place at most ten times a second. In a pipe each table is printed once, when the last one has ended.
//!
//! In reading order: [`Table`] and [`Row`], what a job says; `board`, the latest rows; `layout`, from boards to lines;
//! [`Screen`], which draws; `terminal`, what the terminal can do; `text_width`, how wide a text is on it.
//!
//! ```
//! use ardea_connectors::live_table::{self, Row};
//!
//! struct Delays { carrier: String, flights: u64, mean_min: f64 }
//!
//! let sink = live_table::sink("Delays by carrier", ["carrier", "flights", "mean"], |d: &Delays| {
//!     Row::new(&d.carrier).number(d.flights).number(format_args!("{:.1} min", d.mean_min)).weight(d.mean_min)
//! });
//! # drop(sink);
//! ```

mod board;
mod layout;
mod row;
mod screen;
mod terminal;
mod text_width;

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Delivery, Inbox, Instance, Isolation, Ordinal, Outbox, Processor, Progress, RecordGuard,
    Result, Sink,
};

use board::Board;
use screen::Place;

pub use row::Row;
pub use screen::Screen;

/// A table under this title on the screen of the process; the first column is the key's.
///
/// Short for [`Table::new`] and [`Table::sink`].
pub fn sink<T: Send + 'static>(
    title: impl Into<String>,
    columns: impl IntoIterator<Item = impl Into<String>>,
    row: impl Fn(&T) -> Row + Send + Sync + 'static,
) -> Sink<T> {
    Table::new(title, columns).sink(row)
}

/// A table before it becomes a sink.
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: usize,
    screen: Screen,
}

impl Table {
    /// A table of any number of rows, on the screen of the process. The first of `columns` is the heading of the key.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Table {
            title: title.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            rows: usize::MAX,
            screen: Screen::of_process(),
        }
    }

    /// Shows only the first `rows` rows in their order.
    pub fn rows(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }

    /// Shows it on another screen than the one of the process.
    pub fn on(mut self, screen: &Screen) -> Self {
        self.screen = screen.clone();
        self
    }

    /// The sink: `row` says for each record which row it is. A later row of the same key replaces the earlier one.
    ///
    /// A row is made and stored for every record, so this is for results, not for a firehose; [`rows`](Self::rows) or not, it
    /// remembers at least the 10,000 keys that come first in order, and never 20,000. The sink has one instance, on a thread of its own, since a
    /// terminal may make it wait.
    pub fn sink<T, F>(self, row: F) -> Sink<T>
    where
        T: Send + 'static,
        F: Fn(&T) -> Row + Send + Sync + 'static,
    {
        let row = Arc::new(row);
        // Taken here, so that tables stand in the order in which the job names them.
        let place = Place::next();
        let name = format!("table {}", self.title);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(LiveTableP {
                screen: self.screen.clone(),
                place,
                board: Some(Board::new(
                    self.title.clone(),
                    self.columns.clone(),
                    self.rows,
                )),
                row: Arc::clone(&row),
                record: PhantomData::<fn(T)>,
            }))
        };
        Sink::new(name, Arc::new(supply))
            .isolation(Isolation::Thread)
            .delivering(Delivery::Nothing)
    }
}

/// Puts each record's row on the screen.
struct LiveTableP<T, F> {
    screen: Screen,
    place: Place,
    /// The table before it is on the screen.
    board: Option<Board>,
    row: Arc<F>,
    record: PhantomData<fn(T)>,
}

impl<T, F> Processor for LiveTableP<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> Row + Send + Sync + 'static,
{
    fn init(&mut self, _: &ardea_core::InstanceContext) -> Result<()> {
        match self.board.take() {
            Some(board) => self.screen.show(self.place, board),
            None => Ok(()),
        }
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let records = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        let mut rows = Vec::with_capacity(records.len());
        for record in records.values() {
            rows.push((self.row)(record));
            guard.advance();
        }
        drop(guard);
        records.clear();
        self.screen.update(self.place, rows);
        Ok(())
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.screen.leave(self.place)?;
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        // After a failure or a cancellation the table is still shown as it was; after `complete` there is nothing left to do. What
        // the terminal says then has nobody to be told to.
        let _ = self.screen.leave(self.place);
    }
}

#[cfg(test)]
mod tests;
