//! Statements on a connection, with settings that hold even if a pooler changes the server process.
//!
//! No statement is prepared under a name: behind a pooler, the next transaction may reach a server
//! process without the prepared statement.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, SimpleQueryMessage, Transaction};

use crate::postgres::address::Server;
use crate::postgres::connection::Opened;
use crate::postgres::connection_count::CountedConnection;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::pooler;

/// A statement parameter and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Session settings: UTC times, exact numbers, and commits flushed to the server's disk.
const SETTINGS: &str = "set client_min_messages = warning; set TimeZone = 'UTC'; set DateStyle = 'ISO'; \
     set IntervalStyle = 'postgres'; set extra_float_digits = 1; set bytea_output = 'hex'; \
     select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'";

/// The settings of [`SETTINGS`] for one transaction.
const LOCAL_SETTINGS: &str = "set local client_min_messages = warning; set local TimeZone = 'UTC'; \
     set local DateStyle = 'ISO'; set local IntervalStyle = 'postgres'; set local extra_float_digits = 1; \
     set local bytea_output = 'hex'; \
     select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'";

/// A connection to a server.
pub(crate) struct Session {
    opened: Opened,
    /// Guard that counts the connection in this process.
    _held: Option<CountedConnection>,
    /// True if each transaction may use another server process.
    is_pooled: bool,
}

impl Session {
    /// Detects a pooler and applies the settings.
    pub async fn begin(server: &Server, opened: Opened) -> Result<Session, PgErrorClass> {
        let is_pooled = pooler::is_pooled(server, &opened.client).await?;
        if !is_pooled {
            opened.client.batch_execute(SETTINGS).await?;
        }
        Ok(Session {
            _held: (!is_pooled).then(|| CountedConnection::count_in(server)),
            opened,
            is_pooled,
        })
    }

    pub fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    pub fn is_closed(&self) -> bool {
        self.opened.client.is_closed()
    }

    /// Begins a transaction.
    pub async fn transaction(&mut self) -> Result<Transaction<'_>, PgErrorClass> {
        let transaction = self.opened.client.transaction().await?;
        if self.is_pooled {
            transaction.batch_execute(LOCAL_SETTINGS).await?;
        }
        Ok(transaction)
    }

    /// Returns the rows of a statement.
    pub async fn query(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, PgErrorClass> {
        if !self.is_pooled {
            return Ok(self.opened.client.query_typed(sql, parameters).await?);
        }
        let transaction = self.transaction().await?;
        let rows = transaction.query_typed(sql, parameters).await?;
        transaction.commit().await?;
        Ok(rows)
    }

    /// Returns the first row of a statement's result; `None` if it is empty.
    pub async fn query_opt(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, PgErrorClass> {
        Ok(self.query(sql, parameters).await?.into_iter().next())
    }

    /// Returns the names of a statement's columns.
    pub async fn names(&mut self, sql: &str) -> Result<Vec<String>, PgErrorClass> {
        let answers = self.opened.client.simple_query(sql).await?;
        let described = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::RowDescription(columns) => Some(columns),
            _ => None,
        });
        let columns = described
            .map(|columns| columns.iter())
            .into_iter()
            .flatten();
        Ok(columns.map(|column| column.name().to_string()).collect())
    }

    /// Executes a statement.
    pub async fn execute(
        &mut self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<(), PgErrorClass> {
        if !self.is_pooled {
            self.opened.client.execute_typed(sql, parameters).await?;
            return Ok(());
        }
        let transaction = self.transaction().await?;
        transaction.execute_typed(sql, parameters).await?;
        Ok(transaction.commit().await?)
    }
}
