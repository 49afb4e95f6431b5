//! A sink that shows the latest row of each key as a live table in the terminal.
//!
//! All tables share the [`Screen`] of the process. They are placed side by side if the terminal is
//! wide enough, otherwise one below the other, and redrawn in place at most ten times a second. In
//! a pipe each table is printed once, when the last table has ended.
//!
//! In reading order: [`Table`] and [`Row`], the API; `table_state`, the latest rows; `layout`,
//! which arranges tables into lines; [`Screen`], which draws them; `terminal`, the capabilities of
//! the terminal; `text_width`, the display width of texts.
//!
//! ```
//! use ardea::connect::live_table::{self, Row};
//!
//! struct Delays { carrier: String, flights: u64, mean_min: f64 }
//!
//! let sink = live_table::sink("Delays by carrier", ["carrier", "flights", "mean"], |d: &Delays| {
//!     Row::new(&d.carrier).number(d.flights).number(format_args!("{:.1} min", d.mean_min)).weight(d.mean_min)
//! });
//! # drop(sink);
//! ```

mod layout;
mod row;
mod screen;
mod table_state;
mod terminal;
mod text_width;

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Delivery, Inbox, Instance, Isolation, Ordinal, Outbox, Processor, Progress, RecordGuard,
    Result, Sink,
};

use screen::TableIndex;
use table_state::TableState;

pub use row::Row;
pub use screen::Screen;

/// Returns a sink that shows a table with this title on the screen of the process. The first of
/// `columns` contains the key.
///
/// Short for [`Table::new`] and [`Table::sink`].
pub fn sink<T: Send + 'static>(
    title: impl Into<String>,
    columns: impl IntoIterator<Item = impl Into<String>>,
    row: impl Fn(&T) -> Row + Send + Sync + 'static,
) -> Sink<T> {
    Table::new(title, columns).sink(row)
}

/// The builder of a table sink.
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    columns: Vec<String>,
    rows: usize,
    screen: Screen,
}

impl Table {
    /// Creates a table without a row limit on the screen of the process. `columns` are the
    /// headings; the first one belongs to the key.
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

    /// Shows only the first `rows` rows of the sorted table.
    pub fn rows(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }

    /// Shows the table on `screen` instead of the screen of the process.
    pub fn on(mut self, screen: &Screen) -> Self {
        self.screen = screen.clone();
        self
    }

    /// Builds the sink: `row` converts each record into a row. A later row of the same key replaces
    /// the earlier one.
    ///
    /// The sink builds and stores a row for each record, so it suits results rather than high-rate
    /// streams. Regardless of [`rows`](Self::rows), the table retains at least the first 10,000
    /// keys in sort order, and at most 20,000. The sink has one instance on a separate thread,
    /// since writing to a terminal may block.
    pub fn sink<T, F>(self, row: F) -> Sink<T>
    where
        T: Send + 'static,
        F: Fn(&T) -> Row + Send + Sync + 'static,
    {
        let row = Arc::new(row);
        // Assigned here, so that tables appear in the order in which the job defines them.
        let place = TableIndex::next();
        let name = format!("table {}", self.title);
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(LiveTableP {
                screen: self.screen.clone(),
                place,
                board: Some(TableState::new(
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
            .with_delivery(Delivery::Nothing)
    }
}

/// The processor that shows the row of each record on the screen.
struct LiveTableP<T, F> {
    screen: Screen,
    place: TableIndex,
    /// The table until it is shown on the screen.
    board: Option<TableState>,
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
        self.screen.finish(self.place)?;
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        // Shows the table's last state after a failure or a cancellation; after `complete` this has
        // no effect. Errors cannot be reported any more.
        let _ = self.screen.finish(self.place);
    }
}

#[cfg(test)]
mod tests;
