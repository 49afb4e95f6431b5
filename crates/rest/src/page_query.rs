//! Pages of lists.

use ardea_core::{Error, ErrorCode, Result};
use axum::http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of elements of a page.
pub const MAX_PAGE_ELEMENTS: u32 = 10_000;

/// The selection of a page of a list. The address of the next page is in the header `Link`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// Maximum number of elements, from 1 to 10,000; all if not given.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<u32>,
    /// Last element of the page before: its name, and in the list of ended jobs its submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Checks the number of elements that a client requests.
pub(crate) fn check_limit(limit: Option<u32>, most: u32) -> Result<()> {
    if limit.is_none_or(|limit| (1..=most).contains(&limit)) {
        return Ok(());
    }
    let what = format!("limit is from 1 to {most}");
    Err(Error::new(ErrorCode::BadRequest, what).hint("request the rest with after"))
}

impl PageQuery {
    /// Validates a query from a client.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorCode::BadRequest) for a limit of zero or above [`MAX_PAGE_ELEMENTS`].
    pub fn check(&self) -> Result<()> {
        check_limit(self.limit, MAX_PAGE_ELEMENTS)
    }

    /// Returns the page of a list sorted by a unique name, and the name that the next page follows,
    /// if there is one.
    pub(crate) fn page<T>(
        &self,
        mut all: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> (Vec<T>, Option<String>) {
        if let Some(after) = &self.after {
            all.retain(|it| name(it) > after.as_str());
        }
        self.first(all, name)
    }

    /// Returns the page of a list in any order whose elements have unique keys, and the key that
    /// the next page follows, if there is one. A page after an unknown key is empty.
    pub(crate) fn page_by_key<T>(
        &self,
        mut all: Vec<T>,
        key: impl Fn(&T) -> &str,
    ) -> (Vec<T>, Option<String>) {
        if let Some(after) = &self.after {
            let last = all.iter().position(|it| key(it) == after.as_str());
            all.drain(..last.map_or(all.len(), |last| last + 1));
        }
        self.first(all, key)
    }

    /// Returns the first elements, and the key of the last one if there are more.
    fn first<T>(&self, mut all: Vec<T>, key: impl Fn(&T) -> &str) -> (Vec<T>, Option<String>) {
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let has_more = all.len() > limit;
        all.truncate(limit);
        let next = all
            .last()
            .filter(|_| has_more)
            .map(|it| key(it).to_string());
        (all, next)
    }

    /// Returns the value of the header `Link` with the address of the page after the name `after`.
    pub(crate) fn link(&self, path: &str, after: &str) -> Option<HeaderValue> {
        let next = PageQuery {
            after: Some(after.to_string()),
            ..self.clone()
        };
        let query = serde_urlencoded::to_string(next).ok()?;
        HeaderValue::try_from(format!("<{path}?{query}>; rel=\"next\"")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_gap_and_overlap() {
        let all = ["a", "b c", "d", "e"];
        let mut query = PageQuery {
            limit: Some(2),
            after: None,
        };
        let (page, next) = query.page(all.to_vec(), |it| it);
        assert_eq!((page, next.as_deref()), (vec!["a", "b c"], Some("b c")));
        let link = query.link("/v1/jobs", "b c").unwrap();
        assert_eq!(link, "</v1/jobs?limit=2&after=b+c>; rel=\"next\"");
        query.after = next;
        let (page, next) = query.page(all.to_vec(), |it| it);
        assert_eq!((page, next), (vec!["d", "e"], None));
        let latest = ["7", "3", "9", "1"];
        query.after = Some("3".into());
        let (page, next) = query.page_by_key(latest.to_vec(), |it| it);
        assert_eq!((page, next), (vec!["9", "1"], None));
        query.after = Some("none".into());
        assert!(query.page_by_key(latest.to_vec(), |it| it).0.is_empty());
        query.limit = Some(0);
        assert!(query.check().is_err());
    }
}
