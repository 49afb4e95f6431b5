//! Reader thread, which prefetches pages.

use std::collections::VecDeque;

use ardea_core::{Error, ErrorCode, OnLostPosition, Result, Waker};

use super::PostgresSourceConfig;
use super::key_splits::KeyRange;
use super::page::Page;
use super::pages::Pages;
use super::position::{Last, check, digest, replaced};
use crate::blocking_worker::{BlockingWorker, WorkerContext};
use crate::postgres::connection::Connection;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::relation::Identity;
use crate::postgres::session::Session;

/// Maximum number of buffered pages.
const MOST_PAGES: usize = 2;

/// Event of the reader thread.
#[derive(Debug)]
pub(crate) enum ReaderEvent {
    /// The next rows of a range.
    Page(usize, Page),
    /// The end of a range.
    End(usize),
}

/// Handle of the reader thread, which runs until the handle is dropped.
pub(crate) type Reader = BlockingWorker<VecDeque<ReaderEvent>>;

/// Starts reading the ranges `strands` one after the other. `table` is the identity of the table in
/// an earlier attempt, if any.
pub(crate) fn start(
    plan: &PostgresSourceConfig,
    strands: &[KeyRange],
    table: Option<Identity>,
) -> Result<Reader> {
    let connection = Connection::new(plan.address.server()?)?;
    let (plan, strands) = (plan.clone(), strands.to_vec());
    let events = VecDeque::new();
    Reader::start("postgres-reader", Waker::none(), events, move |queue| {
        let task = Task {
            is_fresh: strands.iter().all(|strand| strand.after.is_none()),
            is_checked: vec![false; strands.len()],
            plan,
            strands,
            table,
            queue,
            connection,
        };
        task.run();
    })
}

/// State of the reader thread.
struct Task {
    plan: PostgresSourceConfig,
    strands: Vec<KeyRange>,
    /// Table read last.
    table: Option<Identity>,
    /// For each range, true if its position has been compared with the table.
    is_checked: Vec<bool>,
    /// True if the source has read nothing before.
    is_fresh: bool,
    queue: WorkerContext<VecDeque<ReaderEvent>>,
    connection: Connection<Pages>,
}

impl Task {
    fn run(mut self) {
        let mut at = 0;
        while at < self.strands.len() {
            if self.queue.is_over() {
                return;
            }
            let news = match self.next_page(at) {
                Ok(page) if page.rows.is_empty() => {
                    at += 1;
                    ReaderEvent::End(at - 1)
                }
                Ok(page) => {
                    if let Some(last) = page.rows.last() {
                        let json = last.json.as_deref().unwrap_or_default();
                        self.strands[at].after = Some(last.key.clone());
                        self.strands[at].row = Some(digest(json));
                        self.is_checked[at] = true;
                    }
                    ReaderEvent::Page(at, page)
                }
                Err(PgErrorClass::Passing(_)) => {
                    let wait = self.connection.next_wait();
                    self.queue.rest(wait, |_| false);
                    continue;
                }
                Err(PgErrorClass::Refused(why)) => {
                    let what = format!(
                        "cannot read {} on {}",
                        self.plan.name,
                        self.connection.name()
                    );
                    return self.fail(Error::new(ErrorCode::ReadFailed, what).because(why));
                }
                Err(PgErrorClass::Final(error)) => return self.fail(error),
            };
            let has_room = |events: &mut VecDeque<_>| (events.len() < MOST_PAGES).then_some(());
            if self.queue.next(has_room).is_none() {
                return;
            }
            self.queue.update(|events| events.push_back(news));
        }
    }

    fn next_page(&mut self, at: usize) -> std::result::Result<Page, PgErrorClass> {
        let (plan, strand, is_fresh) = (&self.plan, &self.strands[at], self.is_fresh);
        if strand.is_done {
            return Ok(Page::default());
        }
        let (table, is_checked) = (self.table, self.is_checked[at]);
        let (page, now, notice) = self.connection.attempt(
            async |session: &mut Session| Pages::prepare(session, plan, is_fresh).await,
            async |session: &mut Session, pages: &mut Pages| {
                let (mut now, mut notice) = (table, None);
                if !is_checked {
                    (now, notice) = compare(session, pages, plan, strand, now).await?;
                }
                let page = pages.next(session, plan, strand).await?;
                if now.is_some() && page.identity.is_some() && page.identity != now {
                    let compared = compare(session, pages, plan, strand, now).await?;
                    notice = notice.or(compared.1);
                }
                Ok((page, now, notice))
            },
        )?;
        if let Some(why) = notice {
            let what = format!("{} is not what was read before: {why}", self.plan.name);
            self.connection
                .log_line(&format!("{what}; reading continues after the last key"));
        }
        self.is_checked[at] = true;
        self.table = page.identity.or(now);
        Ok(page)
    }

    fn fail(&self, error: Error) {
        self.queue.fail(self.connection.placed(error));
    }
}

/// Compares a range's position with the table. Returns the table's identity, and the description of
/// a loss that the job accepts.
async fn compare(
    session: &mut Session,
    pages: &Pages,
    plan: &PostgresSourceConfig,
    strand: &KeyRange,
    table: Option<Identity>,
) -> std::result::Result<(Option<Identity>, Option<String>), PgErrorClass> {
    let (Some(key), Some(digest)) = (&strand.after, strand.row) else {
        return Ok((table, None));
    };
    let (now, problem) = check(session, pages, table, Last { key, digest }).await?;
    match (problem, plan.on_lost) {
        (Some(why), OnLostPosition::Fail) => Err(PgErrorClass::Final(replaced(plan, &why))),
        (problem, _) => Ok((now.or(table), problem)),
    }
}
