//! Test environment: servers and queries.

use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ardea_core::Error;
use ardea_metastore::conformance::{Server, Skipped};
use ardea_testkit::ExternalHarness;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Starts a server. If this fails, prints a message and returns `None`.
pub fn own_server() -> Option<Server> {
    match Server::start("postgres.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of PostgreSQL: {why}");
            None
        }
    }
}

/// Returns the address of the shared server of all non-disruptive tests. It ends with the process.
pub fn shared_server() -> Option<String> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(own_server).as_ref().map(url)
}

pub fn url(server: &Server) -> String {
    format!("postgres://postgres@{}/postgres", server.address())
}

/// Returns the rows of a query as text, with `-` for null.
pub fn ask(url: &str, sql: &str) -> Vec<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answers = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.simple_query(sql).await.unwrap()
    });
    let rows = answers.iter().filter_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| {
        (0..row.len())
            .map(|column| row.get(column).unwrap_or("-").to_string())
            .collect()
    })
    .collect()
}

/// Returns the single number of a query.
pub fn number(url: &str, sql: &str) -> u64 {
    ask(url, sql)[0][0].parse().unwrap()
}

/// Writes numbers to a fenced sink until it fails.
pub fn failure_of(life: &mut ExternalHarness) -> Error {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Err(error) = life.try_write([1_000_000u64]) {
            return error;
        }
        assert!(Instant::now() < deadline, "it never fails");
    }
}
