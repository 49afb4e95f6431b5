//! Validation of restored positions.

use ardea_core::{Error, ErrorCode};
use xxhash_rust::xxh3::xxh3_64;

use super::PostgresSourceConfig;
use super::pages::{Found, Pages};
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::relation::Identity;
use crate::postgres::session::Session;

/// Returns a digest of a row's content.
pub(crate) fn digest(json: &[u8]) -> u64 {
    xxh3_64(json)
}

/// Last row read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last<'a> {
    pub key: &'a str,
    pub digest: u64,
}

/// Compares the last row read with the table. Returns the table's current identity, and the reason
/// if the position is invalid.
pub(crate) async fn check(
    session: &mut Session,
    pages: &Pages,
    before: Option<Identity>,
    last: Last<'_>,
) -> Result<(Option<Identity>, Option<String>), PgErrorClass> {
    let (now, found) = match pages.look_at(session, last.key).await {
        // The server cannot produce this row, which says nothing about the table.
        Err(PgErrorClass::Refused(_)) => return Ok((before, None)),
        looked => looked?,
    };
    Ok((now, problem(before, now, &found, last)))
}

fn problem(
    before: Option<Identity>,
    now: Option<Identity>,
    found: &Found,
    last: Last<'_>,
) -> Option<String> {
    let key = last.key;
    if let (Some(before), Some(now)) = (before, now) {
        if before.oid != now.oid {
            let ids = format!("its oid was {} and is {}", before.oid, now.oid);
            return Some(format!("it was dropped and created again ({ids})"));
        }
        let is_same = found.json.as_deref().map(digest) == Some(last.digest);
        if before.file != now.file && !is_same {
            let row = match found.json {
                None => "is missing",
                Some(_) => "is another one",
            };
            return Some(format!(
                "it was truncated or rewritten, and the row {key}, which was read last, {row}"
            ));
        }
    }
    let is_beyond = !found.is_within;
    is_beyond.then(|| format!("it ends before the key {key}, which was read last"))
}

/// Returns the error of an invalid position.
pub(crate) fn replaced(plan: &PostgresSourceConfig, why: &str) -> Error {
    let what = format!(
        "{} is not what was read before: {why}; rows would be missing without notice",
        plan.name
    );
    Error::new(ErrorCode::ReadFailed, what).permanent().hint(
        "bring the table back, begin without a checkpoint, or go on behind the key with \
         `on_lost_position(OnLostPosition::Continue)`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_replaced_is_told_from_one_that_has_changed() {
        let last = Last {
            key: "7",
            digest: digest(b"row"),
        };
        let table = |oid, file| {
            Some(Identity {
                oid,
                file: Some(file),
            })
        };
        let found = |is_within, json: Option<&str>| Found {
            is_within,
            json: json.map(|json| json.as_bytes().to_vec()),
        };
        let tell = |before, now, found: Found| problem(before, now, &found, last);
        let same = table(1, 1);
        assert_eq!(tell(same, same, found(true, Some("row"))), None);
        assert_eq!(tell(same, same, found(true, Some("changed"))), None);
        assert_eq!(tell(same, same, found(true, None)), None, "it was removed");
        assert_eq!(tell(same, table(1, 2), found(true, Some("row"))), None);
        assert_eq!(
            tell(None, same, found(true, None)),
            None,
            "of an older checkpoint"
        );
        for (now, found, why) in [
            (table(2, 2), found(true, Some("row")), "dropped"),
            (table(1, 2), found(true, None), "truncated"),
            (table(1, 2), found(true, Some("other")), "another"),
            (same, found(false, None), "ends before the key 7"),
            (None, found(false, None), "ends before the key 7"),
        ] {
            let told = tell(same, now, found).unwrap();
            assert!(told.contains(why), "{told}");
        }
    }
}
