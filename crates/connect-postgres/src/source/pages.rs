//! The statements that read pages of rows.

use ardea_core::{Error, ErrorCode};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use super::Plan;
use super::strands::{Strand, block_of, start_of};
use crate::sink::quoted;
use crate::trouble::Trouble;

/// A row: its key as text, and all of it as JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub key: String,
    pub json: String,
}

/// Statements of one connection.
pub(crate) struct Pages {
    /// From the first key on.
    first: Statement,
    /// Behind a key.
    behind: Statement,
    /// From one number to before another; none if keys are no whole numbers.
    between: Option<Statement>,
    /// The first number from one on.
    from: Option<Statement>,
    limit: usize,
}

impl Pages {
    /// Asks for the type of the key, and prepares statements for it.
    pub async fn prepare(client: &Client, plan: &Plan, is_fresh: bool) -> Result<Pages, Trouble> {
        let key = quoted(&plan.key);
        let rows = format!("from ({}) as q", plan.select);
        let described = client
            .prepare(&format!("select q.{key} {rows} limit 0"))
            .await?;
        let kind = described
            .columns()
            .first()
            .map(|column| column.type_().clone());
        let kind = kind.unwrap_or(Type::TEXT);
        let name: String = client
            .query_one("select format_type($1, -1)", &[&kind.oid()])
            .await?
            .get(0);
        if is_fresh {
            check_nulls(client, plan, &key, &rows).await?;
        }
        // One more than a page shows whether the key is unique where it ends.
        let limit = i64::from(plan.page.get()) + 1;
        let select = format!("select q.{key}::text, to_json(q)::text {rows}");
        let order = format!("order by q.{key} limit {limit}");
        let first = client.prepare(&format!("{select} {order}")).await?;
        let behind = format!("{select} where q.{key} > $1::text::{name} {order}");
        let behind = client.prepare(&behind).await?;
        let (mut between, mut from) = (None, None);
        if [Type::INT2, Type::INT4, Type::INT8].contains(&kind) {
            let range =
                format!("{select} where q.{key} >= $1::bigint and q.{key} < $2::bigint {order}");
            between = Some(client.prepare(&range).await?);
            let next = format!(
                "select q.{key}::bigint {rows} where q.{key} >= $1::bigint order by q.{key} limit 1"
            );
            from = Some(client.prepare(&next).await?);
        }
        Ok(Pages {
            first,
            behind,
            between,
            from,
            limit: plan.page.get() as usize,
        })
    }

    /// The next rows of a strand; none if there are no more.
    pub async fn next(
        &self,
        client: &Client,
        plan: &Plan,
        strand: &Strand,
    ) -> Result<Vec<Read>, Trouble> {
        if strand.is_everything() {
            let rows = match &strand.after {
                None => client.query(&self.first, &[]).await?,
                Some(after) => client.query(&self.behind, &[after]).await?,
            };
            return self.page_of(plan, &rows);
        }
        let (Some(between), Some(from)) = (&self.between, &self.from) else {
            return Err(Trouble::Final(no_number(plan)));
        };
        let block = plan.block.get();
        let mut next = strand.next()?;
        while strand.until.is_none_or(|until| next < until) {
            let mine = own_block(next, strand, block);
            let start = next.max(start_of(mine, block));
            let end = start_of(mine.saturating_add(1), block);
            let end = strand.until.map_or(end, |until| until.min(end));
            if start < end {
                let rows = client.query(between, &[&start, &end]).await?;
                if !rows.is_empty() {
                    return self.page_of(plan, &rows);
                }
            }
            // Perhaps there is nothing for long: who has the next key at all?
            match client.query_opt(from, &[&end.max(start)]).await? {
                Some(row) => next = row.get::<_, i64>(0),
                None => return Ok(Vec::new()),
            }
        }
        Ok(Vec::new())
    }

    /// The rows of a page, without the one that is only looked at.
    fn page_of(&self, plan: &Plan, rows: &[tokio_postgres::Row]) -> Result<Vec<Read>, Trouble> {
        let mut page = Vec::with_capacity(rows.len());
        for row in rows {
            let key: String = row.try_get(0)?;
            let json: String = row.try_get(1)?;
            page.push(Read { key, json });
        }
        if let Some(twice) = page.windows(2).find(|two| two[0].key == two[1].key) {
            let what = format!(
                "the key {} of {} is not unique: {} comes twice",
                plan.key, plan.name, twice[0].key
            );
            return Err(Trouble::Final(
                Error::new(ErrorCode::InvalidJob, what)
                    .hint("choose a column that is: rows of the same key would be passed over"),
            ));
        }
        page.truncate(self.limit);
        Ok(page)
    }
}

/// The first block of a strand that is not before a key.
fn own_block(key: i64, strand: &Strand, block: u32) -> i64 {
    let at = block_of(key, block);
    let of = i64::from(strand.of);
    at.saturating_add((i64::from(strand.index) - at).rem_euclid(of))
}

async fn check_nulls(client: &Client, plan: &Plan, key: &str, rows: &str) -> Result<(), Trouble> {
    let there = client
        .query_opt(
            &format!("select 1 {rows} where q.{key} is null limit 1"),
            &[],
        )
        .await?;
    if there.is_none() {
        return Ok(());
    }
    let what = format!("the key {} of {} is null in some rows", plan.key, plan.name);
    Err(Trouble::Final(
        Error::new(ErrorCode::InvalidJob, what).hint(
            "choose a column that is not: they would be passed over; or leave them out by a query",
        ),
    ))
}

fn no_number(plan: &Plan) -> Error {
    let what = format!(
        "several instances can't share {} by its key {}, which is no whole number",
        plan.name, plan.key
    );
    Error::new(ErrorCode::InvalidJob, what)
        .hint("let one instance read, or choose a key of type integer or bigint")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_dealt_out_in_turn() {
        let strand = Strand {
            index: 1,
            of: 3,
            after: None,
            until: None,
            is_done: false,
        };
        let own = |key| own_block(key, &strand, 10);
        assert_eq!(
            [own(0), own(10), own(19), own(20), own(-1)],
            [1, 1, 1, 4, 1]
        );
        assert_eq!(own(-25), -2);
    }
}
