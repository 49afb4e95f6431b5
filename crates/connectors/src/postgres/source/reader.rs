//! The thread that reads pages ahead.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, OnLostPosition, Result};

use super::Plan;
use super::page::Page;
use super::pages::Pages;
use super::position::{Last, check, digest, replaced};
use super::strands::Strand;
use crate::postgres::connection::Connection;
use crate::postgres::relation::Identity;
use crate::postgres::session::Session;
use crate::postgres::trouble::Trouble;

/// So many pages wait at most.
const MOST_PAGES: usize = 2;

/// What has been read.
#[derive(Debug)]
pub(crate) enum News {
    /// The next rows of a strand.
    Page(usize, Page),
    /// There are no more of it.
    End(usize),
}

#[derive(Default)]
struct State {
    news: VecDeque<News>,
    failed: Option<Error>,
    is_over: bool,
}

struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits so long, unless all is over.
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

    /// Hands news over, when there is room; false if nobody wants it.
    fn put(&self, news: News) -> bool {
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

/// Reads ahead, until this is dropped.
pub(crate) struct Reader {
    desk: Arc<Desk>,
}

impl Reader {
    /// Begins to read these strands of a table, one after the other. `table` is the one that was
    /// read before.
    pub fn begin(plan: &Plan, strands: &[Strand], table: Option<Identity>) -> Result<Reader> {
        let desk = Arc::new(Desk {
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
            desk: Arc::clone(&desk),
        };
        std::thread::Builder::new()
            .name("postgres-reader".to_string())
            .spawn(move || task.run())
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(Reader { desk })
    }

    /// What has been read, in order; waited for, at most `timeout`.
    pub fn take(&self, timeout: Duration) -> Result<Option<News>> {
        let mut state = self.desk.lock();
        if state.news.is_empty() && state.failed.is_none() {
            state = self.desk.wait(state, timeout);
        }
        let news = state.news.pop_front();
        if news.is_none()
            && let Some(error) = &state.failed
        {
            return Err(error.clone());
        }
        drop(state);
        self.desk.changed.notify_all();
        Ok(news)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.changed.notify_all();
    }
}

/// What the thread does.
struct Task {
    plan: Plan,
    strands: Vec<Strand>,
    /// The table that was read last.
    table: Option<Identity>,
    /// Of each strand, whether its position has been compared with the table.
    is_checked: Vec<bool>,
    /// Nothing was read before.
    is_fresh: bool,
    desk: Arc<Desk>,
    connection: Connection<Pages>,
}

impl Task {
    fn run(mut self) {
        let mut at = 0;
        while at < self.strands.len() {
            if self.desk.lock().is_over {
                return;
            }
            let news = match self.next_page(at) {
                Ok(page) if page.rows.is_empty() => {
                    at += 1;
                    News::End(at - 1)
                }
                Ok(page) => {
                    if let Some(last) = page.rows.last() {
                        let json = last.json.as_deref().unwrap_or_default();
                        self.strands[at].after = Some(last.key.clone());
                        self.strands[at].row = Some(digest(json));
                        self.is_checked[at] = true;
                    }
                    News::Page(at, page)
                }
                Err(Trouble::Passing(_)) => {
                    let wait = self.connection.next_wait();
                    self.desk.rest(wait);
                    continue;
                }
                Err(Trouble::Refused(why)) => {
                    let what = format!(
                        "cannot read {} on {}",
                        self.plan.name,
                        self.connection.name()
                    );
                    return self.fail(Error::new(ErrorCode::ReadFailed, what).because(why));
                }
                Err(Trouble::Final(error)) => return self.fail(error),
            };
            if !self.desk.put(news) {
                return;
            }
        }
    }

    fn next_page(&mut self, at: usize) -> std::result::Result<Page, Trouble> {
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
                .say(&format!("{what}; reading goes on behind the last key"));
        }
        self.is_checked[at] = true;
        self.table = page.identity.or(now);
        Ok(page)
    }

    fn fail(&self, error: Error) {
        self.desk.lock().failed = Some(self.connection.placed(error));
        self.desk.changed.notify_all();
    }
}

/// Compares a strand's position with the table. Returns the table, and what is wrong where the job
/// is to go on all the same.
async fn compare(
    session: &mut Session,
    pages: &Pages,
    plan: &Plan,
    strand: &Strand,
    table: Option<Identity>,
) -> std::result::Result<(Option<Identity>, Option<String>), Trouble> {
    let (Some(key), Some(digest)) = (&strand.after, strand.row) else {
        return Ok((table, None));
    };
    let (now, problem) = check(session, pages, table, Last { key, digest }).await?;
    match (problem, plan.on_lost) {
        (Some(why), OnLostPosition::Fail) => Err(Trouble::Final(replaced(plan, &why))),
        (problem, _) => Ok((now.or(table), problem)),
    }
}
