//! Fencing of earlier attempts, so that their pending statements cannot overwrite later rows.
//!
//! Upserts may be repeated but not reordered. A statement of a dead process, or of a broken
//! connection, may wait for a lock on the server while a newer row of the same key is written, and
//! then restore the old row. So each session identifies its owner in `application_name`. Before it
//! writes, it waits until earlier sessions have ended, and terminates those that remain.
//!
//! A session of a dead process ends when the server has processed all received statements. If two
//! attempts run at the same time, the later one continues. To order them, a session name contains
//! the server time at which its attempt began.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::types::Type;
use xxhash_rust::xxh3::xxh3_64;

use crate::postgres::error_class::PgErrorClass;
use crate::postgres::session::Session;
use crate::postgres::table_name::TableName;

/// Time in which earlier sessions may end by themselves before they are terminated.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
/// Time in which terminated sessions must end.
const ENDING: Duration = Duration::from_secs(20);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Relation of another session to this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionOwner {
    /// Session of another sink or instance, which writes other keys.
    Beside,
    /// Session of an earlier attempt or a broken connection.
    Before,
    /// Session of a later attempt.
    Behind,
}

/// Session names of an instance.
pub(crate) struct Fence {
    sink: u64,
    instance: Instance,
    /// Start of this attempt by the server's clock, in microseconds; known after the first
    /// connection.
    begun: Option<i64>,
}

impl Fence {
    /// Creates the fence for an instance of this sink of a job.
    pub fn new(sink: &str, instance: Instance) -> Self {
        Fence {
            sink: xxh3_64(sink.as_bytes()),
            instance,
            begun: None,
        }
    }

    /// Returns the common prefix of the sink's session names.
    fn prefix(&self) -> String {
        format!("ardea {:016x} ", self.sink)
    }

    fn name(&self, begun: i64) -> String {
        format!("{}{} {begun}", self.prefix(), self.instance.index)
    }

    /// Classifies a session by its name. Sessions of earlier attempts are assigned to instances by
    /// the index in the name, regardless of the earlier parallelism.
    fn standing(&self, begun: i64, name: &str) -> SessionOwner {
        let rest = name.strip_prefix(&self.prefix());
        let parts = rest.and_then(|rest| rest.split_once(' '));
        let numbers = parts.and_then(|(index, begun)| {
            Some((index.parse::<u64>().ok()?, begun.parse::<i64>().ok()?))
        });
        match numbers {
            Some((index, _)) if !self.instance.owns(index) => SessionOwner::Beside,
            Some((_, other)) if other > begun => SessionOwner::Behind,
            Some(_) => SessionOwner::Before,
            None => SessionOwner::Beside,
        }
    }

    /// Names the session, and waits until the sessions of earlier attempts have ended.
    ///
    /// # Errors
    /// `Superseded` if another run has taken over. A transient error if earlier sessions have not
    /// ended yet.
    pub async fn raise(
        &mut self,
        session: &mut Session,
        table: &TableName,
    ) -> Result<(), PgErrorClass> {
        let begun = match self.begun {
            Some(begun) => begun,
            None => {
                let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
                let row = session.query_opt(now, &[]).await?.ok_or_else(no_answer)?;
                *self.begun.insert(row.try_get(0)?)
            }
        };
        let name = "select set_config('application_name', $1, false)";
        session
            .execute(name, &[(&self.name(begun), Type::TEXT)])
            .await?;
        let looked = Instant::now();
        loop {
            let before = self.before(session, begun, table).await?;
            if before.is_empty() {
                return Ok(());
            }
            if looked.elapsed() >= ENDING {
                let why = format!("{} sessions of an earlier attempt are open", before.len());
                return Err(PgErrorClass::Passing(why));
            }
            if looked.elapsed() >= GRACE_PERIOD {
                let end =
                    "select pg_terminate_backend(pid) from unnest($1::integer[]) as session (pid)";
                session.execute(end, &[(&before, Type::INT4_ARRAY)]).await?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the process ids of earlier sessions, which must end before this session writes.
    async fn before(
        &self,
        session: &mut Session,
        begun: i64,
        table: &TableName,
    ) -> Result<Vec<i32>, PgErrorClass> {
        let sessions = session
            .query(
                "select pid, application_name from pg_stat_activity \
                 where datname = current_database() and usename = current_user and pid <> pg_backend_pid() \
                 and starts_with(application_name, $1)",
                &[(&self.prefix(), Type::TEXT)],
            )
            .await?;
        let mut before = Vec::new();
        for session in &sessions {
            match self.standing(begun, session.try_get(1)?) {
                SessionOwner::Beside => {}
                SessionOwner::Before => before.push(session.try_get(0)?),
                SessionOwner::Behind => return Err(PgErrorClass::Final(taken_over(table))),
            }
        }
        Ok(before)
    }
}

fn no_answer() -> PgErrorClass {
    PgErrorClass::Passing("it does not answer".to_string())
}

fn taken_over(table: &TableName) -> Error {
    let what = format!("another run of this job writes to the table {table}");
    Error::new(ErrorCode::Superseded, what)
        .hint("let one run at a time, or give each job its own name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_earlier_lives_are_told_from_siblings_and_from_later_ones() {
        let fence = |sink, index, parallelism| {
            let instance = Instance { index, parallelism };
            Fence::new(sink, instance)
        };
        let own = fence("job/sink", 1, 2);
        let name = |index, begun| fence("job/sink", index, 9).name(begun);
        let standing = |name: &str| own.standing(50, name);
        assert_eq!(
            standing(&name(0, 40)),
            SessionOwner::Beside,
            "dealt to another"
        );
        assert_eq!(standing(&name(1, 40)), SessionOwner::Before);
        assert_eq!(
            standing(&name(3, 40)),
            SessionOwner::Before,
            "of more instances"
        );
        assert_eq!(
            standing(&name(1, 50)),
            SessionOwner::Before,
            "its own, broken"
        );
        assert_eq!(standing(&name(1, 60)), SessionOwner::Behind);
        assert_eq!(
            standing(&fence("job/other", 1, 2).name(40)),
            SessionOwner::Beside
        );
        for other in ["psql", "ardea", &own.prefix()] {
            assert_eq!(standing(other), SessionOwner::Beside);
        }
        // The server truncates names to 63 bytes.
        assert!(
            fence("s", u32::MAX, 9)
                .name(i64::from(u32::MAX) * 1_000_000)
                .len()
                < 63
        );
    }
}
