//! Classification of server errors.

use ardea_core::{Error, ErrorCode};
use tokio_postgres::error::SqlState;

/// Reason why an operation failed, classified by the required reaction.
#[derive(Debug)]
pub(crate) enum PgErrorClass {
    /// The server is unavailable or temporarily unable: retry later.
    Passing(String),
    /// The server refuses the rows of the operation.
    Refused(String),
    /// Retrying is useless.
    Final(Error),
}

impl From<tokio_postgres::Error> for PgErrorClass {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(said) = error.as_db_error() else {
            let why = reason(&error);
            return match () {
                () if why.contains("invalid peer certificate") => {
                    PgErrorClass::Final(no_entry(&why))
                }
                () if why.starts_with("invalid configuration") => {
                    PgErrorClass::Final(no_entry(&why))
                }
                () if is_of_values(&why) => PgErrorClass::Final(no_exchange(&why)),
                () => PgErrorClass::Passing(why),
            };
        };
        let mut why = said.message().to_string();
        if let Some(detail) = said.detail() {
            why = format!("{why}: {detail}");
        }
        // A row rejected by a row-level security policy has the same SQL state as a missing
        // permission.
        if said.routine() == Some("ExecWithCheckOptions") {
            return PgErrorClass::Refused(why);
        }
        match kind_of(said.code()) {
            Kind::Passing => PgErrorClass::Passing(why),
            Kind::OfRows => PgErrorClass::Refused(why),
            Kind::Entry => PgErrorClass::Final(no_entry(&why)),
            Kind::Final => PgErrorClass::Final(refused(&why, said.code(), said.hint())),
        }
    }
}

impl From<Error> for PgErrorClass {
    fn from(error: Error) -> Self {
        PgErrorClass::Final(error)
    }
}

/// Returns true for an error caused by a value and not by the connection: a retry would fail again.
fn is_of_values(why: &str) -> bool {
    const BEGINNINGS: [&str; 4] = [
        "error serializing parameter",
        "error deserializing column",
        "error encoding message",
        "invalid column",
    ];
    BEGINNINGS
        .iter()
        .any(|beginning| why.starts_with(beginning))
}

/// Returns the error and its causes in one line.
fn reason(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

/// SQL state classes of errors that are not caused by rows and that a retry cannot fix.
const FINAL: [&str; 23] = [
    "00", "01", "02", "03", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "24", "25", "26", "2B", "2D",
    "2F", "34", "3B", "3F", "42", "55", "XX",
];

#[derive(PartialEq, Eq, Debug)]
enum Kind {
    Passing,
    OfRows,
    /// The server refuses this user.
    Entry,
    Final,
}

/// Returns the required reaction to a SQL state, whose first two characters are its class.
fn kind_of(state: &SqlState) -> Kind {
    let code = state.code();
    match code {
        // Query cancelled by an operator, lock not available, read-only transaction, session or
        // transaction timeout.
        "57014" | "55P03" | "25006" | "25P03" | "25P04" => Kind::Passing,
        "57P04" => Kind::Entry,
        _ => match code.get(..2).unwrap_or_default() {
            // Connection errors, serialization failures, memory and disk, operator intervention,
            // system errors.
            "08" | "40" | "53" | "57" | "58" => Kind::Passing,
            // Values, constraints, views, trigger functions, limits such as the depth of JSON.
            "22" | "23" | "21" | "44" | "P0" | "09" | "27" | "38" | "39" | "54" => Kind::OfRows,
            "28" | "3D" => Kind::Entry,
            class if FINAL.contains(&class) => Kind::Final,
            // A trigger function may raise a custom state.
            _ => Kind::OfRows,
        },
    }
}

fn no_entry(why: &str) -> Error {
    Error::new(
        ErrorCode::Network,
        "the PostgreSQL server refuses the login",
    )
    .because(why)
    .permanent()
    .hint("check the user, the password and the database of the address")
}

fn no_exchange(why: &str) -> Error {
    Error::new(
        ErrorCode::Internal,
        "a value cannot be converted for or from the PostgreSQL server",
    )
    .because(why)
    .hint("please report it, with the type of the column")
}

fn refused(why: &str, state: &SqlState, hint: Option<&str>) -> Error {
    let own = match state.code() {
        "42501" => {
            "grant it to the user of the address; an exactly-once sink creates tables that begin with ardea_ beside its target table, \
             unless they exist"
        }
        "42P10" => "the columns of `upsert` need a primary key or a unique index of exactly these",
        "42P01" | "42703" | "3F000" => {
            "check the names of the table and of its columns; it may have been dropped meanwhile"
        }
        _ => "check the table, its columns and their types",
    };
    Error::new(
        ErrorCode::InvalidJob,
        "the PostgreSQL server refuses a statement",
    )
    .because(format!("{why} ({})", state.code()))
    .hint(hint.unwrap_or(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_apart() {
        let kind = |code| kind_of(&SqlState::from_code(code));
        for (code, expected) in [
            ("57P01", Kind::Passing),
            ("57P03", Kind::Passing),
            ("25P03", Kind::Passing),
            ("25P04", Kind::Passing),
            ("25P02", Kind::Final),
            ("53100", Kind::Passing),
            ("40P01", Kind::Passing),
            ("23505", Kind::OfRows),
            ("22P02", Kind::OfRows),
            ("P0001", Kind::OfRows),
            ("54001", Kind::OfRows),
            ("APP01", Kind::OfRows),
            ("45000", Kind::OfRows),
            ("XX000", Kind::Final),
            ("55000", Kind::Final),
            ("28P01", Kind::Entry),
            ("3D000", Kind::Entry),
            ("42P01", Kind::Final),
            ("42501", Kind::Final),
        ] {
            assert_eq!(kind(code), expected, "{code}");
        }
    }
}
