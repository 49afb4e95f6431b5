//! Reader of pages of rows.

use ardea_core::{Error, ErrorCode};
use tokio_postgres::types::Type;

use super::PostgresSourceConfig;
use super::key_splits::{KeyRange, block_of};
use super::page::{Page, PageRow, page_of};
use super::statements::Statements;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::relation::{Identity, Relation, no_column};
use crate::postgres::session::{Parameter, Session};

/// Reader of a table or query on one connection.
pub(crate) struct Pages {
    statements: Statements,
    /// True if keys are integers of at most eight bytes.
    is_whole: bool,
}

impl Pages {
    /// Looks up the table and the key's type.
    pub async fn prepare(
        session: &mut Session,
        plan: &PostgresSourceConfig,
        is_fresh: bool,
    ) -> Result<Pages, PgErrorClass> {
        let relation = match &plan.table {
            Some(table) => Some(Relation::find(session, table).await?),
            None => None,
        };
        let mut statements = Statements::new(plan, relation.as_ref());
        let columns = columns_of(session, relation.as_ref(), &statements).await?;
        if !columns.is_empty() && !columns.contains(&plan.key) {
            let columns = columns.iter().map(String::as_str);
            return Err(no_column(&plan.name, &plan.key, columns).into());
        }
        let described = session.query(&statements.kind_of_key(), &[]).await?;
        let row = described.first().ok_or_else(|| no_answer(plan))?;
        let (name, base): (String, u32) = (row.try_get(0)?, row.try_get(1)?);
        statements.kind = name;
        if is_fresh {
            check_nulls(session, plan, &statements).await?;
        }
        let whole = [Type::INT2, Type::INT4, Type::INT8];
        Ok(Pages {
            is_whole: whole.iter().any(|kind| kind.oid() == base),
            statements,
        })
    }

    /// Reads the next rows of a range; returns an empty page at the end of the range.
    pub async fn next(
        &self,
        session: &mut Session,
        plan: &PostgresSourceConfig,
        strand: &KeyRange,
    ) -> Result<Page, PgErrorClass> {
        if strand.is_everything() {
            return match &strand.after {
                None => self.page(session, plan, "", &[]).await,
                Some(after) => {
                    let behind = self.statements.behind();
                    self.page(session, plan, &behind, &[(after, Type::TEXT)])
                        .await
                }
            };
        }
        if !self.is_whole {
            return Err(PgErrorClass::Final(no_number(plan)));
        }
        let block = plan.block.get();
        let mut identity = None;
        let mut next = strand.next()?;
        while let Some(from) = next {
            let Some((start, end)) = own_range(from, strand, block) else {
                break;
            };
            let limits: [Parameter<'_>; 2] = [(&start, Type::INT8), (&end, Type::INT8)];
            let page = self
                .page(session, plan, &self.statements.between(), &limits)
                .await?;
            if !page.rows.is_empty() {
                return Ok(page);
            }
            identity = page.identity;
            // Blocks without rows may follow: the next existing key shows how many to skip.
            next = match end.checked_add(1) {
                Some(behind) => self.first_from(session, behind).await?,
                None => None,
            };
        }
        Ok(Page {
            identity,
            rows: Vec::new(),
        })
    }

    async fn first_from(
        &self,
        session: &mut Session,
        key: i64,
    ) -> Result<Option<i64>, PgErrorClass> {
        let next = self.statements.first_from();
        match session.query_opt(&next, &[(&key, Type::INT8)]).await? {
            Some(row) => Ok(row.try_get(0)?),
            None => Ok(None),
        }
    }

    /// Reads a page. If the server cannot produce one of the rows, each row is read separately.
    async fn page(
        &self,
        session: &mut Session,
        plan: &PostgresSourceConfig,
        condition: &str,
        limits: &[Parameter<'_>],
    ) -> Result<Page, PgErrorClass> {
        let table = self.statements.table();
        let mut parameters: Vec<Parameter<'_>> = vec![(&table, Type::TEXT)];
        parameters.extend_from_slice(limits);
        loop {
            let read = session
                .query(&self.statements.page(condition), &parameters)
                .await;
            let why = match read {
                Ok(rows) => return page_of(plan, &rows),
                Err(PgErrorClass::Refused(why)) => why,
                Err(other) => return Err(other),
            };
            let keys = session
                .query(&self.statements.keys(condition), &parameters)
                .await;
            let keys = match keys {
                Ok(rows) => page_of(plan, &rows)?,
                Err(PgErrorClass::Refused(_)) => return Err(PgErrorClass::Refused(why)),
                Err(other) => return Err(other),
            };
            let is_end = keys.rows.is_empty();
            let page = self.each(session, keys).await?;
            // An empty page is the end only if there were no keys. Otherwise all rows of the page
            // were removed meanwhile, and others may follow.
            if is_end || !page.rows.is_empty() {
                return Ok(page);
            }
        }
    }

    /// Reads the rows of the keys in `keys` one by one.
    async fn each(&self, session: &mut Session, keys: Page) -> Result<Page, PgErrorClass> {
        let one = self.statements.one();
        let mut rows = Vec::with_capacity(keys.rows.len());
        for PageRow { key, .. } in keys.rows {
            let found = session.query_opt(&one, &[(&key, Type::TEXT)]).await;
            match found {
                Ok(Some(row)) => rows.push(PageRow {
                    json: Ok(super::page::text(&row, 0)?.unwrap_or_default()),
                    key,
                }),
                // The row was removed meanwhile.
                Ok(None) => {}
                Err(PgErrorClass::Refused(why)) => rows.push(PageRow {
                    json: Err(why),
                    key,
                }),
                Err(other) => return Err(other),
            }
        }
        Ok(Page { rows, ..keys })
    }

    /// Reads the row at a position and the table's identity.
    pub async fn look_at(
        &self,
        session: &mut Session,
        key: &str,
    ) -> Result<(Option<Identity>, Found), PgErrorClass> {
        let table = self.statements.table();
        let parameters: [Parameter<'_>; 2] = [(&table, Type::TEXT), (&key, Type::TEXT)];
        let rows = session
            .query(&self.statements.position(), &parameters)
            .await?;
        let Some(row) = rows.first() else {
            return Ok((None, Found::default()));
        };
        let found = Found {
            is_within: row.try_get(2)?,
            json: super::page::text(row, 3)?,
        };
        Ok((super::page::identity(row)?, found))
    }
}

/// Result of reading at a position.
#[derive(Default)]
pub(crate) struct Found {
    /// True if there is a row at or after the position.
    pub is_within: bool,
    /// Row at the position, as JSON; `None` if no row has this key.
    pub json: Option<Vec<u8>>,
}

/// Returns the first and last key of the range's next block, without keys before `from`; `None` if
/// there are no more blocks.
fn own_range(from: i64, strand: &KeyRange, block: u32) -> Option<(i64, i64)> {
    let at = i128::from(block_of(from, block));
    let of = i128::from(strand.of);
    let own = at + (i128::from(strand.index) - at).rem_euclid(of);
    let start = (own * i128::from(block)).max(i128::from(from));
    let mut end = (own + 1) * i128::from(block) - 1;
    if let Some(until) = strand.until {
        end = end.min(i128::from(until) - 1);
    }
    let end = i64::try_from(end.min(i128::from(i64::MAX))).ok()?;
    let start = i64::try_from(start).ok()?;
    (start <= end).then_some((start, end))
}

async fn columns_of(
    session: &mut Session,
    relation: Option<&Relation>,
    statements: &Statements,
) -> Result<Vec<String>, PgErrorClass> {
    match relation {
        Some(relation) => {
            let columns = relation.columns(session).await?;
            Ok(columns.into_iter().map(|column| column.name).collect())
        }
        None => session.names(&statements.nothing()).await,
    }
}

async fn check_nulls(
    session: &mut Session,
    plan: &PostgresSourceConfig,
    statements: &Statements,
) -> Result<(), PgErrorClass> {
    let there = session.query_opt(&statements.null_key(), &[]).await?;
    match there {
        None => Ok(()),
        Some(_) => Err(PgErrorClass::Final(null_key(plan))),
    }
}

pub(crate) fn null_key(plan: &PostgresSourceConfig) -> Error {
    let what = format!("the key {} of {} is null in some rows", plan.key, plan.name);
    Error::new(ErrorCode::InvalidJob, what).hint(
        "choose a column without nulls, or exclude these rows with a query: they would be skipped",
    )
}

fn no_answer(plan: &PostgresSourceConfig) -> Error {
    let what = format!("the server returns no type of the key {}", plan.key);
    Error::new(ErrorCode::ReadFailed, what).hint("check the server's log")
}

fn no_number(plan: &PostgresSourceConfig) -> Error {
    let what = format!(
        "several instances can't share {} by its key {}, which is not an integer",
        plan.name, plan.key
    );
    Error::new(ErrorCode::InvalidJob, what)
        .hint("use one instance, or choose a key of type integer or bigint")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strand(index: u32, of: u32) -> KeyRange {
        KeyRange {
            index,
            of,
            after: None,
            until: None,
            is_done: false,
            row: None,
        }
    }

    #[test]
    fn blocks_are_dealt_out_in_turn() {
        let own = |key| own_range(key, &strand(1, 3), 10);
        assert_eq!(own(0), Some((10, 19)));
        assert_eq!(own(15), Some((15, 19)));
        assert_eq!(own(20), Some((40, 49)));
        assert_eq!(own(-1), Some((10, 19)));
        assert_eq!(own(-25), Some((-20, -11)));
    }

    #[test]
    fn blocks_end_with_the_least_and_the_greatest_number() {
        for block in [1, 10, 10_000, u32::MAX] {
            for of in [2u32, 3, 7] {
                let own = |key, index| own_range(key, &strand(index, of), block);
                let holds = |key: i64| {
                    let all = (0..of).filter_map(|index| own(key, index));
                    all.filter(|(start, end)| (*start..=*end).contains(&key))
                        .count()
                };
                assert_eq!([holds(i64::MIN), holds(-1), holds(i64::MAX)], [1; 3]);
                let ends = (0..of).filter_map(|index| own(i64::MAX, index));
                assert_eq!(ends.collect::<Vec<_>>(), [(i64::MAX, i64::MAX)]);
            }
        }
    }

    #[test]
    fn a_block_ends_before_what_others_read() {
        let own = |key| {
            let until = Some(15);
            let strand = KeyRange {
                until,
                ..strand(1, 3)
            };
            own_range(key, &strand, 10)
        };
        assert_eq!(own(0), Some((10, 14)));
        assert_eq!(own(15), None);
    }
}
