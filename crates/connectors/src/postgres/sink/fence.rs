//! Keeps what an earlier life still has under way from being written behind what this one writes.
//!
//! Rows that take each other's place may be written again, but not in another order: a statement that a dead process has sent, or one whose connection
//! broke, may wait for a lock on the server while the same key is written anew, and then bring the old row back. So each session says whose it is, by
//! its `application_name`, and before it writes it waits until those before it are over; those that don't end by themselves are ended.
//!
//! A session of a dead process ends when the server has read what it left: what that was is written by then. Of two lives at a time the later one goes
//! on: each has the server's time at its beginning in its name.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Instance};
use tokio_postgres::types::Type;
use xxhash_rust::xxh3::xxh3_64;

use crate::postgres::session::Session;
use crate::postgres::table_name::TableName;
use crate::postgres::trouble::Trouble;

/// How long a session may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long one that was ended may take.
const ENDING: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// What a session is to this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It writes other keys.
    Beside,
    /// It is of an earlier life, or of a connection that broke.
    Before,
    /// It is of a later life.
    Behind,
}

/// The name of an instance's sessions.
pub(crate) struct Fence {
    sink: u64,
    instance: Instance,
    /// When this life began, by the server's clock in microseconds; known from the first connection on.
    begun: Option<i64>,
}

impl Fence {
    /// Of an instance of this sink of a job.
    pub fn new(sink: &str, instance: Instance) -> Self {
        Fence {
            sink: xxh3_64(sink.as_bytes()),
            instance,
            begun: None,
        }
    }

    /// What the names of all sessions of the sink begin with.
    fn prefix(&self) -> String {
        format!("ardea {:016x} ", self.sink)
    }

    fn name(&self, begun: i64) -> String {
        format!("{}{} {begun}", self.prefix(), self.instance.index)
    }

    /// What a session of this name is. Those of earlier lives, whatever their numbers of instances, are dealt out by their numbers.
    fn standing(&self, begun: i64, name: &str) -> Standing {
        let rest = name.strip_prefix(&self.prefix());
        let parts = rest.and_then(|rest| rest.split_once(' '));
        let numbers = parts.and_then(|(index, begun)| {
            Some((index.parse::<u64>().ok()?, begun.parse::<i64>().ok()?))
        });
        match numbers {
            Some((index, _)) if !self.instance.owns(index) => Standing::Beside,
            Some((_, other)) if other > begun => Standing::Behind,
            Some(_) => Standing::Before,
            None => Standing::Beside,
        }
    }

    /// Names the session, and waits until those before it are over.
    ///
    /// # Errors
    /// `Superseded` if another run has taken over; that they are not over yet.
    pub async fn raise(&mut self, session: &mut Session, table: &TableName) -> Result<(), Trouble> {
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
                let why = format!("{} sessions of an earlier life are not over", before.len());
                return Err(Trouble::Passing(why));
            }
            if looked.elapsed() >= PATIENCE {
                let end =
                    "select pg_terminate_backend(pid) from unnest($1::integer[]) as session (pid)";
                session.execute(end, &[(&before, Type::INT4_ARRAY)]).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The processes of sessions that have to be over.
    async fn before(
        &self,
        session: &mut Session,
        begun: i64,
        table: &TableName,
    ) -> Result<Vec<i32>, Trouble> {
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
                Standing::Beside => {}
                Standing::Before => before.push(session.try_get(0)?),
                Standing::Behind => return Err(Trouble::Final(taken_over(table))),
            }
        }
        Ok(before)
    }
}

fn no_answer() -> Trouble {
    Trouble::Passing("it does not answer".to_string())
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
        assert_eq!(standing(&name(0, 40)), Standing::Beside, "dealt to another");
        assert_eq!(standing(&name(1, 40)), Standing::Before);
        assert_eq!(
            standing(&name(3, 40)),
            Standing::Before,
            "of more instances"
        );
        assert_eq!(standing(&name(1, 50)), Standing::Before, "its own, broken");
        assert_eq!(standing(&name(1, 60)), Standing::Behind);
        assert_eq!(
            standing(&fence("job/other", 1, 2).name(40)),
            Standing::Beside
        );
        for other in ["psql", "ardea", &own.prefix()] {
            assert_eq!(standing(other), Standing::Beside);
        }
        // The server cuts names off at 63 bytes.
        assert!(
            fence("s", u32::MAX, 9)
                .name(i64::from(u32::MAX) * 1_000_000)
                .len()
                < 63
        );
    }
}
