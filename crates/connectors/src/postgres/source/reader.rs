//! Reader thread, which prefetches pages.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, OnLostPosition, Result};

use super::PostgresSourceConfig;
use super::key_splits::KeyRange;
use super::page::Page;
use super::pages::Pages;
use super::position::{Last, check, digest, replaced};
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

#[derive(Default)]
struct State {
    news: VecDeque<ReaderEvent>,
    failed: Option<Error>,
    is_over: bool,
}

struct ReaderQueue {
    state: Mutex<State>,
    changed: Condvar,
}

impl ReaderQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for `time`, or until shutdown.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.lock();
        while !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wait(state, left);
        }
    }

    /// Waits for space and queues an event; returns false on shutdown.
    fn put(&self, news: ReaderEvent) -> bool {
        let mut state = self.lock();
        while state.news.len() >= MOST_PAGES && !state.is_over {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.news.push_back(news);
        let is_wanted = !state.is_over;
        drop(state);
        self.changed.notify_all();
        is_wanted
    }
}

/// Handle of the reader thread, which runs until the handle is dropped.
pub(crate) struct Reader {
    queue: Arc<ReaderQueue>,
}

impl Reader {
    /// Starts reading the ranges `strands` one after the other. `table` is the identity of the
    /// table in an earlier attempt, if any.
    pub fn begin(
        plan: &PostgresSourceConfig,
        strands: &[KeyRange],
        table: Option<Identity>,
    ) -> Result<Reader> {
        let desk = Arc::new(ReaderQueue {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let task = Task {
            connection: Connection::new(plan.address.server()?)?,
            plan: plan.clone(),
            is_fresh: strands.iter().all(|strand| strand.after.is_none()),
            table,
            is_checked: vec![false; strands.len()],
            strands: strands.to_vec(),
            queue: Arc::clone(&desk),
        };
        std::thread::Builder::new()
            .name("postgres-reader".to_string())
            .spawn(move || task.run())
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(Reader { queue: desk })
    }

    /// Returns the next event; waits up to `timeout` and then returns `None`.
    pub fn take(&self, timeout: Duration) -> Result<Option<ReaderEvent>> {
        let mut state = self.queue.lock();
        if state.news.is_empty() && state.failed.is_none() {
            state = self.queue.wait(state, timeout);
        }
        let news = state.news.pop_front();
        if news.is_none()
            && let Some(error) = &state.failed
        {
            return Err(error.clone());
        }
        drop(state);
        self.queue.changed.notify_all();
        Ok(news)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_all();
    }
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
    queue: Arc<ReaderQueue>,
    connection: Connection<Pages>,
}

impl Task {
    fn run(mut self) {
        let mut at = 0;
        while at < self.strands.len() {
            if self.queue.lock().is_over {
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
                    self.queue.rest(wait);
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
            if !self.queue.put(news) {
                return;
            }
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
        self.queue.lock().failed = Some(self.connection.placed(error));
        self.queue.changed.notify_all();
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
